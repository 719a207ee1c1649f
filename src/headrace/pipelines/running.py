"""Runs a pipeline: as a stream from its checkpoint on, or once over a span of history.

Bad records are a query of its own over the same topic, with its own checkpoint: the function sees
only rows, and the dead letters do not depend on what it does with them. They are written at least
once; `headrace-message-id` names the record, so that repeats can be told.
Not done: handing a history run over to the stream without gap or overlap.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.client.connection import Connection
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.client.topics import Topics
from headrace.pipelines import progress as progress_of
from headrace.pipelines import reading, session, writing
from headrace.pipelines.declaration import Console, Pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.folder import Folder, table_place
from headrace.pipelines.span import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

LOOK_EVERY_S = 0.3


@dataclass(slots=True, kw_only=True)
class Runner:
    """`say` gets a batch's rows on a console sink, `note` what happens."""

    pipeline: Pipeline
    connection: Connection
    data: Path
    say: writing.Say
    note: writing.Say
    master: str = "local[*]"
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    dead: int = 0
    stopping: bool = False

    # ---- as a stream

    def stream(self, *, once: bool = False) -> None:
        """Until it is stopped; with `once` until everything that is there now is done."""
        folder = Folder(self.data, self.pipeline.name)
        with folder.held():
            identity = folder.identity(self.pipeline)
            self._prepare_topics()
            with self._stopped_by_signals():
                spark = self._spark()
                queries = self._start(spark, folder, identity, once=once)
                try:
                    self._watch(queries, folder)
                finally:
                    self._end(queries)

    def _end(self, queries: list[StreamingQuery]) -> None:
        from py4j.protocol import Py4JError

        try:
            for query in queries:
                query.stop()
        except Py4JError as gone:  # a signal to the whole group of processes ends Java first
            raise PipelineError(
                f"Spark ended before {self.pipeline.name}: run it again, it goes on at its "
                "checkpoint."
            ) from gone

    def _start(
        self, spark: SparkSession, folder: Folder, identity: str, *, once: bool
    ) -> list[StreamingQuery]:
        trigger: dict[str, Any] = (
            {"availableNow": True} if once else {"processingTime": "0 seconds"}
        )
        source = self.pipeline.source
        options = reading.source_options(source, self.connection.bootstrap)

        def records() -> DataFrame:
            return spark.readStream.format("kafka").options(**options).load()

        def begun(writer: Any, place: Path) -> StreamingQuery:
            query: StreamingQuery = (
                writer.option("checkpointLocation", str(place)).trigger(**trigger).start()
            )
            return query

        rows = records()
        if source.schema is not None:
            rows = reading.good(reading.parsed(rows, source), source)
        queries = [begun(self._sink(self.pipeline(rows), identity), folder.checkpoint)]
        if source.schema is not None:
            dead = reading.parsed(records(), source).writeStream.foreachBatch(self._bury)
            queries.append(begun(dead, folder.dead_checkpoint))
        return queries

    def _sink(self, rows: DataFrame, identity: str) -> Any:
        """How the stream writes; the name of the batch's function says what it does."""
        sink, writer = self.pipeline.sink, rows.writeStream
        if isinstance(sink, Console):

            def show(batch: DataFrame, number: int) -> None:
                writing.show(batch, sink, self.say)

            return writer.outputMode("update").foreachBatch(show)
        place = table_place(self.data, sink.name)
        if sink.format == "parquet":
            if sink.partition_by:
                writer = writer.partitionBy(*sink.partition_by)
            return writer.format("parquet").outputMode("append").option("path", place)
        app_id = f"headrace.{self.pipeline.name}.{identity}"

        def write(batch: DataFrame, number: int) -> None:
            if sink.mode == "upsert":
                writing.upsert(batch, sink, place)
            else:
                writing.append(batch, sink, place, (app_id, number))

        return writer.outputMode("update" if sink.mode == "upsert" else "append").foreachBatch(
            write
        )

    def _bury(self, batch: DataFrame, number: int) -> None:
        """The bad ones of a batch into the topic of dead letters."""
        letters = reading.bad(batch, self.pipeline).persist()
        try:
            count = letters.count()
            if count:
                letters.write.format("kafka").options(**self._sink_options()).save()
                self.dead += count
                self.note(f"{count:,} bad records to {self.pipeline.dead_topic}")
        finally:
            letters.unpersist()

    def _sink_options(self) -> dict[str, str]:
        """Security is the same as for the source; what only a consumer knows stays there."""
        options = {
            name: value
            for name, value in self.pipeline.source.options.items()
            if name.startswith(("kafka.security.", "kafka.sasl.", "kafka.ssl."))
        }
        return {"kafka.bootstrap.servers": self.connection.bootstrap, **options}

    def _watch(self, queries: list[StreamingQuery], folder: Folder) -> None:
        """Tell of each batch until the stream ends, fails or is told to stop."""
        from pyspark.errors import StreamingQueryException

        told = -1
        try:
            while any(query.isActive for query in queries) and not self.stopping:
                for query in queries:
                    if query.isActive or query.exception() is not None:
                        query.awaitTermination(LOOK_EVERY_S)  # raises what it failed with
                told = self._tell(queries[0], folder, told)
            for query in queries:
                if (failure := query.exception()) is not None:
                    raise failure
        except StreamingQueryException as failure:
            raise PipelineError(explained(self.pipeline, str(failure))) from failure
        finally:
            self._tell(queries[0], folder, told)

    def _tell(self, query: StreamingQuery, folder: Folder, told: int) -> int:
        for report in query.recentProgress:
            done = progress_of.read(_plain(report))
            if done.batch > told and done.rows:
                told = done.batch
                self.note(done.line())
                folder.keep_progress({**done.as_dict(), "dead": self.dead})
        return told

    # ---- over history

    def history(self, span: Span, *, into: str | None = None) -> None:
        """The function over what lies in the topic between two moments, as one batch."""
        from pyspark.errors import PySparkException

        source = self.pipeline.source
        self._prepare_topics()
        spark = self._spark()
        options = reading.source_options(source, self.connection.bootstrap)
        options.pop("maxOffsetsPerTrigger", None)
        try:
            records = spark.read.format("kafka").options(**options | span.options()).load()
            rows = records
            if source.schema is not None:
                found = reading.parsed(records, source)
                rows = reading.good(found, source)
                self._count(found)
            self._write_history(self.pipeline(rows), into)
        except PySparkException as failure:
            raise PipelineError(explained(self.pipeline, str(failure))) from failure

    def _count(self, found: DataFrame) -> None:
        [(whole, bad)] = found.selectExpr("count(1)", f"count({reading.WHY})").collect()
        self.note(f"{whole:,} records, {bad:,} of them bad (left out; a stream parks them)")
        self.dead = bad

    def _write_history(self, rows: DataFrame, into: str | None) -> None:
        sink = self.pipeline.sink
        if isinstance(sink, Console):
            writing.show(rows, sink, self.say)
            return
        place = table_place(self.data, into or sink.name)
        if sink.mode == "upsert":
            writing.upsert(rows, sink, place)
        elif "://" not in place and Path(place).exists():
            raise PipelineError(
                f"{place} is there already, and appending history would repeat its rows: name "
                "another table with --into."
            )
        else:
            writing.append(rows, sink, place, None)
        self.note(f"written to {place}")

    # ---- both

    def _spark(self) -> SparkSession:
        return session.start(self.pipeline.name, master=self.master, given=self.spark_settings)

    def _prepare_topics(self) -> None:
        """The source must be there; the topic of dead letters is made."""
        try:
            topics = Topics(self.connection)
            there = {topic.name for topic in topics.all()}
            if self.pipeline.source.name not in there:
                raise NoSuchTopic(f"There is no topic {self.pipeline.source.name}.")
            if self.pipeline.source.schema is not None and self.pipeline.dead_topic not in there:
                topics.create(self.pipeline.dead_topic)
        except ClientError as failure:
            raise PipelineError(str(failure)) from failure

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


def explained(pipeline: Pipeline, said: str) -> str:
    """Spark's message without its stack, and what to do about the ones people meet."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    first = " ".join(lines[:2])[:600] if lines else "Spark gave no reason"
    if "MULTIPLE_SOURCE_ROW_MATCHING" in said:
        first = (
            "a batch has two rows with the same key: name the column that says which is newer "
            "with Table(..., newest=)"
        )
    elif (
        "data loss" in said.lower() or "failOnDataLoss" in said or "PartitionOffsetChanged" in said
    ):
        first = (
            f"records that it had still to read are gone from {pipeline.source.name} (the topic "
            "was deleted, or retention was quicker); begin anew with `headrace pipeline reset "
            f"{pipeline.name}`, or go on without them with options={{'failOnDataLoss': 'false'}}"
        )
    return f"{pipeline.name} failed: {first}."


def _plain(report: Any) -> dict[str, Any]:
    """PySpark 4 gives objects where 3 gave dicts."""
    if isinstance(report, dict) and not hasattr(report, "json"):
        return report
    found: dict[str, Any] = json.loads(report.json)
    return found
