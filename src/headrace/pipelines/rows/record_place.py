"""Carries the place of a record (topic, partition, offset) through a function that goes row by row.

The function sees rows without it. Afterwards the plan that Spark made of the function is built once
more, with these columns added to each projection on the way up. Where a row does not come from one
record (aggregates, Python functions over many rows, a stream joined or united with itself) there is
no place, and nothing is carried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.sinks.latest import ByColumns, Latest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPIC, PARTITION, OFFSET = "_record_topic", "_record_partition", "_record_offset"
# Their names in Spark's Kafka source.
SOURCE = {TOPIC: "topic", PARTITION: "partition", OFFSET: "offset"}
# Operators that give each row on with what it has.
PASS = frozenset(
    {
        "Filter",
        "SubqueryAlias",
        "EventTimeWatermark",
        "Generate",
        "Join",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "CollectMetrics",
    }
)


def carried(base: DataFrame, made: DataFrame, names: tuple[str, ...]) -> DataFrame | None:
    """Returns the result of a function for `base.drop(*names)`, with those columns; None if they
    cannot be carried."""
    from pyspark.sql import DataFrame

    if any(name in made.columns for name in names):
        return None
    spark: Any = base.sparkSession
    by_name = {str(one.name()): one for one in _listed(_plan(base).output())}
    plan = _rebuilt(spark._jvm, _plan(made), [by_name[name] for name in names])
    if plan is None:
        return None
    dataset = spark._jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)


def ordered(
    pipeline: Pipeline, base: DataFrame, function: Callable[[DataFrame], DataFrame]
) -> tuple[DataFrame, Latest | None]:
    """The result of the function for the rows, and how to find the newer of two rows of a key.
    `base` has the columns of `carried_by`."""
    names, newest = carried_by(pipeline), newest_of(pipeline)
    made = function(base.drop(*names))
    if newest is None:
        return made, None
    placed = carried(base, made, names) if names else None
    if placed is None:
        return made, ByColumns((newest,))
    return placed, ByColumns((newest, *names))


def beside(records: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Records as Spark's Kafka source gives them, with what is carried."""
    from pyspark.sql import functions as F

    return records.withColumns({one: F.col(SOURCE[one]) for one in carried_by(pipeline)})


def with_place(records: DataFrame) -> DataFrame:
    """Records as Spark's Kafka source gives them, with the whole place of each."""
    from pyspark.sql import functions as F

    return records.withColumns({name: F.col(source) for name, source in SOURCE.items()})


def newest_of(pipeline: Pipeline) -> str | None:
    return pipeline.sink.newest


def carried_by(pipeline: Pipeline) -> tuple[str, ...]:
    """Returns the columns that decide between rows of the same moment, if a row may be replaced by
    a newer one. The name of the topic is included only if there may be several."""
    topic = pipeline.topic
    if topic is None or newest_of(pipeline) is None:
        return ()
    return (TOPIC, PARTITION, OFFSET) if topic.pattern else (PARTITION, OFFSET)


def _plan(rows: DataFrame) -> Any:
    return rows._jdf.queryExecution().analyzed()


def _listed(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _has(plan: Any, wanted: list[Any]) -> bool:
    there = {one.exprId().id() for one in _listed(plan.output())}
    return all(one.exprId().id() in there for one in wanted)


def _rebuilt(jvm: Any, plan: Any, wanted: list[Any]) -> Any:
    """Returns the plan with the columns in its output; None if a node on the way cannot pass them
    on."""
    if _has(plan, wanted):
        return plan
    children = _listed(plan.children())
    below = [_rebuilt(jvm, child, wanted) for child in children]
    found = [one for one in below if one is not None]
    if len(found) != 1:  # from no side, or a row from two records
        return None
    if str(plan.nodeName()) == "Project":
        columns = jvm.PythonUtils.toSeq([*_listed(plan.projectList()), *wanted])
        return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(columns, found[0])
    if str(plan.nodeName()) not in PASS:
        return None
    new = [old if one is None else one for old, one in zip(children, below, strict=True)]
    made = plan.withNewChildren(jvm.PythonUtils.toSeq(new))
    return made if _has(made, wanted) else None
