"""One entry for every sink: `Writer.write` writes the rows of a batch to their sink.

`writer_into` chooses the writer of a sink once; the rest of this module does not ask for the kind
of a sink. The questions that need no Spark are answered by the declaration of the sink itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, assert_never

from headrace.pipelines.declaration import Console, Jdbc, Pipeline, Sink, Table, Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows.record_rows import security
from headrace.pipelines.sinks.console_lines import ConsoleWriter, Once, Say
from headrace.pipelines.sinks.jdbc import JdbcWriter
from headrace.pipelines.sinks.latest import Latest
from headrace.pipelines.sinks.table_memory import TableMemory
from headrace.pipelines.sinks.table_writer import TableWriter
from headrace.pipelines.sinks.to_topic import TopicWriter
from headrace.pipelines.stream.folder import table_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# In place of an identity: rows that `--history` wrote.
HISTORY = "history"


def stream_prefix(name: str) -> str:
    """What the names of all streams of a pipeline begin with."""
    return f"headrace.{name}."


def stream_id(pipeline: Pipeline, identity: str) -> str:
    """The name by which sinks remember a stream; a reset begins another one."""
    return f"{stream_prefix(pipeline.name)}{identity}"


class SinkWriter(Protocol):
    """The writer of one kind of sink."""

    @property
    def location(self) -> str:
        """The location of a table; the name of any other sink."""

    def named(self, name: str) -> Sink:
        """The same sink under another name."""

    def would_repeat(self, spark: SparkSession) -> bool:
        """Whether rows are there already, and rows of history would be added to them."""

    def memory(self, spark: SparkSession) -> TableMemory | None:
        """Returns what the sink remembers of its streams; None if it does not exist or keeps
        nothing."""

    def version(self, known: int) -> int:
        """A number that grows with each change of a table; -1 where there is none. `known` is one
        of before, from which it is found quicker."""

    def has_rows(self, spark: SparkSession) -> bool:
        """Whether there are rows that new ones would replace or join."""

    def write(self, rows: DataFrame, once: Once | None, latest: Latest | None = None) -> None:
        """See `Writer.write`."""


@dataclass(slots=True, kw_only=True)
class Writer:
    """Into the sink of one pipeline; `say` shows the rows of a console."""

    sink: Sink
    data: Path
    stream: str
    bootstrap: str
    source_options: dict[str, str]
    say: Say
    note: Say
    begin_anew: str
    into: SinkWriter = field(init=False)

    def __post_init__(self) -> None:
        self.into = writer_into(self.sink, self)

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        stream: str,
        *,
        data: Path,
        bootstrap: str,
        say: Say,
        note: Say,
        secured: dict[str, str] | None = None,
    ) -> Writer:
        """`secured` is how the cluster wants to be spoken to; what the pipeline says wins."""
        options = {} if pipeline.topic is None else pipeline.topic.options
        options = {**(secured or {}), **options}
        return cls(
            sink=pipeline.sink,
            data=data,
            stream=stream,
            bootstrap=bootstrap,
            source_options=options,
            say=say,
            note=note,
            begin_anew=(
                f"write to another table, or start over with `headrace pipeline reset "
                f"{pipeline.name} --table`."
            ),
        )

    @property
    def location(self) -> str:
        """The location of a table; the name of any other sink."""
        return self.into.location

    @property
    def table(self) -> TableWriter:
        """The writer of a table; the caller knows that the sink is one."""
        assert isinstance(self.into, TableWriter), f"{self.sink.name} is no table"
        return self.into

    def kafka_options(self) -> dict[str, str]:
        """For Spark's Kafka sink: security is the same as for the source."""
        return {"kafka.bootstrap.servers": self.bootstrap, **security(self.source_options)}

    def write(self, rows: DataFrame, once: Once | None, latest: Latest | None = None) -> None:
        """`once` names the batch: the same one again changes nothing, but for topics and consoles,
        which get it again. `latest` tells the newer of two rows of a key."""
        self.into.write(rows, once, latest)

    def elsewhere(self, name: str | None) -> Writer:
        """The same kind of sink under another name."""
        return self if name is None else replace(self, sink=self.into.named(name))

    def refuse_repeats(self, spark: SparkSession) -> None:
        """Refuses rows of history that would be added to an existing table, and so be there
        twice."""
        if self.into.would_repeat(spark):
            raise PipelineError(
                f"{self.location} is there already, and appending history would repeat its rows: "
                "name another table with --into."
            )


def writer_into(sink: Sink, at: Writer) -> SinkWriter:
    """The one place that knows which kind of sink has which writer."""
    match sink:
        case Table():
            place = table_location(at.data, sink.name)
            return TableWriter(sink, place, at.note, at.begin_anew, stream=at.stream)
        case Jdbc():
            return JdbcWriter(sink, at.stream, at.note)
        case Topic():
            return TopicWriter(sink, at.stream, at.kafka_options() | sink.options)
        case Console():
            return ConsoleWriter(sink, at.say)
    assert_never(sink)
