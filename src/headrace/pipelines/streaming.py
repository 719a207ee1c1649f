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
from typing import TYPE_CHECKING, Any, Protocol

from headrace.pipelines import failing_records, reading, record_place, shape, tables
from headrace.pipelines.backfill import begun_at
from headrace.pipelines.declaration import Pipeline, Table, Topic
from headrace.pipelines.expectation import DEAD_LETTER, STOP
from headrace.pipelines.explaining import explained
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.folder import Folder, table_place
from headrace.pipelines.latest import ByColumns, Latest
from headrace.pipelines.sinks import Writer, output_mode
from headrace.pipelines.topic_ids import TopicIds
from headrace.pipelines.writing import Once, Say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

# Options that say by time where a stream begins.
WHEN = ("startingTimestamp", "startingOffsetsByTimestampStrategy")
BEGUN_WITHIN_S = 120.0
DEAD_LETTERS_EVERY_MS = 10_000

Batch = Callable[["DataFrame", int], None]


class Growth(Protocol):
    """How records become rows where the columns grow with the values of each batch."""

    @property
    def latest(self) -> Latest | None: ...

    def parsed(self, records: DataFrame, table: StructType | None, note: Say) -> DataFrame:
        """As `reading.parsed` gives them, by the columns of the table and of these records."""

    def rows(self, found: DataFrame) -> DataFrame:
        """What goes into the table."""


