"""Pipelines on a real Spark and a real broker, their tables against plain Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.client.connection import Connection
from headrace.client.topics import Topics
from headrace.pipelines import Table, Topic, pipeline
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.span import parse

pytestmark = pytest.mark.timeout(300)  # Spark's start takes long on a busy machine

BEGAN_MS = 1_767_225_600_000  # 2026-01-01
HOUR_MS = 3_600_000
SCHEMA = "id LONG NOT NULL, time TIMESTAMP NOT NULL, amount LONG NOT NULL"

Order = dict[str, Any]


def order(n: int) -> Order:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime((BEGAN_MS + n * HOUR_MS) / 1000))
    return {"id": n, "time": at, "amount": n % 7}


def put(connection: Connection, topic: str, values: list[bytes | None], first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": connection.bootstrap})
    for n, value in enumerate(values, first):
        when = BEGAN_MS + n * HOUR_MS
        producer.produce(topic, value, b"%d" % n, partition=n % 2, timestamp=when)
    assert producer.flush(20) == 0


def orders(connection: Connection, topic: str, numbers: range) -> None:
    put(connection, topic, [json.dumps(order(n)).encode() for n in numbers], numbers.start)


def new_topic(connection: Connection, name: str) -> str:
    # The records carry made-up times; retention by time would remove them.
    Topics(connection).create(name, partitions=2, settings={"retention.ms": "-1"})
    return name


def daily(topic: str, table: str = "revenue") -> Pipeline:
    source = Topic(topic, schema=SCHEMA, event_time="time", late="1 hour", per_batch=40)

    @pipeline(source=source, sink=Table(table, mode="upsert", key="day"), name=topic)
    def revenue(rows: DataFrame) -> DataFrame:
        totals = rows.groupBy(F.window("time", "1 day")).agg(F.sum("amount").alias("amount"))
        return totals.select(F.col("window.start").cast("date").alias("day"), "amount")

    return revenue


def plain(topic: str, form: str = "delta", sink: str = "all") -> Pipeline:
    source = Topic(topic, schema=SCHEMA, per_batch=40)

    @pipeline(source=source, sink=Table(sink, format=form), name=topic)
    def everything(rows: DataFrame) -> DataFrame:
        return rows.select("id", "amount")

    return everything


def table(spark: SparkSession, path: Path, form: str = "delta") -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.format(form).load(str(path)).collect())


def dead_letters(connection: Connection, topic: str, count: int) -> list[dict[str, bytes]]:
    settings = {"group.id": f"look-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": connection.bootstrap, **settings})
    consumer.subscribe([topic])
    found: list[dict[str, bytes]] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(dict(message.headers() or []) | {"value": message.value() or b""})
    consumer.close()
    return found


def test_a_stream_and_history_make_the_same_table(
    spark: SparkSession, connection: Connection, run: Any, tmp_path: Path
) -> None:
    topic = new_topic(connection, "both-ways")
    orders(connection, topic, range(150))
    run(daily(topic)).stream(once=True)
    orders(connection, topic, range(150, 200))
    run(daily(topic)).stream(once=True)  # goes on at its checkpoint, with its state
    run(daily(topic)).history(parse(".."), into="offline")

    expected: Counter[str] = Counter()
    for n in range(200):
        expected[order(n)["time"][:10]] += order(n)["amount"]
    streamed = table(spark, tmp_path / "tables" / "revenue")
    assert [(str(day), amount) for day, amount in streamed] == sorted(expected.items())
    assert table(spark, tmp_path / "tables" / "offline") == streamed


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_append_holds_each_record_once_over_runs(
    form: str, spark: SparkSession, connection: Connection, run: Any, tmp_path: Path
) -> None:
    topic = new_topic(connection, f"append-{form}")
    orders(connection, topic, range(100))
    run(plain(topic, form)).stream(once=True)
    orders(connection, topic, range(100, 130))
    run(plain(topic, form)).stream(once=True)
    run(plain(topic, form)).stream(once=True)  # nothing new: nothing written
    assert table(spark, tmp_path / "tables" / "all", form) == [(n, n % 7) for n in range(130)]
    with pytest.raises(PipelineError, match="--into"):
        run(plain(topic, form)).history(parse(".."))
    day = "2026-01-02..2026-01-03"
    run(plain(topic, form)).history(parse(day), into="second-day")
    assert table(spark, tmp_path / "tables" / "second-day", form) == [
        (n, n % 7) for n in range(24, 48)
    ]


def test_what_cannot_be_a_row_lies_in_the_dead_letters_and_the_rest_goes_on(
    spark: SparkSession, connection: Connection, run: Any, tmp_path: Path
) -> None:
    topic = new_topic(connection, "bad-input")
    bad: list[bytes | None] = [
        b"{broken",
        b"",
        None,
        b'{"id": "seven", "time": "2026-01-01T00:00:00Z", "amount": 1}',
        b'{"id": 7, "time": "2026-01-01T00:00:00Z"}',
        b'{"id": 8, "time": "9999-01-01T00:00:00Z", "amount": 1}',
    ]
    put(connection, topic, bad)
    orders(connection, topic, range(6, 60))
    runner = run(daily(topic))
    runner.stream(once=True)

    letters = dead_letters(connection, daily(topic).dead_topic, len(bad))
    places = [one["headrace-message-id"].split(b"/") for one in letters]
    numbers = [int(offset) * 2 + int(partition) for _, partition, offset in places]
    by_offset = dict(zip(numbers, letters, strict=True))
    assert sorted(by_offset) == list(range(len(bad)))
    assert [by_offset[n]["value"] for n in range(len(bad))] == [value or b"" for value in bad]
    reasons = [by_offset[n]["headrace-dead-message"].decode() for n in range(len(bad))]
    assert reasons[2] == "the value is null"
    assert all("not JSON of the schema" in reasons[n] for n in (0, 1, 3)), reasons
    assert reasons[4] == "the field amount is missing"
    assert "more than 1 day after" in reasons[5]
    assert runner.dead == len(bad)
    total = sum(amount for _, amount in table(spark, tmp_path / "tables" / "revenue"))
    assert total == sum(n % 7 for n in range(6, 60))


def test_a_checkpoint_of_another_topic_is_refused(connection: Connection, run: Any) -> None:
    first, second = (new_topic(connection, name) for name in ("checkpoint-1", "checkpoint-2"))
    orders(connection, first, range(4))
    one, other = plain(first), plain(second)
    run(one).stream(once=True)
    other.name = one.name
    with pytest.raises(PipelineError, match="belongs to the topic checkpoint-1"):
        run(other).stream(once=True)


PROGRAM = """
from headrace.pipelines import Table, Topic, pipeline

