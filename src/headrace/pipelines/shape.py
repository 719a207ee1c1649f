"""Whether a pipeline keeps state from batch to batch: read from the plan that Spark made of it.

What is not known to work row by row is taken to keep state. The parts of a plan that do not stream,
such as a table that rows are joined with, may do anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
        "Join",  # with something that does not stream
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


def plan_of(rows: DataFrame) -> Node:
    return _node(rows._jdf.queryExecution().analyzed())


def _node(plan: Any) -> Node:
    children = plan.children()
    below = [_node(children.apply(number)) for number in range(children.size())]
    return Node(str(plan.nodeName()), bool(plan.isStreaming()), below)
