"""Reads what a pipeline's function computes from the plan that Spark made of it.

The plan is read down to the rows that the function was given, and no further: they are `marked`
by an alias, since Spark joins a projection of the function with the one below it otherwise. A few
calls into Java for each operator and expression: a few milliseconds in all.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.spark.function_code import fingerprint
from headrace.pipelines.stream.plan_identity import Operator, PlanIdentity, identity_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Without it Spark leaves out all but the first 25 of a list.
FIELDS, ALL = "spark.sql.debug.maxToStringFields", 1_000_000
UNKNOWN = "unknown"
MARK = "_headrace_rows"


def marked(rows: DataFrame) -> DataFrame:
    """The same rows, which `read_plan` finds again in what the function makes of them."""
    return rows.alias(MARK)


def read_plan(pipeline: Pipeline, rows: DataFrame, made: DataFrame) -> PlanIdentity:
    """`made` is what the function made of `rows`, which are `marked`."""
    spark = made.sparkSession
    with _whole_texts(spark):
        types = [one.dataType.simpleString() for one in rows.schema.fields]
        plan = _operator(made._jdf.queryExecution().analyzed(), types)
    return identity_of(
        pipeline,
        plan,
        [f"{one.name} {one.dataType.simpleString()}" for one in made.schema.fields],
        spark=spark.version,
        python=".".join(platform.python_version_tuple()[:2]),
        code=fingerprint(pipeline.function),
    )


@contextmanager
def _whole_texts(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(FIELDS)
    spark.conf.set(FIELDS, ALL)
    try:
        yield
    finally:
        spark.conf.set(FIELDS, str(before))


def _listed(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _operator(plan: Any, types: list[str]) -> Operator:
    name = str(plan.nodeName())
    if name == "SubqueryAlias" and str(plan.alias()) == MARK:
        columns = [
            (int(one.exprId().id()), str(one.name()), kind)
            for one, kind in zip(_listed(plan.output()), types, strict=True)
        ]
        return Operator(name, "", is_source=True, rows=columns)
    children = [_operator(child, types) for child in _listed(plan.children())]
    expressions = _listed(plan.expressions())
    return Operator(
        name,
        str(plan.simpleString(ALL)),
        streams=bool(plan.isStreaming()),
        expressions=[str(one.toString()) for one in expressions],
        rows=[] if children else _columns(plan),
        code=[code for one in expressions for code in _code(one)],
        children=children,
    )


def _columns(leaf: Any) -> list[tuple[int, str, str]]:
    return [
        (int(one.exprId().id()), str(one.name()), str(one.dataType().simpleString()))
        for one in _listed(leaf.output())
    ]


def _code(expression: Any) -> Iterator[str]:
    """The Python functions in an expression, each as `NAME = FINGERPRINT`."""
    if str(expression.nodeName()).startswith("PythonUD"):  # UDF, UDAF, UDTF
        yield f"{expression.name()} = {_fingerprint(expression.func())}"
    for child in _listed(expression.children()):
        yield from _code(child)


def _fingerprint(function: Any) -> str:
    """UNKNOWN where Spark does not give the function back: one of more than a megabyte is sent
    aside."""
    from py4j.protocol import Py4JError
    from pyspark.serializers import CloudPickleSerializer

    try:
        pickled = bytes(function.command().unsafeArray())
        return fingerprint(CloudPickleSerializer().loads(pickled))
    except Py4JError:
        return UNKNOWN
    except Exception:  # noqa: BLE001 - what cannot be loaded here cannot be looked at
        return UNKNOWN