SCHEMA = "id LONG NOT NULL, time TIMESTAMP NOT NULL, amount LONG NOT NULL"

@pipeline(source=Topic("killed", schema=SCHEMA, per_batch=20), sink=Table("killed"))
def killed(rows):
    return rows.select("id", "amount")
"""


def test_after_kill_9_in_mid_stream_the_table_holds_each_record_once(
    spark: SparkSession, connection: Connection, tmp_path: Path
) -> None:
    topic = new_topic(connection, "killed")
    orders(connection, topic, range(600))
    (tmp_path / "killed.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "headrace", "pipeline", "run", "killed.py:killed"]
    command += [
        "--data",
        str(tmp_path),
        "--bootstrap",
        connection.bootstrap,
        "--master",
        "local[2]",
    ]
    log = tmp_path / "tables" / "killed" / "_delta_log"
    for round_ in range(int(os.environ.get("ROUNDS", "1"))):
        before = len(list(log.glob("*.json")))
        with (tmp_path / "run.log").open("ab") as said:
            process = subprocess.Popen(command, cwd=tmp_path, stderr=said)
        try:
            deadline = time.monotonic() + 120
            # One batch of this life is in the table, the next is under way.
            while len(list(log.glob("*.json"))) < before + 2 + round_ % 2:
                assert process.poll() is None, (tmp_path / "run.log").read_text()
                assert time.monotonic() < deadline, "no batch was written"
                time.sleep(0.01)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    done = subprocess.run([*command, "--once"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert table(spark, log.parent) == [(n, n % 7) for n in range(600)]
