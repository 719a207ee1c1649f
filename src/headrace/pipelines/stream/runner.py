"""Runs a pipeline: as a stream from its checkpoint on, or once over a span of history."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.java_names import as_java
from headrace.pipelines import compaction
from headrace.pipelines.declaration import Pipeline, Table, Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows import ahead, letter_size, record_place, record_rows
from headrace.pipelines.sinks import console_lines, tables
from headrace.pipelines.sinks.latest import Latest
from headrace.pipelines.sinks.writer import HISTORY, Writer, stream_id
from headrace.pipelines.spark import bar, session
from headrace.pipelines.spark import progress as progress_of
from headrace.pipelines.spark.spark_errors import explained
from headrace.pipelines.stream import backfill as backfills
from headrace.pipelines.stream import batch_bytes, real_time, topic_setup
from headrace.pipelines.stream.continuation import Continuation
from headrace.pipelines.stream.dead_letters import DeadLetters
from headrace.pipelines.stream.folder import Folder, TableLock, table_held, table_location
from headrace.pipelines.stream.queries import Growth, Streaming
from headrace.pipelines.stream.sink_identity import SinkIdentity
from headrace.pipelines.stream.span import Span
from headrace.pipelines.stream.topic_ids import TopicIds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

LOOK_EVERY_S = 0.3
LIMIT = "maxOffsetsPerTrigger"


@dataclass(slots=True, kw_only=True)
class Runner:
    """`say` gets a batch's rows on a console sink, `note` what happens, `draw` what is under way
    while there is nothing to tell yet."""

    pipeline: Pipeline
    connection: ClientSettings
    data: Path
    say: console_lines.Say
    note: console_lines.Say
    draw: bar.Draw | None = None
    master: str = "local[*]"
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    real_time: bool = False  # rows leave one by one
    every_ms: int = 0  # a stream's batch begins so long after the one before began
    compact_every: int | None = None  # batches; 0 is never, None is as the table says
    growth: Growth | None = None  # for lake tables
    accept_change: bool = False  # of the function, where Spark can carry on
    py_files: tuple[Path, ...] = ()  # what the functions import, for workers elsewhere
    debug: bool = False  # Spark's errors on standard error too, with their stacks
    dead: int = 0  # records in the topic of dead letters since the checkpoint began
    letter_bytes: int = letter_size.DEFAULT_BYTES  # what the topic of dead letters takes
    stopping: bool = False
    topics: dict[str, list[int]] = field(default_factory=dict)  # those it reads, their partitions

    def __post_init__(self) -> None:
        """A zone among Spark's settings is the pipeline's: one for days and for their dates."""
        if (zone := self.spark_settings.get(session.ZONE)) is not None:
            self.pipeline = self.pipeline.in_zone(zone)

    @property
    def log(self) -> Path:
        """Spark's errors, with their stacks."""
        return self.data.absolute() / "logs" / f"{self.pipeline.name}.log"

    # ---- as a stream

    def stream(self, *, once: bool = False, backfill: bool = False) -> None:
        """Until it is stopped; with `once` until everything that is there now is done."""
        session.must_be_installed()
        from py4j.protocol import Py4JJavaError, Py4JNetworkError
        from pyspark.errors import PySparkException

        if self.real_time:
            real_time.refuse(self.pipeline)
        folder = Folder(self.data, self.pipeline.name)
        with folder.held(), self._table_held(None) as lock:
            identity = folder.identity(self.pipeline)
            real_time.hold_mode(folder, real_time=self.real_time)
            continuation = Continuation(
                pipeline=self.pipeline,
                folder=folder,
                connection=self.connection,
                note=self.note,
                accept_change=self.accept_change,
            )
            continuation.check_topic()
            self._prepare_topics()
            continuation.keep_topic()
            ids = TopicIds(folder, self.connection, self.pipeline.topic)
            ids.begin()
            self._count_dead(folder)
            with self._stopped_by_signals():
                spark = self._spark_for(folder)
                try:
                    streaming = self._streaming(spark, folder, identity, ids, lock)
                    if self.growth is not None:
                        continuation.check_values(self.growth.values)
                    else:
                        topics = list(self.topics)
                        continuation.check_function(streaming, topics, from_earliest=backfill)
                    if backfill:
                        self._backfill(streaming)
                    self._go_on_after_backfill(streaming)
                    if not self.stopping:
                        self._run(streaming, once=once)
                except (PySparkException, Py4JJavaError) as failure:
                    raise PipelineError(explained(self.pipeline, str(failure))) from failure
                except (Py4JNetworkError, ConnectionError) as gone:
                    raise self._spark_ended() from gone

    def _streaming(
        self,
        spark: SparkSession,
        folder: Folder,
        identity: str,
        ids: TopicIds,
        lock: TableLock | None,
    ) -> Streaming:
        writer = self._writer(stream_id(self.pipeline, identity))
        sink = SinkIdentity(pipeline=self.pipeline, folder=folder, writer=writer, spark=spark)
        sink.begin()
        options = self._source_options()
        if self.pipeline.topic is not None and not self.real_time:
            options = {**self._most_records(), **options}
        return Streaming(
            pipeline=self._with_schema(spark, folder, options),
            spark=spark,
            folder=folder,
            writer=writer,
            options=options,
            note=self.note,
            topic_ids=ids,
            compaction=compaction.for_sink(
                self.pipeline,
                writer.location,
                spark=spark,
                folder=folder,
                lock=lock,
                note=self.note,
                every=self.compact_every,
            ),
            letters=DeadLetters(
                pipeline=self.pipeline,
                folder=folder,
                writer=writer,
                note=self.note,
                largest_bytes=self.letter_bytes,
            ),
            growth=self.growth,
            every_ms=self.every_ms,
            real_time=self.real_time,
            sink=sink,
        )

    def _most_records(self) -> dict[str, str]:
        """The limit of a batch, unless the pipeline sets one. None where there is a watermark: a
        backlog in several batches may make rows late that are in time in one."""
        topic = self.pipeline.topic
        assert topic is not None
        if topic.per_batch is not None or LIMIT in topic.options or topic.late is not None:
            return {}
        return {LIMIT: str(batch_bytes.records_per_batch(self.connection, self.topics))}

    def _run(self, streaming: Streaming, *, once: bool) -> None:
        queries = streaming.start(once=once)
        try:
            with ExitStack() as first:
                first.enter_context(
                    bar.shown(streaming.spark, self.draw, "waiting for the first batch")
                )
                told = self._watch(queries, streaming, first.close)
            streaming.keep_plan()
            if once and told < 0 and not self.stopping:
                source = self.pipeline.source.name
                self.note(f"nothing new in {source} since {self.pipeline.name} ran last")
        finally:
            self._end(queries)

    def _end(self, queries: list[StreamingQuery]) -> None:
        from py4j.protocol import Py4JError

        try:
            for query in queries:
                query.stop()
        except Py4JError as gone:  # a signal to the whole group of processes ends Java first
            raise self._spark_ended() from gone

    def _spark_ended(self) -> PipelineError:
        return PipelineError(
            f"Spark ended before {self.pipeline.name}: run it again, it goes on at its checkpoint."
        )

    def _watch(
        self, queries: list[StreamingQuery], streaming: Streaming, begun: Callable[[], None]
    ) -> int:
        """Reports each batch until the stream ends, fails or is asked to stop. Returns the number
        of the last batch, or -1. Calls `begun` before it reports the first one."""
        from pyspark.errors import StreamingQueryException

        told, reports = -1, progress_of.Reports()
        try:
            while any(query.isActive for query in queries) and not self.stopping:
                for query in queries:
                    if query.isActive or query.exception() is not None:
                        query.awaitTermination(LOOK_EVERY_S)  # raises what it failed with
                if done := reports.new(queries[0]):
                    begun()  # more than once does nothing
                    told = self._tell(done, streaming, told)
            for query in queries:
                if (failure := query.exception()) is not None:
                    raise failure
        except StreamingQueryException as failure:
            if streaming.failed is not None:
                raise streaming.failed from failure
            raise PipelineError(explained(self.pipeline, str(failure))) from failure
        finally:
            begun()
            told = self._tell(reports.new(queries[0]), streaming, told)
            self._keep_dead(streaming.folder)
        return told

    def _tell(self, reports: list[dict[str, Any]], streaming: Streaming, told: int) -> int:
        for report in reports:
            done = progress_of.read(report)
            if done.batch > told and done.rows:
                told = done.batch
                done.behind = self._behind(report, done.behind)
                self.note(done.line())
                self._keep(streaming, done)
                if streaming.real_time:
                    streaming.topic_ids.check()
                    streaming.sink.after_batch()
        return told

    def _behind(self, report: dict[str, Any], said: int) -> int:
        """From the broker's own ends: Spark's are those of when the batch was planned, which may
        have been in a life before this one."""
        if self.pipeline.topic is None:
            return said
        try:
            return progress_of.behind(
                report, backfills.committed_ends(self.connection, self.topics)
            )
        # A missing topic is reported by the run itself.
        except (PipelineError, ClientError, KeyError):
            return said

    # ---- dead letters

    def _count_dead(self, folder: Folder) -> None:
        """Counts dead letters by the offsets of their topic: a run's own count is lost when it is
        killed."""
        if not self._has_dead_letters:
            return
        try:
            ends = backfills.committed_ends(self.connection, [self.pipeline.dead_topic])
        except (PipelineError, ClientError, KeyError):
            return
        written = sum(end for partitions in ends.values() for end in partitions.values())
        before = folder.dead_letters_before()
        # At first, or that topic was deleted and created again.
        if before is None or before > written:
            known = int((folder.progress() or {}).get("dead", 0)) if before is None else 0
            before = max(0, written - known)
            folder.keep_dead_letters_before(before)
        self.dead = written - before

    def _keep_dead(self, folder: Folder) -> None:
        self._count_dead(folder)
        if (last := folder.progress()) is not None and last.get("dead") != self.dead:
            folder.keep_progress({**last, "dead": self.dead})

    @property
    def _has_dead_letters(self) -> bool:
        return self.pipeline.has_bad_records or self.growth is not None

    def _keep(self, streaming: Streaming, done: progress_of.PipelineProgress) -> None:
        """The last batch, and what there was in all since the checkpoint began."""
        before = streaming.folder.progress() or {}
        self._count_dead(streaming.folder)
        totals = {
            "dead": self.dead,
            "rows_total": int(before.get("rows_total", 0)) + done.rows,
            "late_total": int(before.get("late_total", 0)) + done.dropped_late,
        }
        streaming.folder.keep_progress({**done.as_dict(), **totals})

    # ---- what was there before

    def _backfill(self, streaming: Streaming) -> None:
        plan = backfills.prepared(streaming, self.connection, list(self.topics), _wall_ms())
        if plan["done"]:
            self.note(f"{self.pipeline.name} has been backfilled; it goes on as a stream")
            return
        if plan["way"] == backfills.BATCH:
            self.note("backfill: everything up to where the stream begins")
            with bar.shown(streaming.spark, self.draw, "backfill"):
                ends = backfills.completed(plan["ends"], self.topics, 0)
                backfills.run_batch(streaming, ends, plan["begun_ms"])
        else:
            self.note("backfill: everything in one batch, its state goes on with the stream")
            unlimited = {
                n: v for n, v in streaming.options.items() if n not in record_rows.STARTING
            }
            unlimited["startingOffsets"] = "earliest"
            self._run(replace(streaming, options=unlimited), once=True)
            if self.stopping:
                return
        streaming.folder.keep_backfill({**plan, "done": True})

    def _go_on_after_backfill(self, streaming: Streaming) -> None:
        """The stream begins where a backfill ended."""
        plan = streaming.folder.backfill()
        if plan is None or plan["way"] != backfills.BATCH:
            return
        if not plan["done"]:
            raise PipelineError(
                f"The backfill of {self.pipeline.name} has not ended: run it with --backfill."
            )
        for name in ("startingTimestamp", "startingOffsetsByTimestampStrategy"):
            streaming.options.pop(name, None)
        streaming.options["startingOffsets"] = backfills.completed(
            plan["ends"], self.topics, backfills.EARLIEST
        )

    # ---- over history

    def history(self, span: Span, *, into: str | None = None) -> None:
        """Runs the function over the records of the source between two moments, as one batch."""
        session.must_be_installed()
        from py4j.protocol import Py4JJavaError, Py4JNetworkError
        from pyspark.errors import PySparkException

        self._prepare_topics()
        folder = Folder(self.data, self.pipeline.name)
        with folder.held() if into is None else nullcontext(), self._table_held(into):
            spark = self._session()
            writer = self._writer(stream_id(self.pipeline, HISTORY)).elsewhere(into)
            # A table that it makes tells the stream that would add the same rows.
            marks = self.pipeline.sink.knows_streams
            begun_ms = _wall_ms()
            once = (writer.stream, begun_ms) if marks else None
            try:
                writer.refuse_repeats(spark)
                with bar.shown(spark, self.draw, "history"):
                    rows, latest = self._past(spark, span, begun_ms)
                    writer.write(rows, once, latest)
            except (PySparkException, Py4JJavaError) as failure:
                raise PipelineError(explained(self.pipeline, str(failure))) from failure
            except (Py4JNetworkError, ConnectionError) as gone:
                raise PipelineError(
                    f"Spark ended before the history of {self.pipeline.name} was written."
                ) from gone
        self.note(f"written to {writer.location}")

    def _table_held(self, into: str | None) -> AbstractContextManager[TableLock | None]:
        """Holds the table's lock, so that no other process writes it meanwhile."""
        sink = self.pipeline.sink
        if not isinstance(sink, Table):
            return nullcontext()
        alone = sink.upserts or not sink.knows_streams
        return table_held(table_location(self.data, into or sink.name), alone=alone)

    def _made(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import DataFrame

        made = self.pipeline(rows)
        if not isinstance(made, DataFrame):
            raise PipelineError(
                f"{self.pipeline.name} returned {type(made).__name__}, not a DataFrame."
            )
        return made

    def _past(
        self, spark: SparkSession, span: Span, begun_ms: int
    ) -> tuple[DataFrame, Latest | None]:
        """Returns the rows, and how to tell the newer of two rows of a key."""
        source, pipeline = self.pipeline.source, self.pipeline
        if isinstance(source, Table):
            location = table_location(self.data, source.name)
            rows = tables.within(tables.whole(spark, source, location), source, span)
            return record_place.ordered(pipeline, rows, self._made)
        options = self._source_options()
        folder = Folder(self.data, pipeline.name)
        source = self._with_schema(spark, folder, options).source
        assert isinstance(source, Topic)
        for name in record_rows.STARTING:
            options.pop(name, None)
        records = spark.read.format("kafka").options(**options | span.options()).load()
        if source.schema is None:
            base = record_place.beside(records, pipeline)
            return record_place.ordered(pipeline, base, self._made)
        found = record_rows.parsed(records, source, ahead.clock_at(begun_ms))
        [(whole, bad)] = found.selectExpr("count(1)", f"count({record_rows.WHY})").collect()
        self.note(f"{whole:,} records, {bad:,} of them bad (left out; a stream parks them)")
        self.dead = bad
        columns = {name: record_place.SOURCE[name] for name in record_place.carried_by(pipeline)}
        base = record_rows.good(found, source, columns)
        return record_place.ordered(pipeline, base, self._made)

    # ---- both

    def _writer(self, stream: str) -> Writer:
        return Writer.of(
            self.pipeline,
            stream,
            data=self.data,
            bootstrap=self.connection.bootstrap,
            say=self.say,
            note=self.note,
            secured=self._secured(),
        )

    def _source_options(self) -> dict[str, str]:
        topic = self.pipeline.topic
        if topic is None:
            return {}
        return {**self._secured(), **record_rows.source_options(topic, self.connection.bootstrap)}

    def _secured(self) -> dict[str, str]:
        """The connection's certificates and login, as Spark's Kafka connector wants them."""
        return {f"kafka.{name}": value for name, value in as_java(self.connection.settings).items()}

    def _with_schema(
        self, spark: SparkSession, folder: Folder, options: dict[str, str]
    ) -> Pipeline:
        """A schema to be inferred is inferred once; from then on it is the same."""
        topic = self.pipeline.topic
        if topic is None or not topic.infers:
            return self.pipeline
        ddl = folder.schema()
        if ddl is None:
            ddl = record_rows.inferred(spark, topic, options)
            folder.pin_schema(ddl)
            self.note(f"inferred and pinned: {ddl}")
        return replace(self.pipeline, source=replace(topic, schema=ddl))

    def _spark_for(self, folder: Folder) -> SparkSession:
        """One Spark at a time for a checkpoint."""
        tasks = real_time.tasks(self.pipeline, self.topics) if self.real_time else 0
        self.master = real_time.master_for(self.master, tasks)
        spark = self._session()
        if self.real_time:
            real_time.refuse_small(self.pipeline, spark, tasks)
        process = session.process_of(spark)
        folder.wait_for_old_spark(process)
        folder.keep_spark(process)
        return spark

    def _session(self) -> SparkSession:
        with bar.waiting(self.draw, f"Spark starts on {self.master}"):
            spark = session.start(
                self.pipeline.name,
                master=self.master,
                given={**self.spark_settings, session.ZONE: self.pipeline.zone},
                note=self.note,
                log=self.log,
                debug=self.debug,
            )
        session.ship(spark, self.pipeline.function, self.py_files)
        return spark

    def _prepare_topics(self) -> None:
        found = topic_setup.prepare(
            self.connection, self.pipeline, dead_letters=self._has_dead_letters
        )
        self.topics, self.letter_bytes = found.sources, found.letter_bytes

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        """Ctrl-C and `headrace pipeline stop` end the stream; its checkpoint stays good."""

        def stop(number: int, frame: Any) -> None:
            self.stopping = True

        before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
