"""Late rows of a stream with state, into a table beside the sink (`Topic(..., late_rows=)`).

Spark drops what is late within its operators: groups, not rows, and of a row in two windows perhaps
one half. Here each row is judged before the function gets it, by Spark's own watermark: a row whose
time is at or before it is late. Such a row is left out of the stream and written to the table; no
other row can be late for an operator, as its window ends after its time. So each row is either in
the function's rows or in the table, never in both or in neither.

Spark drops in a batch what is behind the watermark of the batch before, which its checkpoint keeps:
a batch that is repeated decides as it did before. Late rows are counted in the pass of the batch;
only a batch that has some is read again. Delta takes each batch once (`table_writer`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipelines.declaration import Pipeline, Table, Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows import record_place, record_rows
from headrace.pipelines.rows.batch_value import BatchValue
from headrace.pipelines.sinks.console_lines import Say
from headrace.pipelines.sinks.table_writer import TableWriter
from headrace.pipelines.sinks.writer import Writer, stream_prefix
from headrace.pipelines.spark import shape
from headrace.pipelines.stream.folder import Folder, table_location

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# The watermark that a late row was behind.
WATERMARK = "_record_watermark"
BESIDE = {**record_place.SOURCE, "_record_key": "key", "_record_time": "timestamp"}


def refuse(pipeline: Pipeline, made: shape.Node, *, counts: bool) -> None:
    """Refuses declarations that cannot have `late_rows=`. `counts`: a batch takes each of its
    records."""
    said = f"{pipeline.name}: late_rows="
    if shape.stateful_operator(made) is None:
        raise PipelineError(
            f"{said} is for a function that keeps state: without state no row is late."
        )
    if not counts:
        raise PipelineError(
            f"{said} needs a function that takes every record: no limit, no join, no Python over "
            "whole partitions."
        )
    if shape.count_of(made, shape.WATERMARK) > 1:
        raise PipelineError(
            f"{said} needs one watermark, that of event_time=: leave withWatermark out of the "
            "function."
        )


def watermark_before(checkpoint: Path, number: int) -> int:
    """Returns the limit below which Spark takes rows as late in a batch: the watermark of the batch
    before, in milliseconds; 0 if none is late."""
    if number <= 0:
        return 0
    lines = (checkpoint / "offsets" / str(number - 1)).read_text("utf-8").splitlines()
    return int(json.loads(lines[1])["batchWatermarkMs"])


@dataclass(slots=True, kw_only=True)
class LateRows:
    spark: SparkSession
    folder: Folder
    source: Topic
    into: TableWriter
    note: Say
    watermark: BatchValue = field(init=False)

    @classmethod
    def of(
        cls, pipeline: Pipeline, spark: SparkSession, folder: Folder, writer: Writer, note: Say
    ) -> LateRows:
        source = pipeline.topic
        assert source is not None and source.late_rows is not None
        location = table_location(folder.data, source.late_rows)
        if location == writer.location:
            raise PipelineError(f"{pipeline.name}: late_rows= is the table of its sink.")
        table, stream = Table(source.late_rows), f"{writer.stream}.late"
        into = TableWriter(table, location, note, writer.begin_anew, stream=stream)
        return cls(spark=spark, folder=folder, source=source, into=into, note=note)

    def __post_init__(self) -> None:
        next_batch = self.folder.last_committed() + 1
        self.watermark = BatchValue(
            self.spark, watermark_before(self.folder.checkpoint, next_batch)
        )

    def begin(self, found: DataFrame) -> None:
        """Creates the table, or refuses one that is not the one that the checkpoint wrote."""
        memory = self.into.memory(self.spark)
        kept = self.folder.kept_with_identity("late_table")
        name, at = self.folder.name, self.into.location
        if kept is not None and (memory is None or memory.id != kept["id"]):
            what = "is gone" if memory is None else "was replaced or created again"
            raise PipelineError(
                f"{at} {what}, and the checkpoint of {name} wrote late rows to it: put it back "
                f"from a copy, or start over with `headrace pipeline reset {name} --table`."
            )
        if memory is not None:
            own = memory.streams.get(self.into.stream, -1)
            earlier = any(
                one.startswith(stream_prefix(name)) and one.endswith(".late")
                for one in memory.streams
                if one != self.into.stream
            )
            if own > self.folder.last_planned() or (
                earlier and kept is None and not self.folder.kept_with_identity("keeps_rows")
            ):
                raise PipelineError(
                    f"{at} has late rows of an earlier run of {name}, which may be added again: "
                    f"remove {at}, or name another table with late_rows=."
                )
        else:
            self.into.fit(self._rows(found, 0))
            memory = self.into.memory(self.spark)
            assert memory is not None
        self.folder.keep_with_identity(late_table={"id": memory.id, "at": at})

    def is_late(self, limit_ms: Column | None = None) -> Column:
        """Returns whether a record, as `record_rows.parsed` returns it, is late; for use within the
        stream."""
        from pyspark.sql import functions as F

        limit = self.watermark.column() if limit_ms is None else limit_ms
        assert self.source.event_time is not None
        time = F.col(record_rows.PARSED)[self.source.event_time].cast("timestamp")
        return (limit > 0) & (time <= F.timestamp_millis(limit))

    def write(self, records: DataFrame, number: int) -> None:
        """Writes the late rows of a batch; `records` are all of its records, parsed."""
        from pyspark.sql import functions as F

        limit = watermark_before(self.folder.checkpoint, number)
        good = F.col(record_rows.WHY).isNull()
        late = records.where(good & self.is_late(F.lit(limit)))
        self.into.write(self._rows(late, limit), (self.into.stream, number))

    def batch_done(self, number: int) -> None:
        """Called before the next batch is planned."""
        self.watermark.set(watermark_before(self.folder.checkpoint, number + 1))

    def _rows(self, found: DataFrame, limit: int) -> DataFrame:
        from pyspark.sql import functions as F

        rows = record_rows.good(found, self.source, BESIDE, watermark=False)
        return rows.withColumn(WATERMARK, F.timestamp_millis(F.lit(limit)))
