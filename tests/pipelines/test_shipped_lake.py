"""Any topic as a lake table: columns that grow, last values of keys, compaction, the past."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from pyspark.sql import DataFrame, SparkSession

from headrace.client.connection import Connection
from headrace.client.topics import Topics
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.shipped import lake_tables
from headrace.pipelines.shipped.topic_to_lake import Lake, LakeRunner
from tests.pipelines.conftest import MASTER, QUICK

pytestmark = pytest.mark.timeout(600)

Fill = Callable[[Lake], LakeRunner]


@pytest.fixture
def fill(spark: SparkSession, connection: Connection, tmp_path: Path) -> Fill:
    def run(lake: Lake) -> LakeRunner:
        runner = LakeRunner(
            lake=lake,
            pipeline=lake.pipeline(),
            connection=connection,
            data=tmp_path,
            say=lambda line: None,
            note=lambda line: None,
            master=MASTER,
            spark_settings=QUICK,
        )
        runner.stream(once=True)
        return runner

    return run


def put(connection: Connection, topic: str, *values: Any, keys: list[str] | None = None) -> None:
    """JSON of each value; bytes as they are, None as a tombstone."""
    refused: list[Any] = []
    told = {"on_delivery": lambda error, message: refused.append(error) if error else None}
    producer = Producer({"bootstrap.servers": connection.bootstrap} | told)
    for number, value in enumerate(values):
        body = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, body, keys[number] if keys else None)
    assert producer.flush(30) == 0
    assert not refused


def rows(table: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in table.select(*names).collect()), key=str)


def reasons(connection: Connection, topic: str, count: int) -> list[str]:
    settings = {"group.id": f"look-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": connection.bootstrap, **settings})
    consumer.subscribe([topic])
    found: list[str] = []
    for _ in range(100):
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(dict(message.headers() or [])["headrace-dead-message"].decode())
        if len(found) == count:
            break
    consumer.close()
    return sorted(found)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_columns_grow_with_the_values_and_older_versions_stay_readable(
    form: str, spark: SparkSession, connection: Connection, fill: Fill, tmp_path: Path
) -> None:
    topic = f"grow-{form}"
    Topics(connection).create(topic, partitions=1)
    lake = Lake(topic=topic, format=form)
    place = str(tmp_path / "tables" / topic)
    put(connection, topic, {"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    fill(lake)
    first = lake_tables.versions(spark, place)[-1].version
    put(
        connection,
        topic,
        {"id": 3, "name": "c", "first seen": "x", "at": {"city": "Rome"}},
        {"id": 4, "tags": [{"t": 1}], "at": {"zip": 123}},
    )
    fill(lake)
    put(
        connection,
        topic,
        b"{broken",
        [{"id": 98}, {"id": 99}],
        {"id": "five"},
        None,
        {"id": 6, "at": {"country": "it"}, "tags": [{"u": 2}]},
    )
    runner = fill(lake)

    table = lake_tables.rows_of(spark, place)
    assert set(table.columns) == {"id", "name", "first seen", "at", "tags"} | {
        "_record_key",
        "_record_partition",
        "_record_offset",
        "_record_time",
    }
    found = rows(
        table, "id", "name", "`first seen`", "at.city", "at.zip", "at.country", "_record_offset"
    )
    assert found == [
        (1, "a", None, None, None, None, 0),
        (2, "b", None, None, None, None, 1),
        (3, "c", "x", "Rome", None, None, 2),
        (4, None, None, None, 123, None, 3),
        (6, None, None, None, None, "it", 8),
    ]
    assert runner.dead == 4
    [bad_list, broken, typed, null] = reasons(connection, lake.pipeline().dead_topic, 4)
    assert bad_list == broken == "the value is no JSON object"
    assert null == "the value is null"
    assert "is not JSON of the schema" in typed

    before = lake_tables.rows_of(spark, place, version=first)
    assert rows(before, "id", "name") == [(1, "a"), (2, "b")]
    assert "at" not in before.columns

    compacted = lake_tables.compact(spark, place)
    assert compacted.files_before >= 3
    assert compacted.files_after == 1
    names = ("id", "name", "`first seen`", "at.city", "at.zip", "at.country", "_record_offset")
    assert rows(lake_tables.rows_of(spark, place), *names) == found
    assert rows(lake_tables.rows_of(spark, place, version=first), "id") == [(1,), (2,)]


def test_a_compacted_topic_becomes_a_table_of_its_last_values(
    spark: SparkSession, connection: Connection, fill: Fill, tmp_path: Path
) -> None:
    topic = "compacted"
    Topics(connection).create(topic, partitions=2, settings={"cleanup.policy": "compact"})
    lake = Lake(topic=topic, upsert=True, per_batch=7)
    expected: dict[str, dict[str, Any]] = {}
    for round_ in range(3):
        keys, values = [], []
        for n in range(12):
            key = f"k{(n * (round_ + 2)) % 9}"
            value = None if (n + round_) % 4 == 0 else {"n": n, "round": round_}
            if value is not None and round_ == 2:
                value["new"] = "yes"
            keys.append(key)
            values.append(value)
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        put(connection, topic, *values, keys=keys)
        fill(lake)
    table = lake_tables.rows_of(spark, str(tmp_path / "tables" / topic))
    found = {
        bytes(row._record_key).decode(): {
            name: row[name] for name in ("n", "round", "new") if row[name] is not None
        }
        for row in table.collect()
    }
    assert found == expected


def test_a_record_without_a_key_replaces_nothing(
    spark: SparkSession, connection: Connection, fill: Fill, tmp_path: Path
) -> None:
    topic = "keyless"  # on a compacted topic the broker refuses them
    Topics(connection).create(topic, partitions=1)
    lake = Lake(topic=topic, upsert=True)
    put(connection, topic, {"n": 1})
    put(connection, topic, {"n": 2}, keys=["k"])
    assert fill(lake).dead == 1
    assert reasons(connection, lake.pipeline().dead_topic, 1) == ["the key is null"]
    table = lake_tables.rows_of(spark, str(tmp_path / "tables" / topic))
    assert rows(table, "n") == [(2,)]


def test_types_can_be_pinned_before_the_first_value_comes(
    spark: SparkSession, connection: Connection, fill: Fill, tmp_path: Path
) -> None:
    topic = "pinned"
    Topics(connection).create(topic, partitions=1)
    lake = Lake(topic=topic, schema="amount DOUBLE, at TIMESTAMP")
    put(connection, topic, {"amount": 1}, {}, {"Amount": 2, "_record_offset": 7, "_file": 1})
    fill(lake)
    put(connection, topic, {"amount": 12.5, "at": "2026-01-01T00:00:00Z"})
    runner = fill(lake)
    table = lake_tables.rows_of(spark, str(tmp_path / "tables" / topic))
    assert runner.dead == 0
    assert dict(table.dtypes)["at"] == "timestamp"
    assert rows(table, "amount", "_record_offset") == [(1.0, 0), (12.5, 3), (None, 1), (None, 2)]


def test_avro_values(
    spark: SparkSession, connection: Connection, fill: Fill, tmp_path: Path
) -> None:
    topic = "avro-lake"
    Topics(connection).create(topic, partitions=1)
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    schema = {"type": "record", "name": "One", "fields": fields}
    put(connection, topic, b"\x02\x06abc", b"\x04\x02x")
    fill(Lake(topic=topic, values="avro", schema=json.dumps(schema)))
    grown = {"name": "more", "type": ["null", "string"], "default": None}
    wider = json.dumps(schema | {"fields": [*fields, grown]})
    put(connection, topic, b"\x06\x02y\x02\x04hi", b"\xff")
    runner = fill(Lake(topic=topic, values="avro", schema=wider))
    table = lake_tables.rows_of(spark, str(tmp_path / "tables" / topic))
    assert rows(table, "id", "name", "more") == [(1, "abc", None), (2, "x", None), (3, "y", "hi")]
    assert runner.dead == 1


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(PipelineError, match="Delta tables only"):
        Lake(topic="t", format="iceberg", upsert=True)
    with pytest.raises(PipelineError, match="one of delta, iceberg"):
        Lake(topic="t", format="parquet")
    with pytest.raises(PipelineError, match="need their Avro schema"):
        Lake(topic="t", values="avro")
    with pytest.raises(PipelineError, match="no Delta or Iceberg table"):
        lake_tables.format_of("/nowhere")
