"""The queries of one stream: rows into the sink, bad records into the topic of dead letters.

A batch is read and parsed once, and not kept. Spark counts the bad records on the way, and only a
batch that has some is read again for its dead letters, before it is committed (`counted`). If each
row goes its own way, the function is called with each batch; a function that keeps state must see
the stream itself. If such a function need not take every record, the count could be short: then the
dead letters are a query of their own over the same topic, with its own checkpoint, which looks only
every ten seconds. Dead letters are written at least once; `headrace-message-id` names the record,
so that repeats can be recognized.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace.pipelines.compaction import Compaction
from headrace.pipelines.declaration import Console, Pipeline, Table, Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows import ahead, failing_records, record_place, record_rows
from headrace.pipelines.sinks import tables, topic_of_offsets
from headrace.pipelines.sinks.console_lines import Once, Say
from headrace.pipelines.sinks.deleted_keys import DeletedKeys
from headrace.pipelines.sinks.latest import ByColumns, ByOffset, Latest
from headrace.pipelines.sinks.table_writer import DELETED
from headrace.pipelines.sinks.to_topic import TopicWriter
from headrace.pipelines.sinks.writer import Writer
from headrace.pipelines.spark import shape
from headrace.pipelines.spark.plan_reader import marked
from headrace.pipelines.spark.progress import BAD_RECORDS
from headrace.pipelines.spark.spark_errors import explained
from headrace.pipelines.stream import late_rows, real_time
from headrace.pipelines.stream.backfill import begun_at
from headrace.pipelines.stream.counted import CountedBadRecords
from headrace.pipelines.stream.dead_letters import DeadLetters
from headrace.pipelines.stream.folder import Folder, table_location
from headrace.pipelines.stream.late_rows import LateRows
from headrace.pipelines.stream.plan_identity import PlanIdentity
from headrace.pipelines.stream.sink_identity import SinkIdentity
from headrace.pipelines.stream.topic_ids import TopicIds
from headrace.pipelines.stream.whole_batch import WholeBatch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
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

    @property
    def values(self) -> str:
        """The format of the values, which a checkpoint keeps."""

    def parsed(self, records: DataFrame, table: StructType | None, note: Say) -> DataFrame:
        """As `record_rows.parsed` gives them, by the columns of the table and of these records."""

    def rows(self, found: DataFrame) -> DataFrame:
        """The rows for the table."""


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
    letters: DeadLetters
    growth: Growth | None = None
    every_ms: int = 0
    real_time: bool = False
    compaction: Compaction | None = None
    sink: SinkIdentity
    plan: PlanIdentity | None = None  # what it computes, kept when a batch has been written so
    failed: PipelineError | None = None  # what a batch failed with, in our own words

    def start(self, *, once: bool) -> list[StreamingQuery]:
        """Starts the queries. The first one is the query that writes the rows."""
        if self.growth is not None:
            if isinstance(latest := self.growth.latest, ByOffset):
                table = self.writer.table
                table.mark = self._mark_to_leave()
                table.deleted = DeletedKeys(
                    self.folder.deleted_keys, latest, table.table.keys, DELETED
                )
            grown = self._records(self.options).writeStream.foreachBatch(self._guarded(self._grown))
            return [self._begin(grown, self.folder.checkpoint, once=once)]
        if self.real_time:
            return self._start_real_time()
        found, rows = self._rows()
        result = self._streamed(rows)
        if found is None:
            result, latest = record_place.ordered(
                self.pipeline, record_place.beside(rows, self.pipeline), self.result
            )
            into_sink = self._into_sink(result, latest)
            return [self._begin(into_sink, self.folder.checkpoint, once=once)]
        if self.pipeline.topic is not None and self.pipeline.topic.late_rows is not None:
            counts = self.counts_bad_records(result)
            late_rows.refuse(self.pipeline, shape.plan_of(result), counts=counts)
        if self.takes_one_pass(result):
            return [self._start_one_pass(found, result, once=once)]
        newest = record_place.newest_of(self.pipeline)
        latest = None if newest is None else ByColumns((newest,))
        if self.counts_bad_records(result):
            return [self._start_counted(found, latest, once=once)]
        _, rows = self._rows(clock=None)
        writer = self._into_sink(self._streamed(rows), latest)
        into_sink = self._begin(writer, self.folder.checkpoint, once=once)
        return [into_sink, self._start_dead_letters(into_sink, once=once)]

    def _mark_to_leave(self) -> str | None:
        id_ = self.topic_ids.known.get(self.pipeline.source.name)
        if id_ is None:  # a broker that gives topics no ids
            return None
        mark = topic_of_offsets.mark_of(id_)
        return topic_of_offsets.to_leave(
            self.pipeline, self.writer.location, mark, self.sink.identifiers
        )

    def _start_dead_letters(self, into_sink: StreamingQuery, *, once: bool) -> StreamingQuery:
        dead, _ = self._rows(self._same_start(into_sink), clock=None)
        assert dead is not None
        burying = self._guarded(lambda batch, _: self.letters.write(batch), of_rows=False)
        letters = dead.writeStream.foreachBatch(burying)
        every_ms = max(self.every_ms, DEAD_LETTERS_EVERY_MS)
        return self._begin(letters, self.folder.dead_checkpoint, once=once, every_ms=every_ms)

    def _start_real_time(self) -> list[StreamingQuery]:
        """Starts a real-time query. Spark's own sink writes the rows; there is no batch in which
        dead letters could be written."""
        source, sink = self.pipeline.source, self.writer.into
        assert isinstance(source, Topic) and isinstance(sink, TopicWriter)
        found, records = self._rows(clock=None)
        if found is None:
            base = record_place.with_place(records)
        else:
            base = record_rows.good(found, source, record_place.SOURCE)
        made = self._streamed(base.drop(*real_time.PLACE))
        real_time.refuse_plan(self.pipeline, shape.plan_of(made))
        real_time.refuse_python(self.pipeline, made)
        rows = real_time.outgoing(
            base, made, self.pipeline, self.writer.stream, self.folder.topic_ids()
        )
        writer = real_time.triggered(sink.stream_of(rows), self.spark)
        query = writer.option("checkpointLocation", str(self.folder.checkpoint)).start()
        return [query] if found is None else [query, self._start_dead_letters(query, once=False)]

    def _start_one_pass(self, found: DataFrame, result: DataFrame, *, once: bool) -> StreamingQuery:
        """`result` is what the function makes of the stream; here it is called batch by batch."""
        source = self.pipeline.source
        assert isinstance(source, Topic)
        counted = self._counted(source)
        counted.catch_up()
        whole = self._whole_batch(result)
        shows_all = not isinstance(self.pipeline.sink, Console)
        sure = shows_all and shape.takes_every_record(shape.plan_of(result))
        rows = record_rows.good(found, source, self._beside, counted=BAD_RECORDS, watermark=False)

        def write(batch: DataFrame, number: int) -> None:
            self._stop_at_rules(counted, number)
            with whole.computed(batch, number):
                if not self._write_rows(batch, counted, number):
                    return
            counted.bury_those_of(number, sure=sure)

        writer = rows.writeStream.outputMode("append").foreachBatch(self._guarded(write))
        query = self._begin(writer, self.folder.checkpoint, once=once)
        counted.runs_in(query)
        return query

    def _write_rows(self, batch: DataFrame, counted: CountedBadRecords, number: int) -> bool:
        """False if the function failed for some records: then they and all other bad records of the
        batch are dead letters, and the other rows are written."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import AnalysisException, PySparkException

        once = (self.writer.stream, number)
        rows, latest = record_place.ordered(self.pipeline, batch, self.result)
        try:
            self.writer.write(rows, once, latest)
        except AnalysisException:
            raise
        except (PySparkException, Py4JJavaError):
            if (found := counted.parsed_of(number)) is None:
                raise
            if (marked := self._without_failing(found)) is None:  # it is the sink
                raise
            self.letters.write(marked)
            self.writer.write(*self._for_sink(marked, once))
            return False
        return True

    def counts_bad_records(self, result: DataFrame) -> bool:
        """Whether a batch is known to have looked at each of its records when it is written."""
        return not self.real_time and shape.takes_every_record(shape.plan_of(result))

    def _start_counted(
        self, found: DataFrame, latest: Latest | None, *, once: bool
    ) -> StreamingQuery:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import AnalysisException, PySparkException

        source = self.pipeline.source
        assert isinstance(source, Topic)
        counted, late = self._counted(source), self._late_rows(found)
        counted.catch_up()
        is_late = None if late is None else late.is_late()
        rows = record_rows.good(found, source, counted=BAD_RECORDS, late=is_late)
        result = self._streamed(rows)
        whole = self._whole_batch(result)

        def write(batch: DataFrame, number: int) -> None:
            self._stop_at_rules(counted, number)
            try:
                with whole.computed(batch, number):
                    self.writer.write(batch, (self.writer.stream, number), latest)
            except AnalysisException:
                raise
            except (PySparkException, Py4JJavaError) as failure:
                self._name_the_record(counted.parsed_of(number), source, failure)
                raise
            counted.bury_those_of(number)
            if late is not None:
                self._write_late(late, counted, number)

        mode = self.pipeline.sink.output_mode
        writer = result.writeStream.outputMode(mode).foreachBatch(self._guarded(write))
        query = self._begin(writer, self.folder.checkpoint, once=once)
        counted.runs_in(query)
        return query

    def _late_rows(self, found: DataFrame) -> LateRows | None:
        if self.pipeline.topic is None or self.pipeline.topic.late_rows is None:
            return None
        late = LateRows.of(self.pipeline, self.spark, self.folder, self.writer, self.note)
        late.begin(found)
        return late

    def _write_late(self, late: LateRows, counted: CountedBadRecords, number: int) -> None:
        if counted.may_have_late_rows() and (found := counted.parsed_of(number)) is not None:
            late.write(found, number)
        late.batch_done(number)

    def _whole_batch(self, result: DataFrame) -> WholeBatch:
        keeps_state = shape.stateful_operator(shape.plan_of(result)) is not None
        shows_part = keeps_state and isinstance(self.pipeline.sink, Console)
        return WholeBatch(self.spark, self.writer, self.folder.last_planned(), shows_part)

    def _counted(self, source: Topic) -> CountedBadRecords:
        return CountedBadRecords(self.spark, self.folder, source, self.options, self.letters.write)

    def _stop_at_rules(self, counted: CountedBadRecords | None, number: int) -> None:
        """Before a batch of a stream with state is written: its rows do not show any more which
        records broke a rule, so a pipeline with a rule that stops it reads the batch twice."""
        if not self.letters.rules_that_stop or counted is None:
            return
        if (found := counted.parsed_of(number)) is not None:
            self.letters.stop_at_rules(found)

    def _name_the_record(self, parsed: DataFrame | None, source: Topic, failure: Exception) -> None:
        """Raises with the place of a record for which the function fails, if there is one. A
        function with state cannot go on without it: its rows are made of many records."""

        def compute(found: DataFrame) -> None:
            rows = self.result(record_rows.good(found, source))
            rows.write.format("noop").mode("overwrite").save()

        if parsed is None:
            return
        good = parsed.where(f"{record_rows.WHY} IS NULL")
        if (found := failing_records.first(good, compute)) is None:
            return
        part, why = found
        place = f"{part.topic} {part.partition}/{part.first}"
        raise PipelineError(
            f"{self.pipeline.name} failed at the record {place}: "
            f"{why}. A function that keeps state must take every record: mend it, or leave such "
            "records out with expect=."
        ) from failure

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
        if began is None:  # it has failed, and the failure will be reported
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

    def _streamed(self, rows: DataFrame) -> DataFrame:
        made = self.result(rows)
        shape.must_stream(self.pipeline, made, self.pipeline.sink.output_mode)
        return made

    def keep_plan(self) -> None:
        """Keeps the plan. Not called before a batch is written: a function that Spark refuses must
        not replace the one before it."""
        if self.plan is not None:
            self.folder.keep_with_identity(plan=self.plan.as_dict())
            self.plan = None

    def function_result(self) -> tuple[DataFrame, DataFrame]:
        """The rows that the function is given, `marked`, and what it makes of them."""
        rows = marked(self._rows()[1])
        return rows, self._streamed(rows)

    def stateful_operator(self, made: DataFrame | None = None) -> str | None:
        """Returns the stateful operator in the function's plan, or None. `made` is the function's
        result, if it is known already."""
        return shape.stateful_operator(
            shape.plan_of(self.function_result()[1] if made is None else made)
        )

    def takes_one_pass(self, result: DataFrame) -> bool:
        if self.real_time:
            return False
        return shape.stateful_operator(shape.plan_of(result)) is None

    def _rows(
        self,
        options: dict[str, str] | None = None,
        clock: Callable[[], Column] | None = ahead.clock_of_batch,
    ) -> tuple[DataFrame | None, DataFrame]:
        """Records with what they were parsed to, if they are, and the rows for the function.
        `clock` is None where the record's own time alone limits the future (`ahead`)."""
        source = self.pipeline.source
        if isinstance(source, Table):
            location = table_location(self.folder.data, source.name)
            return None, tables.streamed(self.spark, source, location)
        records = self._records(self.options if options is None else options)
        if source.schema is None:
            return None, records
        found = record_rows.parsed(records, source, None if clock is None else clock())
        return found, record_rows.good(found, source)

    def _records(self, options: dict[str, str]) -> DataFrame:
        return self.spark.readStream.format("kafka").options(**options).load()

    def _begin(
        self, writer: Any, checkpoint: Path, *, once: bool, every_ms: int | None = None
    ) -> StreamingQuery:
        every_ms = self.every_ms if every_ms is None else every_ms
        trigger: dict[str, Any] = (
            {"availableNow": True} if once else {"processingTime": f"{every_ms} milliseconds"}
        )
        query: StreamingQuery = (
            writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()
        )
        return query

    def _into_sink(self, rows: DataFrame, latest: Latest | None) -> Any:
        source = self.pipeline.source
        counted = self._counted(source) if isinstance(source, Topic) else None
        whole = self._whole_batch(rows)

        def write(batch: DataFrame, number: int) -> None:
            self._stop_at_rules(counted, number)
            with whole.computed(batch, number):
                self.writer.write(batch, (self.writer.stream, number), latest)

        writer = rows.writeStream.outputMode(self.pipeline.sink.output_mode)
        return writer.foreachBatch(self._guarded(write))

    def _guarded(self, batch: Batch, *, of_rows: bool = True) -> Batch:
        """Spark wraps what a batch raises in much text; ours is kept. When rows are written it is
        the table's turn to be compacted."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        def guarded(rows: DataFrame, number: int) -> None:
            try:
                self.topic_ids.check()
                self.sink.check()
                batch(rows, number)
                self.topic_ids.check()
                self.sink.after_batch()
                self.keep_plan()
                if of_rows and self.compaction is not None:
                    self.compaction.after_batch(number)
            except PipelineError as failure:
                self.failed = failure
                raise
            except (PySparkException, Py4JJavaError) as failure:
                self.failed = PipelineError(explained(self.pipeline, str(failure)))
                raise

        return guarded

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
            if (marked := self._without_failing(found)) is None:  # it is the sink
                raise
            self.letters.write(marked.where(f"{record_rows.WHY} LIKE 'the function raised %'"))
            self.writer.write(*self._for_sink(marked, once))

    def _without_failing(self, found: DataFrame) -> DataFrame | None:
        """The records, with a reason for those that the function fails for; None if there are
        none."""
        good = found.where(f"{record_rows.WHY} IS NULL")
        failing = failing_records.find(good, self._compute)
        return failing_records.marked(found, failing, record_rows.WHY) if failing else None

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
        return record_place.ordered(
            self.pipeline, record_rows.good(found, source, self._beside), self.result
        )

    @property
    def _beside(self) -> dict[str, str]:
        """The columns of a record that are carried beside its row."""
        return {name: record_place.SOURCE[name] for name in record_place.carried_by(self.pipeline)}

    def _grown(self, batch: DataFrame, number: int) -> None:
        from pyspark import StorageLevel

        growth, table = self.growth, self.writer.table
        assert growth is not None
        records = batch.persist(StorageLevel.DISK_ONLY)  # looked at several times; not in the heap
        try:
            found = growth.parsed(records, table.columns(records.sparkSession), self.note)
            rows = growth.rows(found)
            self.letters.write(found)
            self.writer.write(rows, (self.writer.stream, number), growth.latest)
        finally:
            records.unpersist()
