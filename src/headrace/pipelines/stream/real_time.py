"""Real-time mode: rows leave for a topic one by one, as records arrive.

Spark's tasks run for whole batches of BATCH; each row is written while its batch still runs, and
the offsets of the batch are committed at its end. So a run that ends in the middle of a batch
writes the rows of that batch again: at least once. Each row carries an id made of the place of its
record (`<stream>/<topic>/<partition>/<offset>@<topic id>`), the same each time, by which a reader
leaves repeats out. So a pipeline runs here only if it makes at most one row of each record.

Not done: state, tables as sinks, functions in Python (Spark has none of them here in 4.1), one row
from two records, several rows from one. A record for which an expression raises ends the run.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import Pipeline, Table, Topic
from headrace.pipelines.expectation import STOP
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows import record_place
from headrace.pipelines.rows.record_rows import message_id, with_headers
from headrace.pipelines.sinks import to_topic
from headrace.pipelines.spark import session
from headrace.pipelines.spark.shape import Node, stateful_operator
from headrace.pipelines.stream.folder import Folder
from headrace.wire.contract.headers import MESSAGE_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# How long the tasks of a batch run: so much is written again after a kill. Spark takes no less
# (`spark.sql.streaming.realTimeMode.minBatchDuration`).
BATCH = "5 seconds"
PLACE = (record_place.TOPIC, record_place.PARTITION, record_place.OFFSET)
# Operators that make at most one row of each row, where they are.
ONE_OF_ONE = frozenset(
    {
        "Project",
        "Filter",
        "SubqueryAlias",
        "View",
        "EventTimeWatermark",
        "ResolvedHint",
        "StreamingRelation",
        "StreamingRelationV2",
        "StreamingDataSourceV2Relation",
    }
)


def refuse(pipeline: Pipeline) -> None:
    """Refuses what the declaration alone shows to be impossible; needs no Spark."""
    why = None
    if isinstance(pipeline.source, Table):
        why = "it reads a table, and Spark reads only topics in real time"
    elif not isinstance(pipeline.sink, Topic):
        kind = "prints batches" if pipeline.sink.kind == "console" else "writes a table"
        why = f"it {kind}, and in real time rows leave before their batch is complete"
    elif pipeline.source.pattern:
        why = (
            "it reads topics by a pattern, and a topic that is created later has no task and no id"
        )
    elif pipeline.source.late_rows is not None:
        why = "late_rows= is for functions that keep state"
    elif any(one.then == STOP for one in pipeline.source.expect):
        why = 'expect(then="stop") stops before a batch is written, and in real time it is written'
    if why is not None:
        raise refusal(pipeline, why)


def refuse_plan(pipeline: Pipeline, plan: Node) -> None:
    """Refuses what the plan of the pipeline's function shows to be impossible."""
    if (operator := stateful_operator(plan)) is not None:
        raise refusal(pipeline, f"it keeps state ({operator})")
    for node in _streaming(plan):
        if node.name not in ONE_OF_ONE:
            raise refusal(
                pipeline,
                f"{node.name} may make several rows of one record, or change their order, and the "
                "id of a row is made of the place of its record",
            )


def refuse_python(pipeline: Pipeline, made: DataFrame) -> None:
    """Spark 4.1 has no operator for Python functions here, and says so only when a query runs."""
    jvm: Any = made.sparkSession._jvm
    pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
    if made._jdf.queryExecution().analyzed().containsPattern(pattern):
        raise refusal(pipeline, "it calls a Python function, which Spark cannot do there")


def refusal(pipeline: Pipeline, why: str) -> PipelineError:
    return PipelineError(
        f"{pipeline.name} cannot run in real time: {why}. Run it without --real-time."
    )


def hold_mode(folder: Folder, *, real_time: bool) -> None:
    """A checkpoint stays with the way that it began in: rows that the other way writes again after
    a kill would have other ids, and their readers would take them for new ones."""
    mark = folder.state / "real-time"
    if not folder.has_begun():
        if real_time:
            mark.touch()
        else:
            mark.unlink(missing_ok=True)
    elif mark.exists() is not real_time:
        began, now = ("in real time", "without") if mark.exists() else ("in batches", "with")
        raise PipelineError(
            f"The checkpoint of {folder.name} began {began}, and {now} --real-time rows that are "
            "written again would have other ids: give the pipeline another name, or start over "
            f"with `headrace pipeline reset {folder.name}`."
        )


def tasks(pipeline: Pipeline, topics: Mapping[str, list[int]]) -> int:
    """How many tasks run at the same time: one for each partition, one for dead letters."""
    return sum(map(len, topics.values())) + pipeline.has_bad_records


def master_for(master: str, count: int) -> str:
    """A local master with at least so many threads, which wait most of the time."""
    cores = session.cores(master)
    return f"local[{count}]" if cores is not None and cores < count else master


def refuse_small(pipeline: Pipeline, spark: SparkSession, count: int) -> None:
    there = spark.sparkContext.defaultParallelism
    if there < count:
        raise refusal(
            pipeline,
            f"each partition has a task that always runs, and dead letters one, {count} in all, "
            f"and this Spark runs {there} at a time",
        )


def outgoing(
    base: DataFrame, made: DataFrame, pipeline: Pipeline, stream: str, ids: Mapping[str, str]
) -> DataFrame:
    """The rows that the function made of `base`, as records with ids. `base` has the columns of
    PLACE; the function has seen it without them."""
    from pyspark.sql import functions as F

    assert isinstance(pipeline.sink, Topic)
    placed = record_place.carried(base, made, PLACE)
    if placed is None:
        raise refusal(pipeline, "the record of a row cannot be told from its plan")
    records = to_topic.outgoing(placed, pipeline.sink, beside=PLACE)
    own = F.col("headers") if "headers" in records.columns else F.lit(None)
    record_id = F.concat(F.lit(f"{stream}/"), message_id(ids, PLACE))
    return records.withColumn("headers", with_headers(own, {MESSAGE_ID: record_id})).drop(*PLACE)


def triggered(writer: Any, spark: SparkSession) -> Any:
    """The writer of a stream with the trigger; PySpark has a word for it from 4.2 on."""
    if "realTime" in inspect.signature(writer.trigger).parameters:
        return writer.trigger(realTime=BATCH)
    jvm: Any = spark._jvm
    writer._jwrite = writer._jwrite.trigger(
        jvm.org.apache.spark.sql.streaming.Trigger.RealTime(BATCH)
    )
    return writer


def _streaming(node: Node) -> list[Node]:
    below = [one for child in node.children for one in _streaming(child)]
    return [node, *below] if node.streams else []
