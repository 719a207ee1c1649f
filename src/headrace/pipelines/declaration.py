"""A pipeline: a source, a function from table to table, and a sink. Knows no Spark.

Contradictions are refused here, when the file is loaded, before Spark is started.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headrace.pipelines.expectation import Expectation
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows.ahead import DEFAULT as AHEAD
from headrace.pipelines.rows.ahead import is_interval
from headrace.pipelines.rows.exact import UNITS
from headrace.pipelines.rows.model_rules import rules_of
from headrace.pipelines.rows.schema import AVRO, INFER, avro_of, ddl_of
from headrace.pipelines.stream import span as spans

# The part of a name that goes into topic names, folder names and Delta's transaction ids.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-_]{0,79}", re.ASCII)
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
FORMATS = ("delta", "iceberg", "parquet")
MODES = ("append", "upsert")
VALUES = ("json", *AVRO)

# A function from one Spark table to another: pyspark.sql.DataFrame, which is not loaded here.
Transform = Callable[[Any], Any]


@dataclass(slots=True, kw_only=True)
class Topic:
    """A topic as a source of rows, or as a sink for them.

    As a source: `schema` is a pydantic model, Spark's DDL (`"id LONG NOT NULL, name STRING"`),
    `"infer"` (from the first records, once, then pinned) or `"VARIANT"` (one column `value` that
    holds JSON of any shape): values are JSON and become columns. With `format="avro"` or
    `"confluent-avro"` the schema is an Avro schema. Without one rows are as the connector gives
    them (key, value, topic, partition, offset, timestamp), and none is bad. `late` is how long a
    row may come after newer ones and still count, by the column `event_time`. `late_rows` names a
    Delta table for rows that come later than that; without it Spark drops them. `ahead` is how far
    an event time may be ahead of the record's own time and of the clock; a record beyond it is a
    dead letter; None means no limit. With `record` there is a column of that name with the record's
    key, topic, partition, offset and timestamp. `unit` is what a number in a column of times counts
    since 1970: "milliseconds" unless it says "seconds", "microseconds" or "nanoseconds".
    `expect` are rules for rows, made by `expect(...)`.
    `starting` is "earliest", "latest", a moment, or the offset of each partition. With `pattern`
    the name is a regular expression and all topics that match it are read.

    As a sink: rows with a column `value` are written as they are (`key`, `headers` and `partition`
    too), others as JSON objects, with the column `key` as their key. Fields that are null are
    written as null; `nulls=False` leaves them out. A row that changes is written each time it does;
    with `final` it is written once, when nothing can change it any more.

    `options` go to Spark's Kafka source or sink as they are, such as
    `{"kafka.security.protocol": "SSL"}`.
    """

    name: str = field(kw_only=False)
    schema: type | str | None = None
    format: str = "json"
    event_time: str | None = None
    late: str | None = None
    late_rows: str | None = None
    ahead: str | None = AHEAD
    unit: str = "milliseconds"
    record: bool = False
    starting: str | datetime | dict[int, int] = "earliest"
    per_batch: int | None = None
    pattern: bool = False
    expect: tuple[Expectation, ...] = ()
    key: str | None = None
    nulls: bool = True
    final: bool = False
    options: dict[str, str] = field(default_factory=dict, repr=False)
    # As a sink, see `Sink`:
    kind: ClassVar[str] = "topic"
    upserts: ClassVar[bool] = False
    newest: ClassVar[None] = None
    knows_batches: ClassVar[bool] = False
    knows_streams: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.pattern:
            self._compiled()
        elif not TOPIC_NAME.fullmatch(self.name):
            raise PipelineError(f"{self.name!r} is not a valid topic name.")
        said = f"Topic {self.name}"
        _both_or_none(said, self.event_time, self.late)
        if self.format not in VALUES:
            raise PipelineError(f"{said}: format= is one of {', '.join(VALUES)}.")
        if self.unit not in UNITS:
            raise PipelineError(f"{said}: unit= is one of {', '.join(UNITS)}.")
        if self.ahead is not None and not is_interval(self.ahead):
            raise PipelineError(
                f'{said}: ahead={self.ahead!r} is not a time such as "5 minutes"; '
                "None means no limit."
            )
        if self.late_rows is not None and self.late is None:
            raise PipelineError(f"{said}: late_rows= needs event_time= and late=.")
        if self.event_time is not None and self.schema is None:
            raise PipelineError(f"{said}: event_time= needs a schema= with that column.")
        if self.format in AVRO and self.schema is None:
            raise PipelineError(f"{said}: Avro needs schema=, an Avro schema.")
        if self.record and self.schema is None:
            raise PipelineError(f"{said}: without schema= all of the record is there.")
        if self.expect and self.schema is None:
            raise PipelineError(f"{said}: expect= needs a schema=.")
        if self.per_batch is not None and self.per_batch < 1:
            raise PipelineError(f"{said}: per_batch= is 1 or more.")
        if self.final and self.schema is not None:
            raise PipelineError(f"{said}: final= is for sinks.")
        self._check_starting(said)

    def _check_starting(self, said: str) -> None:
        if isinstance(self.starting, dict):
            if self.pattern:
                raise PipelineError(f"{said}: offsets by partition need one topic, no pattern.")
            if not self.starting or min(*self.starting, *self.starting.values()) < 0:
                raise PipelineError(f"{said}: starting= needs an offset for each partition.")
        else:
            self.starting_ms  # noqa: B018 - refuses now what is not a moment

    def _compiled(self) -> re.Pattern[str]:
        try:
            return re.compile(self.name)
        except re.error as wrong:
            raise PipelineError(
                f"Topic {self.name!r} is not a regular expression: {wrong}."
            ) from None

    def matches(self, topic: str) -> bool:
        """Returns whether rows of that topic are read."""
        return bool(self._compiled().fullmatch(topic)) if self.pattern else topic == self.name

    @property
    def starting_ms(self) -> int | None:
        """The moment at which reading starts, if it is one."""
        if isinstance(self.starting, dict) or self.starting in ("earliest", "latest"):
            return None
        text = self.starting if isinstance(self.starting, str) else self.starting.isoformat()
        return spans.moment(text)

    @property
    def is_avro(self) -> bool:
        return self.format in AVRO

    @property
    def infers(self) -> bool:
        return self.schema == INFER

    @property
    def ddl(self) -> str | None:
        """The schema as text: Spark's DDL, or an Avro schema."""
        if self.schema is None:
            return None
        return avro_of(self.schema) if self.is_avro else ddl_of(self.schema)

    @property
    def shown(self) -> str:
        return self.name

    @property
    def output_mode(self) -> str:
        return "append" if self.final else "update"

    @property
    def topics_to_make(self) -> tuple[str, ...]:
        return (self.name,)


