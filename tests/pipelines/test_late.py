"""A backlog read in small batches: partitions whose times advance unevenly, and the watermark.

Spark's watermark follows the newest row of all partitions. With `per_batch` a partition whose
records lie close together in time advances more slowly than others, and what it still has to give
comes too late. Nothing is late where the backlog is taken in one batch.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.client.connection import ClientSettings
from headrace.pipelines import Table, Topic, pipeline
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.stream.folder import Folder
from headrace.pipelines.stream.span import parse
from tests.pipelines.conftest import Run
from tests.pipelines.orders import BEGAN_MS, HOUR_MS, SCHEMA, new_topic, table

pytestmark = pytest.mark.timeout(1200)

EACH = 40
STEPS_MS = (HOUR_MS // 10, HOUR_MS)  # of partition 0 and 1: one is dense, one is not


def uneven(connection: ClientSettings, topic: str) -> list[tuple[str, int]]:
    """Fills the topic; orders by the hour."""
    producer, hours = Producer({"bootstrap.servers": connection.bootstrap}), Counter[str]()
    for partition, step_ms in enumerate(STEPS_MS):
        for n in range(EACH):
            at_s = (BEGAN_MS + n * step_ms) / 1000
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))
            value = json.dumps({"id": n, "time": at, "amount": 1}).encode()
            written = BEGAN_MS + EACH * HOUR_MS
            producer.produce(topic, value, partition=partition, timestamp=written)
            hours[time.strftime("%Y-%m-%d %H", time.gmtime(at_s))] += 1
    assert producer.flush(120) == 0
    return sorted(hours.items())


def hourly(topic: str, name: str, per_batch: int | None) -> Pipeline:
    source = Topic(topic, schema=SCHEMA, event_time="time", late="1 hour", per_batch=per_batch)

    @pipeline(source=source, sink=Table(name, mode="upsert", key="hour"), name=name)
    def counted(rows: DataFrame) -> DataFrame:
        found = rows.groupBy(F.window("time", "1 hour")).agg(F.count("*").alias("orders"))
        hour = F.date_format("window.start", "yyyy-MM-dd HH").alias("hour")
        return found.select(hour, "orders")

    return counted


def test_small_batches_over_uneven_partitions_lose_rows_and_say_so(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "uneven")
    wanted = uneven(connection, topic)
    limited = hourly(topic, "limited", 20)

    run(limited).stream(once=True)
    held = table(spark, tmp_path / "tables" / "limited")
    late = (Folder(tmp_path, "limited").progress() or {})["late_total"]
    assert sum(count for _, count in held) < 2 * EACH
    assert late > 0 and any("too late" in note for note in run.notes)
    run(limited).history(parse(".."))  # corrects it
    assert table(spark, tmp_path / "tables" / "limited") == wanted

    run(hourly(topic, "at-once", None)).stream(once=True)
    assert table(spark, tmp_path / "tables" / "at-once") == wanted
    run(hourly(topic, "backfilled", 20)).stream(once=True, backfill=True)
    assert table(spark, tmp_path / "tables" / "backfilled") == wanted
