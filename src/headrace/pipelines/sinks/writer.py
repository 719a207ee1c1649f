"""One door into every sink: `Writer.write` takes the rows of a batch to where they belong."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipelines.declaration import Console, Jdbc, Pipeline, Sink, Table, Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows.record_rows import security
from headrace.pipelines.sinks import console_lines, jdbc, tables, to_topic
from headrace.pipelines.sinks.latest import Latest
from headrace.pipelines.sinks.table_writer import TableWriter
from headrace.pipelines.stream.folder import table_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream_id(pipeline: Pipeline, identity: str) -> str:
    """The name by which sinks remember a stream; a reset begins another one."""
    return f"headrace.{pipeline.name}.{identity}"


def output_mode(sink: Sink) -> str:
    """Rows that change are written each time they do where they replace or follow the old ones."""
    if isinstance(sink, Topic):
        return "append" if sink.final else "update"
    return "update" if isinstance(sink, Console) or sink.upserts else "append"


@dataclass(slots=True, kw_only=True)
class Writer:
    """Into the sink of one pipeline; `say` shows the rows of a console."""

    sink: Sink
    data: Path
    stream: str
    bootstrap: str
    source_options: dict[str, str]
    say: console_lines.Say
    note: console_lines.Say
    begin_anew: str
    tables: dict[str, TableWriter] = field(default_factory=dict)  # by place

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        stream: str,
        *,
        data: Path,
        bootstrap: str,
        say: console_lines.Say,
        note: console_lines.Say,
        secured: dict[str, str] | None = None,
    ) -> Writer:
        """`secured` is how the cluster wants to be spoken to; what the pipeline says wins."""
        options = pipeline.source.options if isinstance(pipeline.source, Topic) else {}
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
                f"write to another table, or begin anew with `headrace pipeline reset "
                f"{pipeline.name} --table`."
            ),
        )

    @property
    def location(self) -> str:
        """Where a table lies; for others their name."""
        if isinstance(self.sink, Console | Jdbc | Topic):
            return self.sink.name
        return table_location(self.data, self.sink.name)

    def kafka_options(self) -> dict[str, str]:
        """For Spark's Kafka sink: security is the same as for the source."""
        return {"kafka.bootstrap.servers": self.bootstrap, **security(self.source_options)}

    def write(
        self, rows: DataFrame, once: console_lines.Once | None, latest: Latest | None = None
    ) -> None:
        """`once` names the batch: the same one again changes nothing, but for topics and consoles,
        which get it again. `latest` tells the newer of two rows of a key."""
        sink = self.sink
        if isinstance(sink, Console):
            console_lines.show(rows, sink, self.say)
        elif isinstance(sink, Jdbc):
            jdbc.write(rows, sink, self.stream, once, latest, self.note)
        elif isinstance(sink, Topic):
            batch = once or (f"{self.stream}.{uuid.uuid4().hex}", 0)
            to_topic.write(rows, sink, self.kafka_options() | sink.options, batch)
        else:
            self.table(sink).write(rows, once, latest)

    def table(self, sink: Table) -> TableWriter:
        if self.location not in self.tables:
            self.tables[self.location] = TableWriter(
                sink, self.location, self.note, self.begin_anew
            )
        return self.tables[self.location]

    def elsewhere(self, name: str | None) -> Writer:
        """The same kind of sink under another name."""
        if name is None:
            return self
        if isinstance(self.sink, Console):
            raise PipelineError("--into names a table: this pipeline writes to the console.")
        return replace(self, sink=replace(self.sink, name=name))

    def refuse_repeats(self, spark: SparkSession) -> None:
        """Rows of history that are added to a table that is there would be there twice."""
        sink = self.sink
        if isinstance(sink, Console | Topic) or sink.upserts:
            return
        if isinstance(sink, Jdbc):
            there = jdbc.exists(spark, sink, jdbc.target_of(sink))
        else:
            there = "://" not in self.location and tables.is_there(self.location)
        if there:
            raise PipelineError(
                f"{self.location} is there already, and appending history would repeat its rows: "
                "name another table with --into."
            )