@dataclass(slots=True, kw_only=True)
class Table:
    """A table as a sink or a source: `name` below the folder of tables, or a path with a `/`.

    As a sink, `upsert` keeps one row per `key` (Delta only). Of rows with the same key the one with
    the greatest `newest` stays; without it two of them in one batch are refused by Delta.
    As a source, `event_time` and `late` are as for topics. `options` go to Spark's
    writer or reader. `compact` is after how many batches of a stream small files of a Delta or
    Iceberg sink become large ones at the latest; 0 is never, None is the default.
    """

    name: str = field(kw_only=False)
    mode: str = "append"
    key: str | tuple[str, ...] = ()
    newest: str | None = None
    format: str = "delta"
    partition_by: tuple[str, ...] = ()
    event_time: str | None = None
    late: str | None = None
    compact: int | None = None
    options: dict[str, str] = field(default_factory=dict, repr=False)
    # As a sink, see `Sink`:
    knows_batches: ClassVar[bool] = True
    topics_to_make: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if isinstance(self.key, str):
            self.key = (self.key,)
        said = f"Table {self.name}"
        if "/" not in self.name and not NAME.fullmatch(self.name):
            raise PipelineError(
                f"{self.name!r} is not the name of a table: letters, digits, - and _."
            )
        if self.format not in FORMATS:
            raise PipelineError(f"{said}: format= is one of {', '.join(FORMATS)}.")
        if self.mode not in MODES:
            raise PipelineError(f"{said}: mode= is one of {', '.join(MODES)}.")
        if self.mode == "upsert" and self.format != "delta":
            raise PipelineError(f'{said}: mode="upsert" needs format="delta".')
        if (self.mode == "upsert") != bool(self.key):
            raise PipelineError(f'{said}: mode="upsert" and key= go together.')
        if self.newest is not None and self.mode != "upsert":
            raise PipelineError(f'{said}: newest= is for mode="upsert".')
        if self.compact is not None and self.compact < 0:
            raise PipelineError(f"{said}: compact= is a number of batches, 0 for never.")
        if self.compact and self.format == "parquet":
            raise PipelineError(
                f'{said}: compact= is for format="delta" and "iceberg"; a folder of Parquet files '
                "has no log that could say which files count."
            )
        _both_or_none(said, self.event_time, self.late)

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,) if isinstance(self.key, str) else self.key

    @property
    def upserts(self) -> bool:
        return self.mode == "upsert"

    @property
    def kind(self) -> str:
        return f"{self.format} {self.mode}"

    @property
    def shown(self) -> str:
        return self.name

    @property
    def output_mode(self) -> str:
        return "update" if self.upserts else "append"

    @property
    def knows_streams(self) -> bool:
        return self.format != "parquet"


