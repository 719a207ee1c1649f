"""Bad records that are larger than a producer or the topic of dead letters takes by default."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.pipelines import Table
from tests.pipelines.conftest import Run
from tests.pipelines.orders import expected, orders, read, rows_into, table

pytestmark = pytest.mark.timeout(1200)

LARGE = 4 << 20
BROKEN = b"{" + b"x" * 2_000_000


def large_topic(connection: ClientSettings, name: str) -> str:
    settings = {"retention.ms": "-1", "max.message.bytes": str(LARGE)}
    Topics(connection).create(name, partitions=2, settings=settings)
    return name


def put_broken(connection: ClientSettings, topic: str, **more: Any) -> None:
    settings = {"bootstrap.servers": connection.bootstrap, "message.max.bytes": LARGE}
    producer = Producer(settings)
    producer.produce(topic, BROKEN, partition=0, timestamp=1_767_225_600_000, **more)
    assert producer.flush(120) == 0


def test_a_large_bad_record_is_a_whole_letter_where_its_topic_is_ours_to_make(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = large_topic(connection, "large-whole")
    made = rows_into(Table("large"), topic)
    put_broken(connection, topic, key=b"k", headers=[("own", b"1")])
    orders(connection.bootstrap, topic, range(5))
    runner = run(made)
    runner.stream(once=True)
    assert table(spark, tmp_path / "tables" / "large") == expected(range(5))
    [letter] = read(connection.bootstrap, made.dead_topic, 1)
    assert runner.dead == 1
    assert (letter["value"], letter["key"], letter["own"]) == (BROKEN, b"k", b"1")
    assert "headrace-dead-cut" not in letter


@pytest.mark.parametrize("key", [b"k", b"k" * 5_000])
def test_what_does_not_fit_is_cut_and_says_its_size_and_hash(
    key: bytes, spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = large_topic(connection, f"large-cut-{len(key)}")
    made = rows_into(Table("cut"), topic)
    Topics(connection).create(made.dead_topic, partitions=1)
    put_broken(connection, topic, key=key, headers=[("own", b"1")])
    orders(connection.bootstrap, topic, range(5))
    runner = run(made)
    runner.stream(once=True)
    assert table(spark, tmp_path / "tables" / "cut") == expected(range(5))
    [letter] = read(connection.bootstrap, made.dead_topic, 1)
    assert runner.dead == 1
    assert (
        letter["headrace-dead-offset"] == b"0" and letter["headrace-dead-topic"].decode() == topic
    )
    assert 1_000_000 < len(letter["value"]) < 1_048_588 and BROKEN.startswith(letter["value"])
    assert letter["key"] == (key if len(key) == 1 else None) and "own" not in letter
    cut = json.loads(letter["headrace-dead-cut"])
    assert cut["sha256"] == hashlib.sha256(BROKEN).hexdigest()
    assert cut["bytes"] >= len(BROKEN) + len(key)
