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
from headrace.pipelines.failure import PipelineError
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


def kept_late(
    topic: str, name: str, sink: Table, window: tuple[str, ...] = ("1 hour",)
) -> Pipeline:
    source = Topic(topic, schema=SCHEMA, event_time="time", late="1 hour", late_rows=f"{name}-late")

    @pipeline(source=source, sink=sink, name=name)
    def counted(rows: DataFrame) -> DataFrame:
        found = rows.groupBy(F.window("time", *window)).agg(F.collect_list("id").alias("ids"))
        hour = F.date_format("window.start", "yyyy-MM-dd HH:mm").alias("hour")
        return found.select(hour, F.array_sort("ids").alias("ids"))

    return counted


def at_minutes(connection: ClientSettings, topic: str, minutes: dict[int, int]) -> None:
    written = BEGAN_MS + 100 * HOUR_MS
    times = [(n, BEGAN_MS + at * MINUTE_MS, written) for n, at in minutes.items()]
    timed(connection, topic, times)


def ids_of(spark: SparkSession, place: Path) -> list[tuple[str, list[int]]]:
    return sorted((hour, list(ids)) for hour, ids in table(spark, place))


def late_ids(spark: SparkSession, place: Path) -> list[tuple[Any, ...]]:
    rows = spark.read.format("delta").load(str(place))
    return sorted(tuple(one) for one in rows.select("id", "_record_offset").collect())


def test_each_row_is_either_counted_or_in_the_table_of_late_rows(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    """Windows of an hour at each half hour: Spark alone would count half of a late row."""
    topic = new_topic(connection, "kept-late")
    sink = Table("kept-late", mode="upsert", key="hour")
    made = kept_late(topic, "kept-late", sink, ("1 hour", "30 minutes"))
    tables = tmp_path / "tables"
    at_minutes(connection, topic, {0: 10, 1: 300})  # the watermark comes to minute 240
    run(made).stream(once=True)
    assert late_ids(spark, tables / "kept-late-late") == []
    put_bad = Producer({"bootstrap.servers": connection.bootstrap})
    put_bad.produce(topic, b"{", partition=0, timestamp=BEGAN_MS)
    assert put_bad.flush(120) == 0
    # 2 is long behind it, 3 is behind it in a window that is open still, 4 is at it, 5 is not.
    at_minutes(connection, topic, {2: 20, 3: 235, 4: 240, 5: 241})
    runner = run(made)
    runner.stream(once=True)
    counted = {n for _, ids in ids_of(spark, tables / "kept-late") for n in ids}
    assert counted == {0, 1, 5} and runner.dead == 1
    assert [n for n, _ in late_ids(spark, tables / "kept-late-late")] == [2, 3, 4]
    progress = Folder(tmp_path, "kept-late").progress() or {}
    assert progress["late_total"] == 3 and any("3 too late" in note for note in run.notes)
    run(made).history(parse(".."))  # corrects it
    halves = [n for _, ids in ids_of(spark, tables / "kept-late") for n in ids]
    assert sorted(halves) == sorted(2 * [0, 1, 2, 3, 4, 5])


def test_a_repeated_batch_keeps_its_late_rows_once(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "late-again")
    made = kept_late(topic, "late-again", Table("late-again", mode="upsert", key="hour"))
    at_minutes(connection, topic, {0: 10, 1: 300})
    run(made).stream(once=True)
    at_minutes(connection, topic, {2: 20, 3: 245})
    run(made).stream(once=True)
    folder = Folder(tmp_path, "late-again")
    last, place = folder.last_committed(), tmp_path / "tables" / "late-again-late"
    wanted = ids_of(spark, tmp_path / "tables" / "late-again")
    assert [n for n, _ in late_ids(spark, place)] == [2]
    # As if the run had been killed before its last commit.
    for file in (str(last), f".{last}.crc"):
        (folder.checkpoint / "commits" / file).unlink(missing_ok=True)
    run(made).stream(once=True)
    assert folder.last_committed() >= last
    assert [n for n, _ in late_ids(spark, place)] == [2]
    assert ids_of(spark, tmp_path / "tables" / "late-again") == wanted


def test_a_table_of_late_rows_that_is_gone_is_refused(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "late-gone")
    made = kept_late(topic, "late-gone", Table("late-gone", mode="upsert", key="hour"))
    at_minutes(connection, topic, {0: 10, 1: 300})
    run(made).stream(once=True)
    at_minutes(connection, topic, {2: 10})
    run(made).stream(once=True)
    place = tmp_path / "tables" / "late-gone-late"
    place.rename(tmp_path / "aside")
    with pytest.raises(PipelineError, match="late-gone-late is gone"):
        run(made).stream(once=True)
    (tmp_path / "aside").rename(place)
    folder = Folder(tmp_path, "late-gone")
    assert any("late-gone-late is removed" in one for one in folder.effects_of_reset(table=True))
    folder.reset(table=False)
    with pytest.raises(PipelineError, match="has late rows of an earlier run"):
        run(made).stream(once=True)
    folder.reset(table=True)


def test_late_rows_need_state_and_one_watermark(
    spark: SparkSession, connection: ClientSettings, run: Run
) -> None:
    topic = new_topic(connection, "late-refused")
    source = Topic(topic, schema=SCHEMA, event_time="time", late="1 hour", late_rows="refused")
    each = pipeline(source=source, sink=Table("each"), name="each")(lambda rows: rows)
    with pytest.raises(PipelineError, match="without state no row is late"):
        run(each).stream(once=True)

    def two(rows: DataFrame) -> DataFrame:
        other = rows.withWatermark("time", "5 hours")
        return other.groupBy(F.window("time", "1 hour")).count().select("count")

    twice = pipeline(source=source, sink=Table("twice"), name="twice")(two)
    with pytest.raises(PipelineError, match="needs one watermark"):
        run(twice).stream(once=True)
    with pytest.raises(PipelineError, match="late_rows= needs event_time= and late="):
        Topic(topic, schema=SCHEMA, late_rows="refused")
