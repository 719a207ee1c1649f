"""The shape of a pipeline's plan: whether it keeps state, and whether it can be a stream at all.

An operation that is not known to work row by row is taken to keep state. The parts of a plan that
do not stream, such as a table that rows are joined with, may do anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.failure import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_BY_ROW = frozenset(
    {
        "Project",
        "Filter",
        "Generate",
        "Expand",
        "SubqueryAlias",
        "View",
        "EventTimeWatermark",
        "StreamingRelation",
        "StreamingRelationV2",
        "StreamingDataSourceV2Relation",
        "StreamingExecutionRelation",
        "Union",
        "Join",  # with something that does not stream; `must_stream` asks which side is kept
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "CollectMetrics",
        "MapPartitions",
        "MapElements",
        "TypedFilter",
        "SerializeFromObject",
        "DeserializeToObject",
        "MapInPandas",
        "MapInArrow",
        "PythonMapInArrow",
    }
)

WATERMARK = "EventTimeWatermark"

# Operators that take every row that comes to them, whatever they make of it. A limit does not, and
# a Python function or a join need not.
TAKES_ALL = ROW_BY_ROW - {
    "Join",
    "MapPartitions",
    "MapElements",
    "MapInPandas",
    "MapInArrow",
    "PythonMapInArrow",
} | {"Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct"}


# By words of Spark's refusals of streams, the first that fits.
REMEDIES = (
    (("join", "union"), "A join or union must keep only rows of the stream. "),
    (("sort",), "A stream never ends, so it cannot be sorted: sort the table when you read it. "),
    (
        ("non-time-based window", "non_time_window"),
        "Use a window of time (F.window), or Table(..., newest=) for the last row of each key. ",
    ),
    (("limit", "offset"), "A stream has no first rows: cut the table when you read it. "),
    (("distinct",), "Count with approx_count_distinct, or dropDuplicates before you count. "),
)


@dataclass(slots=True)
class Node:
    """An operator of a plan."""

    name: str
    streams: bool
    children: list[Node] = field(default_factory=list)


def stateful_operator(plan: Node) -> str | None:
    """The first operator that keeps state; None if each row goes its own way."""
    return next(_stateful(plan), None)


def _stateful(node: Node) -> Iterator[str]:
    if not node.streams:
        return
    joined = node.name == "Join" and all(child.streams for child in node.children)
    if joined or node.name not in ROW_BY_ROW:
        yield "Join of two streams" if joined else node.name
    for child in node.children:
        yield from _stateful(child)


def count_of(plan: Node, name: str) -> int:
    """How many operators of that name stream."""
    return sum(1 for node in _streaming(plan) if node.name == name)


def takes_every_record(plan: Node) -> bool:
    """Returns whether a batch ends only after each record of its one source has been looked at."""
    streaming = list(_streaming(plan))
    sources = [node for node in streaming if not node.children]
    return len(sources) == 1 and all(node.name in TAKES_ALL for node in streaming)


def _streaming(node: Node) -> Iterator[Node]:
    if node.streams:
        yield node
        for child in node.children:
            yield from _streaming(child)


def must_stream(pipeline: Pipeline, rows: DataFrame, mode: str) -> None:
    """Asks Spark's own check of streams. A function that is called batch by batch would pass
    without it, and a join that keeps the other side's rows, or a union with a table, would write
    those again with each batch."""
    from pyspark.errors import AnalysisException

    if not rows.isStreaming:
        raise PipelineError(
            f"{pipeline.name} returned a table that does not come from the rows it was given: it "
            "would be written again with each batch."
        )
    jvm: Any = rows.sparkSession._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(
            rows._jdf.queryExecution().analyzed(),
            modes.Update() if mode == "update" else modes.Append(),
        )
    except AnalysisException as refusal:
        said = str(refusal).split(";\n")[0].splitlines()[0].rstrip(". ")
        raise PipelineError(
            f"{pipeline.name} cannot run as a stream: {said}. {remedy(said)}Over history it can "
            "run as it is (--history ..)."
        ) from None


def remedy(said: str) -> str:
    """What to do about a refusal of Spark, as a sentence; "" where we have no advice."""
    lower = said.lower()
    return next((text for signs, text in REMEDIES if any(one in lower for one in signs)), "")


def plan_of(rows: DataFrame) -> Node:
    return _node(rows._jdf.queryExecution().analyzed())


def _node(plan: Any) -> Node:
    children = plan.children()
    below = [_node(children.apply(number)) for number in range(children.size())]
    return Node(str(plan.nodeName()), bool(plan.isStreaming()), below)