@dataclass(slots=True, kw_only=True)
class Streaming:
    """`options` are those of Spark's Kafka source."""

    pipeline: Pipeline
    spark: SparkSession
    folder: Folder
    writer: Writer
    options: dict[str, str]
    note: Say
    topic_ids: TopicIds
    growth: Growth | None = None
    every_ms: int = 0
    failed: PipelineError | None = None  # what a batch failed with, in our own words

    def start(self, *, once: bool) -> list[StreamingQuery]:
        """The first one is the one that matters to people."""
        if self.growth is not None:
            grown = self._records(self.options).writeStream.foreachBatch(self._guarded(self._grown))
            return [self._begin(grown, self.folder.checkpoint, once=once)]
        found, rows = self._rows()
        result = self._streamed(rows)
        if found is None:
            result, latest = record_place.ordered(
                self.pipeline, record_place.beside(rows, self.pipeline), self.result
            )
            into_sink = self._into_sink(result, latest)
            return [self._begin(into_sink, self.folder.checkpoint, once=once)]
        if self.takes_one_pass(result):
            both = found.writeStream.outputMode("append").foreachBatch(self._guarded(self._both))
            return [self._begin(both, self.folder.checkpoint, once=once)]
        newest = record_place.newest_of(self.pipeline)
        latest = None if newest is None else ByColumns((newest,))
        writer = self._into_sink(result, latest)
        into_sink = self._begin(writer, self.folder.checkpoint, once=once)
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

    @property
    def writes_itself(self) -> bool:
        """Whether Spark writes the sink without asking us batch by batch."""
        sink = self.pipeline.sink
        return isinstance(sink, Table) and sink.format == "parquet"

    def _streamed(self, rows: DataFrame) -> DataFrame:
        made = self.result(rows)
        shape.must_stream(self.pipeline, made, output_mode(self.pipeline.sink))
        return made

    def stateful_operator(self) -> str | None:
        return shape.stateful_operator(shape.plan_of(self._streamed(self._rows()[1])))

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
        records = self._records(self.options if options is None else options)
        if source.schema is None:
            return None, records
        found = reading.parsed(records, source)
        return found, reading.good(found, source)

    def _records(self, options: dict[str, str]) -> DataFrame:
        return self.spark.readStream.format("kafka").options(**options).load()

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

    def _into_sink(self, rows: DataFrame, latest: Latest | None) -> Any:
        sink, writer = self.pipeline.sink, rows.writeStream
        if isinstance(sink, Table) and sink.format == "parquet":
            self.writer.table(sink).must_fit_parquet(rows)
            if sink.partition_by:
                writer = writer.partitionBy(*sink.partition_by)
            return writer.format("parquet").outputMode("append").option("path", self.writer.place)

        def write(batch: DataFrame, number: int) -> None:
            self.writer.write(batch, (self.writer.stream, number), latest)

        return writer.outputMode(output_mode(sink)).foreachBatch(self._guarded(write))

    def _guarded(self, batch: Batch) -> Batch:
        """Spark wraps what a batch raises in much text; ours is kept."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        def guarded(rows: DataFrame, number: int) -> None:
            try:
                self.topic_ids.check()
                batch(rows, number)
                self.topic_ids.check()
            except PipelineError as failure:
                self.failed = failure
                raise
            except (PySparkException, Py4JJavaError) as failure:
                self.failed = PipelineError(explained(self.pipeline, str(failure)))
                raise

        return guarded

    def _both(self, batch: DataFrame, number: int) -> None:
        """Dead letters first: if the rest fails they are written again, never lost."""
        found = batch.persist()
        try:
            self.bury(found)
            self.write(found, (self.writer.stream, number))
        finally:
            found.unpersist()

    def write(self, found: DataFrame, once: Once) -> None:
        """The rows of records into the sink; records for which the function raises are dead letters
        too."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import AnalysisException, PySparkException

        try:
            self.writer.write(*self._for_sink(found, once))
        except AnalysisException:
            raise
        except (PySparkException, Py4JJavaError):
            good = found.where(f"{reading.WHY} IS NULL")
            failing = failing_records.find(good, self._compute)
            if not failing:  # it is the sink
                raise
            marked = failing_records.marked(found, failing, reading.WHY)
            self.bury(marked.where(f"{reading.WHY} LIKE 'the function raised %'"))
            self.writer.write(*self._for_sink(marked, once))

    def _for_sink(self, found: DataFrame, once: Once) -> tuple[DataFrame, Once, Latest | None]:
        source = self.pipeline.source
        assert isinstance(source, Topic)
        rows, latest = self.ordered(found, source)
        return rows, once, latest

    def _compute(self, found: DataFrame) -> None:
        rows, _, _ = self._for_sink(found, ("", 0))
        rows.write.format("noop").mode("overwrite").save()

    def ordered(self, found: DataFrame, source: Topic) -> tuple[DataFrame, Latest | None]:
        """The rows of a batch, and how to tell the newer of two of a key."""
        place = {name: record_place.SOURCE[name] for name in record_place.carried_by(self.pipeline)}
        return record_place.ordered(self.pipeline, reading.good(found, source, place), self.result)

    def _grown(self, batch: DataFrame, number: int) -> None:
        growth, sink = self.growth, self.pipeline.sink
        assert growth is not None and isinstance(sink, Table)
        table = self.writer.table(sink)
        records = batch.persist()
        try:
            found = growth.parsed(records, table.columns(records.sparkSession), self.note)
            rows = growth.rows(found)
            self.bury(found)
            self.writer.write(rows, (self.writer.stream, number), growth.latest)
        finally:
            records.unpersist()

    def bury(self, found: DataFrame) -> None:
        """The bad ones of a batch into the topic of dead letters; rules that are broken otherwise
        are told of."""
        letters = reading.bad(self._without_others(found), self.pipeline, self.folder.topic_ids())
        letters = letters.persist()
        try:
            count = letters.count()
            if count:
                letters.write.format("kafka").options(**self.writer.kafka_options()).save()
                noun = "record" if count == 1 else "records"
                self.note(f"{count:,} bad {noun} to {self.pipeline.dead_topic}")
        finally:
            letters.unpersist()

    def _without_others(self, found: DataFrame) -> DataFrame:
        """Without the rows that break a rule and are dropped or stop the stream."""
        from pyspark.sql import functions as F

        topic = self.pipeline.topic
        rules = topic.expect if topic is not None else ()
        others = {one.why: one for one in rules if one.then != DEAD_LETTER}
        if not others:
            return found
        broken = found.where(F.col(reading.WHY).isin(list(others)))
        counts = {row[0]: int(row[1]) for row in broken.groupBy(reading.WHY).count().collect()}
        for why, count in sorted(counts.items()):
            rule = others[why]
            said = f"{count:,} {'row' if count == 1 else 'rows'} where {rule.rule} does not hold"
            if rule.then == STOP:
                raise PipelineError(f"{self.pipeline.name} stops: a batch has {said}.")
            self.note(f"{said}: left out")
        return found.where(~F.coalesce(F.col(reading.WHY), F.lit("")).isin(list(others)))