@dataclass(slots=True, kw_only=True)
class Jdbc:
    """A table of PostgreSQL as a sink: one row per `key`; without `key` rows are added.

    `url` is JDBC's, such as `jdbc:postgresql://localhost/shop`; `options` are the driver's, `user`
    and `password` among them. A table that is not there is made. Of rows with the same key the one
    with the greatest `newest` stays; without it two of them in one batch are an error.
    """

    name: str = field(kw_only=False)
    url: str = field(repr=False)  # it may hold a password
    key: str | tuple[str, ...] = ()
    newest: str | None = None
    options: dict[str, str] = field(default_factory=dict, repr=False)
    # See `Sink`:
    knows_batches: ClassVar[bool] = True
    knows_streams: ClassVar[bool] = True
    topics_to_make: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if isinstance(self.key, str):
            self.key = (self.key,)
        if not all(self.name.split(".")) or "\0" in self.name or self.name.count(".") > 1:
            raise PipelineError(f"{self.name!r} is not the name of a table, nor SCHEMA.TABLE.")
        if not self.url.startswith("jdbc:postgresql:"):
            raise PipelineError(
                f"Jdbc {self.name}: the url begins with jdbc:postgresql:, other databases are not "
                "served."
            )
        if self.newest is not None and not self.key:
            raise PipelineError(f"Jdbc {self.name}: newest= needs key=.")

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,) if isinstance(self.key, str) else self.key

    @property
    def upserts(self) -> bool:
        return bool(self.key)

    @property
    def kind(self) -> str:
        return f"jdbc {'upsert' if self.upserts else 'append'}"

    @property
    def output_mode(self) -> str:
        return "update" if self.upserts else "append"

    @property
    def shown(self) -> str:
        """Returns the URL without passwords."""
        return f"{self.name} at {self.url.partition('?')[0]}"


@dataclass(slots=True, kw_only=True)
class Console:
    """A sink that prints the first `rows` of each batch."""

    rows: int = 20
    name: str = "console"
    # See `Sink`:
    kind: ClassVar[str] = "console"
    output_mode: ClassVar[str] = "update"
    upserts: ClassVar[bool] = False
    newest: ClassVar[None] = None
    knows_batches: ClassVar[bool] = False
    knows_streams: ClassVar[bool] = False
    topics_to_make: ClassVar[tuple[str, ...]] = ()

    @property
    def shown(self) -> str:
        return self.name


Source = Topic | Table
# Each kind of sink says of itself:
# - kind and shown: what it is and where, as checkpoints and people name it;
# - output_mode: Spark's. With "update" a row is written each time it changes, because it replaces
#   or follows the old one;
# - upserts, newest: whether rows replace others by key, and the column that tells the newer one;
# - knows_batches: whether it leaves out a batch that it has already;
# - knows_streams: whether it tells the batches of one stream from those of another. A folder of
#   Parquet files has one list of numbers for whichever stream writes it;
# - topics_to_make: the topics that are made where they are missing.
Sink = Table | Jdbc | Topic | Console


