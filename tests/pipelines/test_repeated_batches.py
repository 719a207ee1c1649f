"""What is late is decided by all rows of the batches before, also by those of a repeated one.

A run is killed when its table has a batch and its checkpoint does not: the next run repeats the
batch, and the table leaves it out.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.client.connection import ClientSettings
from headrace.pipelines import Console, Table, Topic, expect, pipeline
from headrace.pipelines.declaration import Pipeline, Source
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.spark.session import settings_for_now
from tests.pipelines.conftest import Run
from tests.pipelines.orders import SCHEMA, forget_last_batch, new_topic, order, put, table

pytestmark = pytest.mark.timeout(1200)

# Else a batch without records follows, and the checkpoint has the watermark before the kill.
ONLY_RECORDS = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
FORMATS = ("parquet", "delta", "iceberg")


def once(source: Source, name: str, form: str = "delta", where: str = "true") -> Pipeline:
    @pipeline(source=source, sink=Table(name, format=form), name=name)
    def found(rows: DataFrame) -> DataFrame:
        return rows.where(where).dropDuplicates(["id", "time"]).select("id", "amount")

    return found


def hours(bootstrap: str, topic: str, *numbers: int) -> None:
    put(bootstrap, topic, [json.dumps(order(n)).encode() for n in numbers], 20)


@pytest.mark.parametrize("form", FORMATS)
def test_a_batch_that_the_table_has_moves_the_watermark(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path, form: str
) -> None:
    topic = new_topic(connection, f"repeated-{form}")
    made = once(Topic(topic, schema=SCHEMA, event_time="time", late="1 hour"), topic, form)
    with settings_for_now(spark, ONLY_RECORDS):
        hours(connection.bootstrap, topic, 9)
        run(made).stream(once=True)
        forget_last_batch(tmp_path, topic)
        hours(connection.bootstrap, topic, 8)  # in time, and the next batch
        run(made).stream(once=True)
        hours(connection.bootstrap, topic, 2)  # too late
        run(made).stream(once=True)
    assert table(spark, tmp_path / "tables" / topic, form) == [(8, 1), (9, 2)]


@pytest.mark.parametrize("form", FORMATS)
def test_a_batch_of_a_table_that_is_repeated_moves_the_watermark(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path, form: str
) -> None:
    name, place = f"repeated-rows-{form}", str(tmp_path / "tables" / "orders")
    made = once(Table("orders", event_time="time", late="1 hour"), name, form)

    def add(n: int) -> None:
        one = spark.sql(f"SELECT {n}L AS id, timestamp'{order(n)['time']}' AS time, {n}L AS amount")
        one.write.format("delta").mode("append").save(place)

    with settings_for_now(spark, ONLY_RECORDS):
        add(9)
        run(made).stream(once=True)
        forget_last_batch(tmp_path, name)
        for n in (8, 2):
            add(n)
            run(made).stream(once=True)
    assert table(spark, tmp_path / "tables" / name, form) == [(8, 8), (9, 9)]


def test_a_row_that_the_function_leaves_out_moves_the_watermark(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    """Whether its filter uses the time or not: Spark evaluates one that does not before it looks at
    the times."""
    topic = new_topic(connection, "left-out")
    source = Topic(topic, schema=SCHEMA, event_time="time", late="1 hour")
    both = [once(source, "by-id", where="id <> 9")]
    both.append(once(source, "by-time", where="time <> timestamp'2026-01-01T09:00:00Z'"))
    with settings_for_now(spark, ONLY_RECORDS):
        for n in (9, 8, 2):
            hours(connection.bootstrap, topic, n)
            for made in both:
                run(made).stream(once=True)
    for made in both:
        assert table(spark, tmp_path / "tables" / made.name) == [(8, 1)], made.name


def test_a_console_of_few_rows_computes_all_state(connection: ClientSettings, run: Run) -> None:
    """Spark's own check of the state is on; it ends a stream whose batch was computed in part."""
    topic = new_topic(connection, "few-rows")

    @pipeline(source=Topic(topic, schema=SCHEMA), sink=Console(rows=1), name=topic)
    def counted(rows: DataFrame) -> DataFrame:
        return rows.groupBy("id").count().where("id >= 5 OR count > 1")

    hours(connection.bootstrap, topic, *range(12))
    run(counted).stream(once=True)
    run.said.clear()
    hours(connection.bootstrap, topic, *range(5))
    run(counted).stream(once=True)
    rows: list[Any] = [line.split() for line in run.said]
    assert rows[0] == ["id", "count"] and rows[1][1] == "2", rows


def test_a_parquet_table_has_late_rows_and_rules_that_stop(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "parquet-late")
    source = Topic(topic, schema=SCHEMA, event_time="time", late="1 hour", late_rows="too-late")
    made = once(replace(source, expect=(expect("id < 19", then="stop"),)), topic, "parquet")
    with settings_for_now(spark, ONLY_RECORDS):
        for n in (9, 8, 2):
            hours(connection.bootstrap, topic, n)
            run(made).stream(once=True)
            forget_last_batch(tmp_path, topic)
        hours(connection.bootstrap, topic, 19)
        with pytest.raises(PipelineError, match="stops: a batch has 1 row where id < 19"):
            run(made).stream(once=True)
    assert table(spark, tmp_path / "tables" / topic, "parquet") == [(8, 1), (9, 2)]
    late = spark.read.format("delta").load(str(tmp_path / "tables" / "too-late"))
    assert [row["id"] for row in late.collect()] == [2]
