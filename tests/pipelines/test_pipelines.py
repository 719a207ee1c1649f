"""Pipelines on a real Spark and a real broker, their tables against plain Python."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.client.connection import ClientSettings
from headrace.pipelines import Console, Table, Topic, pipeline
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream.span import parse
from tests.interop.brokers import make_node
from tests.pipelines.conftest import Run
from tests.pipelines.orders import (
    SCHEMA,
    expected,
    new_topic,
    order,
    orders,
    put,
    read,
    rows_into,
    table,
)

pytestmark = pytest.mark.timeout(1200)  # Spark's start takes long on a busy machine


def daily(topic: str, name: str = "revenue") -> Pipeline:
    source = Topic(topic, schema=SCHEMA, event_time="time", late="1 hour", per_batch=40)

    @pipeline(source=source, sink=Table(name, mode="upsert", key="day"), name=topic)
    def revenue(rows: DataFrame) -> DataFrame:
        totals = rows.groupBy(F.window("time", "1 day")).agg(F.sum("amount").alias("amount"))
        return totals.select(F.col("window.start").cast("date").alias("day"), "amount")

    return revenue


def revenue_of(numbers: range) -> list[tuple[str, int]]:
    days: Counter[str] = Counter()
    for n in numbers:
        days[order(n)["time"][:10]] += order(n)["amount"]
    return sorted(days.items())


def test_a_stream_and_history_make_the_same_table(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "both-ways")
    orders(connection.bootstrap, topic, range(90))
    run(daily(topic)).stream(once=True)
    orders(connection.bootstrap, topic, range(90, 110))
    run(daily(topic)).stream(once=True)  # goes on at its checkpoint, with its state
    run(daily(topic)).history(parse(".."), into="offline")

    streamed = table(spark, tmp_path / "tables" / "revenue")
    assert [(str(day), amount) for day, amount in streamed] == revenue_of(range(110))
    assert table(spark, tmp_path / "tables" / "offline") == streamed
    made = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path / 'tables' / 'revenue'}`").collect()
    assert len(made) == 1 + 4  # the table, and batches with rows: none for the watermark alone
    [line] = [note for note in run.notes if note.startswith("batch 0 ")]
    assert "40 rows" in line and "50 behind" in line and "in state" in line


def test_a_span_of_history_is_taken_by_the_times_of_records(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "a-day")
    orders(connection.bootstrap, topic, range(60))
    made = rows_into(Table("all"), topic)
    run(made).history(parse("2026-01-02..2026-01-03"))
    assert table(spark, tmp_path / "tables" / "all") == expected(range(24, 48))
    with pytest.raises(PipelineError, match="--into"):
        run(made).history(parse(".."))


def test_a_stream_starts_where_it_is_told_and_reads_all_topics_of_a_pattern(
    connection: ClientSettings, run: Run
) -> None:
    for name in ("shop.north", "shop.south", "shop-other"):
        orders(connection.bootstrap, new_topic(connection, name), range(8))

    def shown(source: Topic, name: str) -> list[str]:
        @pipeline(source=source, sink=Console(rows=50), name=name)
        def places(rows: DataFrame) -> DataFrame:
            return rows.select(F.concat_ws(" ", "topic", "partition", "offset").alias("place"))

        run.said.clear()
        run(places).stream(once=True)
        return sorted(line for line in run.said if line != "place")

    pattern = Topic(r"shop\..*", pattern=True, starting="2026-01-01T06:00:00Z")
    both = ["shop.north 0 3", "shop.north 1 3", "shop.south 0 3", "shop.south 1 3"]
    assert shown(pattern, "by-time") == both
    assert shown(Topic("shop-other", starting={0: 4, 1: 3}), "by-offset") == ["shop-other 1 3"]


def test_apache_kafka_is_read_alike(spark: SparkSession, tmp_path: Path) -> None:
    with make_node("apache", tmp_path / "kafka") as node:
        connection = ClientSettings({"bootstrap.servers": node.bootstrap})
        run = Run(connection, tmp_path)
        topic = new_topic(connection, "at-apache")
        made = rows_into(Table("all"), topic)
        put(node.bootstrap, topic, [b"{broken"])
        orders(node.bootstrap, topic, range(1, 50))
        run(made).stream(once=True)
        orders(node.bootstrap, topic, range(50, 60))
        run(made).stream(once=True)
        run(made).history(parse("2026-01-02..2026-01-03"), into="a-day")
        assert len(read(node.bootstrap, made.dead_topic, 1)) == 1
    assert table(spark, tmp_path / "tables" / "all") == expected(range(1, 60))
    assert table(spark, tmp_path / "tables" / "a-day") == expected(range(24, 48))


def test_spark_has_the_name_of_what_it_runs(spark: SparkSession) -> None:
    assert spark.sparkContext.appName == "headrace tests"
