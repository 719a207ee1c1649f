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
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.client.connection import ClientSettings
from headrace.pipelines import Table, Topic, pipeline
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.rows.ahead import planned_at
from headrace.pipelines.stream.folder import Folder
from headrace.pipelines.stream.queries import Streaming
from headrace.pipelines.stream.span import parse
from tests.pipelines.conftest import Run
from tests.pipelines.orders import (
    BEGAN_MS,
    HOUR_MS,
    SCHEMA,
    new_topic,
    read,
    table,
)

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


MINUTE_MS = 60_000


def timed(connection: ClientSettings, topic: str, records: list[tuple[int, int, int]]) -> None:
    """Orders with the number, the event time and the time of the record."""
    producer = Producer({"bootstrap.servers": connection.bootstrap})
    for n, event_ms, written_ms in records:
        value = json.dumps({"id": n, "time": event_ms, "amount": 1}).encode()
        producer.produce(topic, value, partition=n % 2, timestamp=written_ms)
    assert producer.flush(120) == 0


def by_id(topic: str, name: str, **source: Any) -> Pipeline:
    reading = Topic(topic, schema=SCHEMA, event_time="time", late="10 minutes", **source)

    @pipeline(source=reading, sink=Table(name, mode="upsert", key="id"), name=name)
    def counted(rows: DataFrame) -> DataFrame:
        found = rows.groupBy(F.window("time", "1 minute"), "id").agg(F.count("*").alias("orders"))
        return found.select("id", "orders")

    return counted


@pytest.mark.parametrize("way", ["counted", "two queries"])
def test_a_record_of_the_future_is_a_dead_letter_and_moves_no_watermark(
    way: str,
    spark: SparkSession,
    connection: ClientSettings,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if way == "two queries":
        monkeypatch.setattr(Streaming, "counts_bad_records", lambda *_: False)
    name = f"future-{way.replace(' ', '-')}"
    topic = new_topic(connection, name)
    made, now = by_id(topic, name), time.time_ns() // 1_000_000
    timed(connection, topic, [(0, now, now), (1, now + 23 * HOUR_MS, now)])
    runner = run(made)
    runner.stream(once=True)
    timed(connection, topic, [(n, now, now) for n in range(2, 102)])
    runner = run(made)
    runner.stream(once=True)
    wanted = [(n, 1) for n in range(102) if n != 1]
    assert table(spark, tmp_path / "tables" / name) == wanted
    [letter] = read(connection.bootstrap, made.dead_topic, 1)
    why = b"time is more than 5 minutes after the time of the record"
    assert runner.dead == 1 and letter["headrace-dead-message"] == why
    run(made).history(parse(".."), into=f"{name}-history")
    assert table(spark, tmp_path / "tables" / f"{name}-history") == wanted
    assert (Folder(tmp_path, name).progress() or {})["late_total"] == 0


def plan_of_first_batch_again(checkpoint: Path, later_ms: int) -> None:
    """As if the process had been killed before its first commit, with another clock."""
    for file in [*checkpoint.glob("commits/*"), *checkpoint.glob("offsets/*")]:
        if file != checkpoint / "offsets" / "0":
            file.unlink(missing_ok=True)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    plan = checkpoint / "offsets" / "0"
    version, clock, *offsets = plan.read_text("utf-8").splitlines()
    kept = json.loads(clock)
    kept["batchTimestampMs"] += later_ms
    plan.write_text("\n".join([version, json.dumps(kept), *offsets]), "utf-8")


def test_a_producer_whose_clock_is_ahead_is_judged_by_the_clock_of_the_batch(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    """A batch that is repeated has the clock of its first time, which the checkpoint keeps."""
    topic = new_topic(connection, "fast-clock")
    made, now = by_id(topic, topic), time.time_ns() // 1_000_000
    later = now + 40 * MINUTE_MS
    timed(connection, topic, [(0, now, now), (1, later, later)])
    runner = run(made)
    runner.stream(once=True)
    place = tmp_path / "tables" / topic
    assert table(spark, place) == [(0, 1)]
    [letter] = read(connection.bootstrap, made.dead_topic, 1)
    assert letter["headrace-dead-message"] == b"time is more than 5 minutes ahead of the clock"
    assert runner.dead == 1
    run(made).history(parse(".."), into="fast-clock-history")
    assert table(spark, tmp_path / "tables" / "fast-clock-history") == [(0, 1)]

    checkpoint = Folder(tmp_path, topic).checkpoint
    assert abs(planned_at(checkpoint, 0) - now) < HOUR_MS
    plan_of_first_batch_again(checkpoint, later_ms=HOUR_MS)
    run(made).stream(once=True)
    assert table(spark, place) == [(0, 1), (1, 1)]


def test_a_limit_of_ones_own(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "own-limit")
    now = time.time_ns() // 1_000_000
    timed(connection, topic, [(0, now, now), (1, now + 2 * HOUR_MS, now), (2, now + 90_000, now)])
    for name, limit, wanted in (
        ("hours", "3 hours", [0, 1, 2]),
        ("none", None, [0, 1, 2]),
        ("second", "1 second", [0]),
    ):
        run(by_id(topic, name, ahead=limit)).stream(once=True)
        assert table(spark, tmp_path / "tables" / name) == [(n, 1) for n in wanted]
