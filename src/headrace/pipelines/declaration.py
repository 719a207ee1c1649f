"""What a pipeline is: a source, a function from table to table, and a sink. Knows no Spark.

What contradicts itself is refused here, when the file is loaded, before Spark is started.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.schema import ddl_of

# What becomes a part of topic names, folder names and Delta's transaction ids.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-_]{0,79}", re.ASCII)
FORMATS = ("delta", "parquet")
MODES = ("append", "upsert")

# From a table of Spark to another: pyspark.sql.DataFrame, which is not loaded here.
Transform = Callable[[Any], Any]


@dataclass(slots=True, kw_only=True)
class Topic:
    """A topic as a source of rows.

    `schema` is a pydantic model or Spark's DDL (`"id LONG NOT NULL, name STRING"`): values are JSON
    and become columns. Without it rows are as the connector gives them (key, value, topic,
    partition, offset, timestamp), and none is bad. `late` is how long a row may come after newer
    ones and still count, by the column `event_time`. With `record` there is a column of that name
    with the record's key, topic, partition, offset and timestamp. `options` go to Spark's Kafka
    source as they are, such as `{"kafka.security.protocol": "SSL"}`.
    """

    name: str = field(kw_only=False)
    schema: type | str | None = None
    event_time: str | None = None
    late: str | None = None
    record: bool = False
    starting: str = "earliest"
    per_batch: int | None = None
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", self.name):
            raise PipelineError(f"{self.name!r} is no name of a topic.")
        if (self.event_time is None) != (self.late is None):
            raise PipelineError(f"Topic {self.name}: event_time= and late= go together.")
        if self.event_time is not None and self.schema is None:
            raise PipelineError(f"Topic {self.name}: event_time= needs a schema= with that column.")
        if self.record and self.schema is None:
            raise PipelineError(f"Topic {self.name}: without schema= all of the record is there.")
        if self.starting not in ("earliest", "latest"):
            raise PipelineError(f'Topic {self.name}: starting= is "earliest" or "latest".')
        if self.per_batch is not None and self.per_batch < 1:
            raise PipelineError(f"Topic {self.name}: per_batch= is 1 or more.")

    @property
    def ddl(self) -> str | None:
        return None if self.schema is None else ddl_of(self.schema)


@dataclass(slots=True, kw_only=True)
class Table:
    """A table as a sink: `name` below the folder of tables, or a path or address with a `/`.

    `upsert` keeps one row per `key` (Delta only). Of rows with the same key the one with the
    greatest `newest` stays; without it two of them in one batch are refused by Delta.
    """

    name: str = field(kw_only=False)
    mode: str = "append"
    key: str | tuple[str, ...] = ()
    newest: str | None = None
    format: str = "delta"
    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.key, str):
            self.key = (self.key,)
        if "/" not in self.name and not NAME.fullmatch(self.name):
            raise PipelineError(f"{self.name!r} is no name of a table: letters, digits, - and _.")
        if self.format not in FORMATS:
            raise PipelineError(f"Table {self.name}: format= is one of {', '.join(FORMATS)}.")
        if self.mode not in MODES:
            raise PipelineError(f"Table {self.name}: mode= is one of {', '.join(MODES)}.")
        if self.mode == "upsert" and self.format != "delta":
            raise PipelineError(f'Table {self.name}: mode="upsert" needs format="delta".')
        if (self.mode == "upsert") != bool(self.key):
            raise PipelineError(f'Table {self.name}: mode="upsert" and key= go together.')
        if self.newest is not None and self.mode != "upsert":
            raise PipelineError(f'Table {self.name}: newest= is for mode="upsert".')

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,) if isinstance(self.key, str) else self.key


@dataclass(slots=True, kw_only=True)
class Console:
    """Rows on standard output, the first `rows` of each batch."""

    rows: int = 20
    name: str = "console"


@dataclass(slots=True, kw_only=True)
class Pipeline:
    """A function that knows where its rows come from and go to; calling it calls the function."""

    name: str
    source: Topic
    sink: Table | Console
    function: Transform

    def __call__(self, rows: Any) -> Any:
        return self.function(rows)

    @property
    def dead_topic(self) -> str:
        return f"{self.source.name}.pipeline.{self.name}.dead"

    def describe(self) -> dict[str, str]:
        """What a checkpoint belongs to: another source or sink cannot go on with it."""
        sink = self.sink
        kind = f"{sink.format} {sink.mode}" if isinstance(sink, Table) else "console"
        return {"topic": self.source.name, "sink": sink.name, "kind": kind}


def pipeline(
    *, source: Topic, sink: Table | Console, name: str | None = None
) -> Callable[[Transform], Pipeline]:
    """Make a pipeline of a function; its name is the function's, with - for _, unless given."""

    def made(function: Transform) -> Pipeline:
        called = name or function.__name__.replace("_", "-")
        if not NAME.fullmatch(called):
            raise PipelineError(f"{called!r} is no name of a pipeline: letters, digits, - and _.")
        source.ddl  # noqa: B018 - a schema that cannot be had is refused now
        return Pipeline(name=called, source=source, sink=sink, function=function)

    return made