@dataclass(slots=True, kw_only=True)
class Pipeline:
    """A function with its source and sink; calling it calls the function."""

    name: str
    source: Source
    sink: Sink
    function: Transform
    zone: str = "UTC"  # of days, and of times that are written without one

    def __call__(self, rows: Any) -> Any:
        return self.function(rows)

    @property
    def topic(self) -> Topic | None:
        """The source, if it is one or more topics."""
        return self.source if isinstance(self.source, Topic) else None

    @property
    def dead_topic(self) -> str:
        """Returns the dead-letter topic. All bad records of a pattern go into one topic."""
        of = self.topic
        begin = "" if of is None or of.pattern else f"{of.name}."
        return f"{begin}pipeline.{self.name}.dead"

    @property
    def has_bad_records(self) -> bool:
        """Whether a record may be one that cannot become a row."""
        return self.topic is not None and self.topic.schema is not None

    def describe(self) -> dict[str, str]:
        """Returns the identity of a checkpoint: another source or sink cannot continue it."""
        source = self.source.name if self.topic is not None else f"table {self.source.name}"
        sink = {"sink": self.sink.shown, "kind": self.sink.kind}
        return {"source": source, **sink, "zone": self.zone}

    def in_zone(self, zone: str) -> Pipeline:
        """The same pipeline with the days of another time zone."""
        must_be_zone(zone)
        return replace(self, zone=zone)


def must_be_zone(zone: str) -> None:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise PipelineError(f"{zone!r} is not a time zone such as Europe/Berlin or UTC.") from None


def pipeline(
    *, source: Source, sink: Sink, name: str | None = None, zone: str = "UTC"
) -> Callable[[Transform], Pipeline]:
    """Make a pipeline of a function; its name is the function's, with - for _, unless given.
    `zone` is where its days begin, such as "Europe/Berlin"."""
    must_be_zone(zone)

    def made(function: Transform) -> Pipeline:
        called = name or function.__name__.replace("_", "-")
        if not NAME.fullmatch(called):
            raise PipelineError(
                f"{called!r} is not the name of a pipeline: letters, digits, - and _."
            )
        whole = Pipeline(name=called, source=source, sink=sink, function=function, zone=zone)
        _check(whole)
        return whole

    return made


def _check(pipeline: Pipeline) -> None:
    """Checks source and sink together."""
    source, sink = pipeline.source, pipeline.sink
    if isinstance(source, Topic):
        source.ddl  # noqa: B018 - a schema that cannot be had is refused now
        rules_of(source.schema)  # and so is a model that Spark cannot obey
        if source.matches(pipeline.dead_topic):
            raise PipelineError(
                f"The pattern {source.name} matches {pipeline.dead_topic}, where the bad records "
                "of the pipeline go: they would come back to it."
            )
    if isinstance(sink, Topic):
        if sink.pattern:
            raise PipelineError(f"Topic {sink.name}: a sink is one topic, no pattern.")
        if sink.schema is not None or sink.event_time is not None:
            raise PipelineError(f"Topic {sink.name}: a sink has no schema and no event time.")
        if isinstance(source, Topic) and source.matches(sink.name):
            raise PipelineError(f"{pipeline.name} would read what it writes to {sink.name}.")
    if isinstance(sink, Table):
        if sink.event_time is not None:
            raise PipelineError(f"Table {sink.name}: event_time= is for sources.")
        if isinstance(source, Table) and source.name == sink.name:
            raise PipelineError(f"{pipeline.name} would read what it writes to {sink.name}.")
    if isinstance(source, Table) and (source.upserts or source.partition_by):
        raise PipelineError(
            f"Table {source.name}: mode=, key= and partition_by= are for sinks; a table that is "
            "changed in place cannot be read as a stream."
        )


def _both_or_none(said: str, event_time: str | None, late: str | None) -> None:
    if (event_time is None) != (late is None):
        raise PipelineError(f"{said}: event_time= and late= go together.")
