"""A function that changes under a kept checkpoint goes on only where the table stays right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.client.connection import ClientSettings
from headrace.pipelines import Table, Topic, expect, pipeline
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.spark.plan_reader import marked, read_plan
from headrace.pipelines.stream.folder import Folder
from headrace.pipelines.stream.plan_identity import change
from tests.pipelines.conftest import Run
from tests.pipelines.orders import SCHEMA, new_topic, put, table

pytestmark = pytest.mark.timeout(1200)

Function = Callable[[DataFrame], DataFrame]
KEYED = Table("by-id", mode="upsert", key="id")


def made(topic: str, function: Function, sink: Table = KEYED) -> Pipeline:
    return pipeline(source=Topic(topic, schema=SCHEMA), sink=sink, name=topic)(function)


def of_each(aggregate: Callable[[str], Column]) -> Function:
    return lambda rows: rows.groupBy("id").agg(aggregate("amount").alias("amount"))


def order(amount: int, key: int = 1) -> bytes:
    at = "2026-01-01T00:00:00Z"
    return json.dumps({"id": key, "time": at, "amount": amount}).encode()


def test_a_sum_does_not_go_on_as_a_maximum(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "sum-then-max")
    place = tmp_path / "tables" / "by-id"
    put(connection.bootstrap, topic, [order(5), order(7)])
    run(made(topic, of_each(F.sum))).stream(once=True)
    put(connection.bootstrap, topic, [order(1)])
    with pytest.raises(PipelineError, match=r"sum\(amount\) is now max\(amount\).*reset .*--table"):
        run(made(topic, of_each(F.max))).stream(once=True)
    with pytest.raises(PipelineError, match=r"cannot go on with the state"):
        run(made(topic, of_each(F.max)), accept_change=True).stream(once=True)
    other_key = replace(KEYED, key=("id", "amount"))
    with pytest.raises(PipelineError, match=r"key of by-id \(id\) is now .*\(id, amount\)"):
        run(made(topic, of_each(F.sum), other_key)).stream(once=True)
    assert table(spark, place) == [(1, 12)]

    filtered = made(topic, lambda rows: of_each(F.sum)(rows.where("amount < 100")))
    with pytest.raises(PipelineError, match=r"Filter \(amount < .*\) is new.*--accept-change"):
        run(filtered).stream(once=True)
    run(filtered, accept_change=True).stream(once=True)
    assert any("goes on with a change: Filter" in line for line in run.notes)
    run(filtered).stream(once=True)  # accepted once
    assert table(spark, place) == [(1, 13)]


def test_a_checkpoint_of_an_older_version_goes_on_and_keeps_the_plan(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "no-plan-yet")
    put(connection.bootstrap, topic, [order(5)])
    whole = made(topic, lambda rows: rows.select("id", "amount"), Table("rows"))
    run(whole).stream(once=True)
    identity = Folder(tmp_path, topic).state / "identity.json"
    kept = json.loads(identity.read_text())
    older = {part: kept[part] for part in ("id", "source", "sink", "kind", "zone")}
    identity.write_text(json.dumps(older))
    put(connection.bootstrap, topic, [order(7)])
    run(whole).stream(once=True)
    assert json.loads(identity.read_text()) == kept
    assert table(spark, tmp_path / "tables" / "rows") == [(1, 5), (1, 7)]
    assert "plan" not in Folder(tmp_path, topic).described()
    wider = made(topic, lambda rows: rows.select("id", "amount", "time"), Table("rows"))
    with pytest.raises(PipelineError, match=r"column time timestamp is new.*--accept-change"):
        run(wider).stream(once=True)


# ---- what counts as a change; nothing runs


def shouted(text: str) -> Function:
    def shout(amount: int) -> str:
        return text + str(amount)

    return lambda rows: rows.select("id", F.udf(shout, "string")("amount").alias("loud"))


def windows(size: str, key: str = "id", late: str | None = None) -> Function:
    def function(rows: DataFrame) -> DataFrame:
        late_rows = rows if late is None else rows.withWatermark("time", late)
        by = late_rows.groupBy(F.window("time", size), key)
        return by.agg(F.sum("amount").alias("total"), F.count("*").alias("n"))

    return function


def joined(kind: str, hours: int = 1) -> Function:
    def function(rows: DataFrame) -> DataFrame:
        left = rows.withWatermark("time", "1 hour").alias("a")
        right = rows.withWatermark("time", f"{hours} hours").alias("b")
        same = F.expr("a.id = b.id AND b.time BETWEEN a.time AND a.time + INTERVAL 1 HOUR")
        return left.join(right, same, kind).select("a.id", F.col("b.amount").alias("other"))

    return function


def beside(rows: DataFrame) -> DataFrame:
    return rows.sparkSession.createDataFrame([(1, "one")], "id LONG, name STRING")


# The same answer, or another one that needs state or does not.
SAME: dict[str, tuple[Function, Function]] = {
    "windows": (windows("1 day"), windows("24 hours")),
    "names on the way": (
        lambda rows: rows.withColumn("k", F.col("id") % 3).groupBy("k").count(),
        lambda rows: rows.withColumn("k", F.col("id") % 3).alias("x").groupBy("k").count(),
    ),
    "sets": (
        lambda rows: rows.where(F.col("id").isin(1, 2, 3)),
        lambda rows: rows.where(F.col("id").isin(3, 1, 2)),
    ),
    "random numbers": (
        lambda rows: rows.withColumn("x", F.rand()),
        lambda rows: rows.withColumn("x", F.rand()),
    ),
    "joins with a table": (
        lambda rows: rows.join(beside(rows), "id"),
        lambda rows: rows.join(beside(rows), "id"),
    ),
    "a stream with itself": (joined("inner"), joined("inner")),
    "Python": (shouted("x"), shouted("x")),
    "many columns": (
        lambda rows: rows.select(F.struct(*(F.lit(n).alias(f"c{n}") for n in range(40)))),
        lambda rows: rows.select(F.struct(*(F.lit(n).alias(f"c{n}") for n in range(40)))),
    ),
}
CARRIED_ON: dict[str, tuple[Function, Function]] = {
    "a filter below state": (
        windows("1 day"),
        lambda rows: windows("1 day")(rows.where("amount > 0")),
    ),
    "a column behind state": (
        windows("1 day"),
        lambda rows: windows("1 day")(rows).withColumn("more", F.lit(1)),
    ),
    "another name for a key": (
        lambda rows: rows.groupBy("id").count(),
        lambda rows: rows.withColumnRenamed("id", "k").groupBy("k").count(),
    ),
    "Python": (shouted("x"), shouted("y")),
    "a join with a table": (
        lambda rows: rows.join(beside(rows), "id"),
        lambda rows: rows.join(beside(rows), "id", "left"),
    ),
    "the last of many columns": (
        lambda rows: rows.select(F.struct(*(F.lit(n).alias(f"c{n}") for n in range(40)))),
        lambda rows: rows.select(F.struct(*(F.lit(n % 39).alias(f"c{n}") for n in range(40)))),
    ),
}
OF_STATE: dict[str, tuple[Function, Function]] = {
    "the size of a window": (windows("1 day"), windows("1 hour")),
    "a key": (windows("1 day"), windows("1 day", key="amount")),
    "what a key is made of": (
        lambda rows: rows.withColumn("k", F.col("id") % 3).groupBy("k").count(),
        lambda rows: rows.withColumn("k", F.col("id") % 4).groupBy("k").count(),
    ),
    "what is summed": (
        lambda rows: rows.groupBy("id").agg(F.sum("amount").alias("x")),
        lambda rows: (
            rows.selectExpr("id", "amount * 2 AS amount")
            .groupBy("id")
            .agg(F.sum("amount").alias("x"))
        ),
    ),
    "state where there was none": (lambda rows: rows, lambda rows: rows.dropDuplicates(["id"])),
    "no state any more": (lambda rows: rows.dropDuplicates(["id"]), lambda rows: rows),
    "keys of duplicates": (
        lambda rows: rows.dropDuplicates(["id"]),
        lambda rows: rows.dropDuplicates(["id", "amount"]),
    ),
    "a watermark": (windows("1 day", late="1 hour"), windows("1 day", late="2 hours")),
    "a join of two streams": (joined("inner"), joined("left")),
    "a watermark of one side": (joined("inner"), joined("inner", hours=2)),
}


def test_changes_are_separated_by_what_they_do_to_state(spark: SparkSession) -> None:
    def compared(first: Function, second: Function) -> bool | None:
        plans = []
        for function in (first, second):
            rows = spark.readStream.format("rate").load()
            rows = rows.selectExpr("value AS id", "timestamp AS time", "value % 7 AS amount")
            rows = marked(rows)
            one = made("t", function, Table("rows"))
            plans.append(read_plan(one, rows, one(rows)))
        found = change(*plans)
        return None if found is None else found.of_state

    for name, pair in SAME.items():
        assert compared(*pair) is None, name
    for name, pair in CARRIED_ON.items():
        assert compared(*pair) is False, name
    for name, pair in OF_STATE.items():
        assert compared(*pair) is True, name


# ---- rules that stop a stream


@pytest.mark.parametrize("whole", [True, False], ids=["counted", "second query"])
def test_a_rule_stops_a_stream_with_state_before_the_batch_is_in_the_table(
    whole: bool, spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, f"stops-{whole}".lower())
    source = Topic(
        topic,
        schema=SCHEMA,
        event_time="time",
        late="1 hour",
        expect=(expect("amount > 0", then="stop"),),
    )

    @pipeline(source=source, sink=KEYED, name=topic)
    def summed(rows: DataFrame) -> DataFrame:
        kept = rows if whole else rows.join(beside(rows), "id")
        return kept.groupBy("id").agg(F.sum("amount").alias("amount"))

    put(connection.bootstrap, topic, [order(5)])
    run(summed).stream(once=True)
    put(connection.bootstrap, topic, [order(7), order(0)])
    for _ in range(2):  # again with the next run
        with pytest.raises(PipelineError, match=r"stops: a batch has 1 row where amount > 0"):
            run(summed).stream(once=True)
    assert table(spark, tmp_path / "tables" / "by-id") == [(1, 5)]
