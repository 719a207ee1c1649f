"""The queries of one stream: rows into the sink, bad records into the topic of dead letters.

Where each row goes its own way, both are done in one pass over a batch, which is read and parsed
once and kept while it is used. A function that keeps state must see the stream itself, not one
batch, so there (and for Parquet, whose sink is Spark's own) the dead letters are a query of their
own over the same topic, with its own checkpoint, which looks only every ten seconds, so that the
rows, for which somebody waits, have the processor. Dead letters are written at least once;
`headrace-message-id` names the record, so that repeats can be told.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipelines import reading, shape, tables
from headrace.pipelines.backfill import begun_at
from headrace.pipelines.declaration import Pipeline, Table, Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.folder import Folder, table_place
from headrace.pipelines.sinks import Writer, output_mode
from headrace.pipelines.writing import Say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# Options that say by time where a stream begins.
WHEN = ("startingTimestamp", "startingOffsetsByTimestampStrategy")
BEGUN_WITHIN_S = 120.0
DEAD_LETTERS_EVERY_MS = 10_000

Batch = Callable[["DataFrame", int], None]


@dataclass(slots=True, kw_only=True)
class Streaming:
    """`options` are those of Spark's Kafka source; `dead` counts the bad records."""

    pipeline: Pipeline
    spark: SparkSession
    folder: Folder
    writer: Writer
    options: dict[str, str]
    note: Say
    every_ms: int = 0
    dead: int = 0
    failed: PipelineError | None = None  # what a batch failed with, in our own words

    def start(self, *, once: bool) -> list[StreamingQuery]:
        """The first one is the one that matters to people."""
        found, rows = self._rows()
        result = self.result(rows)
        if found is None:
            return [self._begin(self._into_sink(result), self.folder.checkpoint, once=once)]
        if self.takes_one_pass(result):
            both = found.writeStream.outputMode("append").foreachBatch(self._guarded(self._both))
            return [self._begin(both, self.folder.checkpoint, once=once)]
        into_sink = self._begin(self._into_sink(result), self.folder.checkpoint, once=once)
        dead, _ = self._rows(self._same_start(into_sink))
        assert dead is not None
        letters = dead.writeStream.foreachBatch(self._guarded(lambda batch, _: self.bury(batch)))
        every_ms = max(self.every_ms, DEAD_LETTERS_EVERY_MS)
        burying = self._begin(letters, self.folder.dead_checkpoint, once=once, every_ms=every_ms)
        return [into_sink, burying]

    def _same_start(self, query: StreamingQuery) -> dict[str, str]:
        """Each of two queries would find an end of the topic of its own, and a bad record between
        them would be neither a row nor a dead letter: the second begins where the first did."""
        known = self.folder.dead_checkpoint.exists()
        if known or self.options.get("startingOffsets") == "earliest":
            return self.options
        deadline = time.monotonic() + BEGUN_WITHIN_S
        while (began := begun_at(self.folder.checkpoint)) is None and query.isActive:
            if time.monotonic() > deadline:
                raise PipelineError(
                    f"{self.pipeline.source.name} did not say within {BEGUN_WITHIN_S:g} seconds "
                    "where it ends."
                )
            time.sleep(0.05)
        began = began or begun_at(self.folder.checkpoint)
        if began is None:  # it has failed, and that will be told
            return self.options
        kept = {name: value for name, value in self.options.items() if name not in WHEN}
        return {**kept, "startingOffsets": json.dumps(began)}

    def result(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import DataFrame

        made = self.pipeline(rows)
        if not isinstance(made, DataFrame):
            raise PipelineError(
                f"{self.pipeline.name} returned {type(made).__name__}, not a DataFrame."
            )
        return made

    def stateful_operator(self) -> str | None:
        return shape.stateful_operator(shape.plan_of(self.result(self._rows()[1])))

    def takes_one_pass(self, result: DataFrame) -> bool:
        """A stream whose dead letters have a checkpoint goes on with it."""
        sink = self.pipeline.sink
        if isinstance(sink, Table) and sink.format == "parquet":
            return False
        if self.folder.dead_checkpoint.exists():
            return False
        return shape.stateful_operator(shape.plan_of(result)) is None

    def _rows(self, options: dict[str, str] | None = None) -> tuple[DataFrame | None, DataFrame]:
        """Records with what they were parsed to, if they are, and the rows for the function."""
        source = self.pipeline.source
        if isinstance(source, Table):
            place = table_place(self.folder.data, source.name)
            return None, tables.streamed(self.spark, source, place)
        asked = self.options if options is None else options
        records = self.spark.readStream.format("kafka").options(**asked).load()
        if source.schema is None:
            return None, records
        found = reading.parsed(records, source)
        return found, reading.good(found, source)

    def _begin(
        self, writer: Any, place: Path, *, once: bool, every_ms: int | None = None
    ) -> StreamingQuery:
        every_ms = self.every_ms if every_ms is None else every_ms
        trigger: dict[str, Any] = (
            {"availableNow": True} if once else {"processingTime": f"{every_ms} milliseconds"}
        )
        query: StreamingQuery = (
            writer.option("checkpointLocation", str(place)).trigger(**trigger).start()
        )
        return query

    def _into_sink(self, rows: DataFrame) -> Any:
        sink, writer = self.pipeline.sink, rows.writeStream
        if isinstance(sink, Table) and sink.format == "parquet":
            if sink.partition_by:
                writer = writer.partitionBy(*sink.partition_by)
            return writer.format("parquet").outputMode("append").option("path", self.writer.place)

        def write(batch: DataFrame, number: int) -> None:
            self.writer.write(batch, (self.writer.stream, number))

        return writer.outputMode(output_mode(sink)).foreachBatch(self._guarded(write))

    def _guarded(self, batch: Batch) -> Batch:
        """Spark wraps what a batch raises in much text; ours is kept."""

        def guarded(rows: DataFrame, number: int) -> None:
            try:
                batch(rows, number)
            except PipelineError as failure:
                self.failed = failure
                raise

        return guarded

    def _both(self, batch: DataFrame, number: int) -> None:
        """Dead letters first: if the rest fails they are written again, never lost."""
        source = self.pipeline.source
        assert isinstance(source, Topic)
        found = batch.persist()
        try:
            self.bury(found)
            rows = self.result(reading.good(found, source))
            self.writer.write(rows, (self.writer.stream, number))
        finally:
            found.unpersist()

    def bury(self, found: DataFrame) -> None:
        """The bad ones of a batch into the topic of dead letters."""
        letters = reading.bad(found, self.pipeline, self.folder.topic_ids()).persist()
        try:
            count = letters.count()
            if count:
                letters.write.format("kafka").options(**self.writer.kafka_options()).save()
                self.dead += count
                noun = "record" if count == 1 else "records"
                self.note(f"{count:,} bad {noun} to {self.pipeline.dead_topic}")
        finally:
            letters.unpersist()
