"""Any topic as a lake table: columns that grow, last values of keys, compaction, the past."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from headrace.cli.failure import Failure
from headrace.cli.main import app
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.pipelines.declaration import Table
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.shipped import lake_tables, topic_to_lake
from headrace.pipelines.shipped.topic_to_lake import Lake
from headrace.pipelines.sinks import deleted_keys
from headrace.pipelines.sinks.latest import ByOffset
from headrace.pipelines.sinks.table_writer import DELETED, TableWriter
from headrace.pipelines.stream.folder import Folder
from headrace.pipelines.stream.runner import Runner
from tests.pipelines import lakes
from tests.pipelines.orders import BEGAN_MS, MASTER, QUICK, forget_last_batch, read

pytestmark = pytest.mark.timeout(1200)

Fill = Callable[[Lake], Runner]
OF_THE_RECORD = {"_record_key", "_record_partition", "_record_offset", "_record_time"}


@pytest.fixture
def fill(spark: SparkSession, connection: ClientSettings, tmp_path: Path) -> Fill:
    def run(lake: Lake) -> Runner:
        return lakes.fill(lake, connection, tmp_path)

    return run


Value = dict[str, Any] | list[Any] | bytes | None


def put(
    connection: ClientSettings, topic: str, *values: Value, keys: Sequence[str | None] = ()
) -> None:
    """JSON of each value; bytes as they are, None as a tombstone."""
    refused: list[Any] = []
    told = {"on_delivery": lambda error, message: refused.append(error) if error else None}
    producer = Producer({"bootstrap.servers": connection.bootstrap} | told)
    for number, value in enumerate(values):
        body = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, body, keys[number] if keys else None)
    assert producer.flush(120) == 0
    assert not refused


def rows(table: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in table.select(*names).collect()), key=str)


def reasons(connection: ClientSettings, lake: Lake, count: int) -> list[str]:
    letters = read(connection.bootstrap, lake.pipeline().dead_topic, count)
    return sorted(letter["headrace-dead-message"].decode() for letter in letters)


class LakeCommand:
    """`headrace lake WORDS` in this process, on the Spark that is there."""

    def __init__(self, data: Path) -> None:
        self.rest = ["--data", str(data), "--master", MASTER]
        self.rest += [word for pair in QUICK.items() for word in ("--spark", "=".join(pair))]

    def __call__(self, *words: str) -> str:
        done = CliRunner().invoke(app, ["lake", *words, *self.rest])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))

    def failure(self, *words: str) -> str:
        done = CliRunner().invoke(app, ["lake", *words, *self.rest])
        assert isinstance(done.exception, Failure), (done.output, done.exception)
        return str(done.exception)


@pytest.fixture
def old_versions_may_go_at_once(spark: SparkSession) -> Iterator[None]:
    """Delta itself wants a week."""
    name = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(name, "false")
    yield
    spark.conf.unset(name)


@pytest.fixture
def far_west(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process; moments are in UTC all the same."""
    monkeypatch.setenv("TZ", "PST8")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_west", "old_versions_may_go_at_once")
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_columns_grow_and_the_past_stays_readable_until_it_is_forgotten(
    form: str, spark: SparkSession, connection: ClientSettings, fill: Fill, tmp_path: Path
) -> None:
    topic = f"grow-{form}"
    Topics(connection).create(topic, partitions=1)
    lake, place = Lake(topic=topic, format=form), str(tmp_path / "tables" / topic)
    command = LakeCommand(tmp_path)
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 1))
    one = {"id": 1, "name": "a", "at": {"city": "Rome"}}
    put(connection, topic, one, {"id": 2, "name": "b"})
    fill(lake)
    first = lake_tables.versions(spark, place)[-1]

    put(
        connection,
        topic,
        {"id": 3, "name": "c", "first seen": "x", "at": {"city": "Oslo", "zip": 123}},  # new ones
        {"id": 4, "tags": [{"t": 1}]},  # the name is gone
        b"{broken",
        [{"id": 98}, {"id": 99}],
        {"id": "five"},  # another type
        None,
        {"id": 6, "tags": [{"u": 2}]},
    )
    runner = fill(lake)
    forget_last_batch(tmp_path, runner.pipeline.name)  # killed before its checkpoint: once more
    assert fill(lake).dead == 8  # letters are written at least once, rows once
    table = lake_tables.rows_of(spark, place)
    names = ("id", "name", "`first seen`", "at.city", "at.zip", "tags", "_record_offset")
    held = [
        (1, "a", None, "Rome", None, None, 0),
        (2, "b", None, None, None, None, 1),
        (3, "c", "x", "Oslo", 123, None, 2),
        (4, None, None, None, None, [(1, None)], 3),
        (6, None, None, None, None, [(None, 2)], 8),
    ]
    assert set(table.columns) == {"id", "name", "first seen", "at", "tags"} | OF_THE_RECORD
    assert rows(table, *names) == held
    [typed, bad_list, broken, null] = reasons(connection, lake, 4)
    assert bad_list == broken == "the value is not a JSON object"
    assert null == "the value is null"
    assert typed.startswith("the field ") and ", which is no " in typed

    # The past, by its version and by the moment that the list of versions says.
    before = lake_tables.rows_of(spark, place, version=first.version)
    assert rows(before, "id", "name") == [(1, "a"), (2, "b")]
    assert set(before.columns) == {"id", "name", "at"} | OF_THE_RECORD
    listed = {row["version"]: row["time"] for row in command.json("versions", topic)}
    [shown, _] = command.json("show", topic, "--at", listed[first.version], "--order", "id")
    assert (shown["id"], shown["at"], shown["_record_offset"]) == (1, {"city": "Rome"}, 0)
    assert shown["_record_time"] > began.replace("T", " ").rstrip("Z")
    assert len(command.json("show", topic, "--at", "2999-01-01T00:00:00Z")) == 5
    assert "its first version is of 20" in command.failure("show", topic, "--at", "2020-01-01")
    assert "is not a time" in command.failure("show", topic, "--at", "yesterday")

    # Few files in place of many, then only those of the last version.
    done = command.json("compact", topic)
    assert done["files_before"] >= 2
    assert done["files_after"] == 1
    assert rows(lake_tables.rows_of(spark, place), *names) == held
    assert rows(lake_tables.rows_of(spark, place, version=first.version), "id") == [(1,), (2,)]
    removed = lake_tables.forget(spark, place, hours=0)
    assert removed is not None and removed >= 2
    assert rows(lake_tables.rows_of(spark, place), *names) == held
    with pytest.raises(PipelineError), lake_tables.explained():
        lake_tables.rows_of(spark, place, version=first.version).collect()

    if (
        form == "iceberg"
    ):  # its memory of the last batch, which Delta keeps elsewhere, outlives that
        forget_last_batch(tmp_path, runner.pipeline.name)
        fill(lake)
        assert rows(lake_tables.rows_of(spark, place), *names) == held


def test_the_last_value_of_each_key(
    spark: SparkSession, connection: ClientSettings, fill: Fill, tmp_path: Path
) -> None:
    topic = "last-values"
    Topics(connection).create(topic, partitions=2)
    lake = Lake(topic=topic, upsert=True, per_batch=20)
    expected: dict[str, dict[str, Any]] = {}
    for round_ in range(2):
        keys: list[str | None] = [None] if round_ else []
        values: list[Value] = [{"n": -1}] if round_ else []  # a record without a key
        for n in range(12):
            key = f"k{(n * (round_ + 2)) % 9}"
            value = None if (n + round_) % 4 == 0 else {"n": n, "at": {"round": round_}}
            if value is not None and round_ == 1:
                value |= {"new": "yes"}
            keys.append(key)
            values.append(value)
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
        put(connection, topic, *values, keys=keys)
        runner = fill(lake)
    forget_last_batch(tmp_path, runner.pipeline.name)
    runner = fill(lake)
    place = str(tmp_path / "tables" / topic)
    found = {
        bytes(row["_record_key"]).decode(): {
            name: value for name, value in row.asDict(True).items() if name not in OF_THE_RECORD
        }
        for row in lake_tables.rows_of(spark, place).collect()
    }
    assert {k: {n: v for n, v in row.items() if v is not None} for k, row in found.items()} == (
        expected
    )
    assert reasons(connection, lake, 1) == ["the key is null"]
    [detail] = spark.sql(f"DESCRIBE DETAIL delta.`{place}`").collect()
    assert (detail["properties"], detail["minReaderVersion"]) == ({}, 1)  # any reader can read it
    # Before the second round: what it deleted was there, what it added was not.
    old = lake_tables.versions(spark, place)[1].version
    assert "new" not in lake_tables.rows_of(spark, place, version=old).columns


TWICE = [  # keys in two partitions, as partitions were added: partition, offset, time, key, n
    (0, 0, 50, "gone", 1),
    (0, 1, 50, "back", 2),
    (1, 0, 60, "gone", None),
    (1, 1, 60, "back", None),
    (1, 2, 60, "never", None),
    (0, 2, 55, "gone", 3),
    (0, 3, 55, "never", 4),
    (0, 4, 70, "back", 5),
]


def test_an_older_value_does_not_bring_back_what_was_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However records fall into batches, also if a batch is done twice."""
    monkeypatch.setattr(deleted_keys, "MOST_FOLDERS", 0)
    latest = ByOffset("_record_partition", "_record_offset", "_record_time")
    sink = Table("t", mode="upsert", key="_record_key")
    into = TableWriter(sink, str(tmp_path / "t"), print, "begin anew")
    folder = tmp_path / "deleted"
    into.deleted = deleted_keys.DeletedKeys(folder, latest, sink.keys, DELETED)
    for begin, end in [(0, 2), (2, 5), (2, 5), (5, 8)]:
        batch = spark.createDataFrame(
            [(key.encode(), p, o, t, n, n is None) for p, o, t, key, n in TWICE[begin:end]],
            "_record_key BINARY, _record_partition INT, _record_offset LONG, _record_time INT,"
            f" n INT, {DELETED} BOOLEAN",
        )
        into.write(batch, ("stream", begin), latest)
    found = spark.read.format("delta").load(str(tmp_path / "t"))
    assert rows(found, "_record_key", "n") == [(bytearray(b"back"), 5)]
    assert [one.name[:9] for one in folder.iterdir()] == ["gathered-"]


def test_a_stream_remembers_what_it_deleted(
    spark: SparkSession, connection: ClientSettings, fill: Fill, tmp_path: Path
) -> None:
    topic = "remembered"
    Topics(connection).create(topic, partitions=2, settings={"retention.ms": "-1"})
    lake = Lake(topic=topic, upsert=True)
    for part in (TWICE[2:3], TWICE[5:]):
        producer = Producer({"bootstrap.servers": connection.bootstrap})
        for partition, _, second, key, n in part:
            body = None if n is None else b'{"n": %d}' % n
            at_ms = BEGAN_MS + 1000 * second
            producer.produce(topic, body, key, partition=partition, timestamp=at_ms)
        assert producer.flush(60) == 0
        fill(lake)
    found = lake_tables.rows_of(spark, str(tmp_path / "tables" / topic))
    assert [n for (n,) in rows(found, "n")] == [4, 5]


def test_offsets_of_two_topics_are_not_compared(
    spark: SparkSession, connection: ClientSettings, fill: Fill, tmp_path: Path
) -> None:
    """One that was created again begins at 0: its values would be older than all that are there."""
    topic, other = "created-again", "beside-it"
    lake = Lake(topic=topic, upsert=True)
    for name in (topic, other):
        Topics(connection).create(name, partitions=1)
    put(connection, topic, *({"n": n} for n in range(3)), keys=["a", "a", "b"])
    fill(lake)
    put(connection, other, {"n": 7}, keys=["a"])
    with pytest.raises(PipelineError, match="has rows of another topic.*--table NAME"):
        fill(Lake(topic=other, table=topic, upsert=True))
    folder = Folder(tmp_path, lake.pipeline().name)
    folder.reset(table=False)
    fill(lake)  # the same topic from its beginning
    Topics(connection).delete(topic)
    Topics(connection).create(topic, partitions=1)
    put(connection, topic, {"n": 8}, None, keys=["a", "b"])
    folder.reset(table=False)
    with pytest.raises(PipelineError, match=f"or of {topic} before.*reset {folder.name} --table"):
        fill(lake)
    place = str(tmp_path / "tables" / topic)
    assert rows(lake_tables.rows_of(spark, place), "n") == [(1,), (2,)]
    folder.reset(table=True)
    fill(lake)
    assert rows(lake_tables.rows_of(spark, place), "n") == [(8,)]


def test_types_can_be_pinned_before_the_first_value_comes(
    spark: SparkSession, connection: ClientSettings, fill: Fill, tmp_path: Path
) -> None:
    topic = "pinned"
    Topics(connection).create(topic, partitions=1)
    # An address of a table, as one in an object store would be.
    place = (tmp_path / "elsewhere").as_uri()
    lake = Lake(topic=topic, table=place, schema="amount DOUBLE, at TIMESTAMP")
    odd = {"Amount": 2, "_record_offset": 7, "_file": 1}
    put(connection, topic, {"amount": 1}, {}, odd, {"amount": 12.5, "at": "2026-01-01T00:00:00Z"})
    assert fill(lake).dead == 1
    [upper] = reasons(connection, lake, 1)
    assert upper.startswith("the field Amount differs from the column amount only in case")
    table = lake_tables.rows_of(spark, place)
    assert dict(table.dtypes)["at"] == "timestamp"
    assert rows(table, "amount", "_record_offset") == [(1.0, 0), (12.5, 3), (None, 1)]
    put(connection, topic, {"amount": 3})
    with pytest.raises(PipelineError, match="amount is double, not string: fill another one"):
        fill(Lake(topic=topic, table=place, schema="amount STRING"))


def avro(*fields: tuple[str, Any]) -> str:
    named = [{"name": name, "type": kind, "default": None} for name, kind in fields[1:]]
    first = {"name": fields[0][0], "type": fields[0][1]}
    return json.dumps({"type": "record", "name": "One", "fields": [first, *named]})


def text(value: str) -> bytes:
    """As Avro writes it where it may be null."""
    return b"\x02" + bytes([2 * len(value)]) + value.encode()


def test_avro_values_whose_schema_changes(
    spark: SparkSession, connection: ClientSettings, fill: Fill, tmp_path: Path
) -> None:
    topic, optional = "avro-lake", ["null", "string"]
    Topics(connection).create(topic, partitions=1)

    def lake(*fields: tuple[str, Any]) -> Lake:
        return Lake(topic=topic, values="avro", schema=avro(*fields), upsert=True)

    put(connection, topic, b"\x02" + text("abc"), b"\x04" + text("x"), keys=["a", "b"])
    fill(lake(("id", "long"), ("name", optional)))
    put(connection, topic, b"\x06" + text("hi"), b"\xff", None, keys=["a", "c", "b"])
    runner = fill(lake(("id", "long"), ("more", optional)))
    place = str(tmp_path / "tables" / topic)
    assert rows(lake_tables.rows_of(spark, place), "id", "name", "more") == [(3, None, "hi")]
    assert runner.dead == 1
    assert reasons(connection, lake(("id", "long")), 1) == ["the value is not Avro of the schema"]
    old = lake_tables.versions(spark, place)[1].version
    assert rows(lake_tables.rows_of(spark, place, version=old), "id", "name") == [
        (1, "abc"),
        (2, "x"),
    ]
    put(connection, topic, b"\x02x", keys=["a"])
    whole = avro(("id", "long"))
    with pytest.raises(PipelineError, match="read values as avro until now, not as confluent-avro"):
        fill(Lake(topic=topic, values="confluent-avro", schema=whole, upsert=True))
    with pytest.raises(PipelineError, match="id is bigint, not string: write to another table"):
        fill(lake(("id", "string")))


def test_iceberg_widens_a_number_of_avro(
    spark: SparkSession, connection: ClientSettings, fill: Fill, tmp_path: Path
) -> None:
    topic = "avro-iceberg"
    Topics(connection).create(topic, partitions=1)
    put(connection, topic, b"\x02")
    fill(Lake(topic=topic, values="avro", schema=avro(("id", "int")), format="iceberg"))
    put(connection, topic, b"\x04\x02\x06abc")
    wider = avro(("id", "long"), ("name", ["null", "string"]))
    fill(Lake(topic=topic, values="avro", schema=wider, format="iceberg"))
    table = lake_tables.rows_of(spark, str(tmp_path / "tables" / topic))
    assert dict(table.dtypes)["id"] == "bigint"
    assert rows(table, "id", "name") == [(1, None), (2, "abc")]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(PipelineError, match="Delta tables only"):
        Lake(topic="t", format="iceberg", upsert=True)
    with pytest.raises(PipelineError, match="one of delta, iceberg"):
        Lake(topic="t", format="parquet")
    with pytest.raises(PipelineError, match="one of json, avro, confluent-avro"):
        Lake(topic="t", values="xml")
    with pytest.raises(PipelineError, match="need their Avro schema"):
        Lake(topic="t", values="avro")
    with pytest.raises(PipelineError, match="no Delta or Iceberg table"):
        lake_tables.must_be_there("/nowhere")


def test_what_is_forgotten_is_as_old_as_said_in_every_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "zone")
    into = TableWriter(Table("zone", format="iceberg"), place, print, "begin anew")
    for n in range(2):
        into.write(spark.range(n, n + 1), ("stream", n))
    before = lake_tables.versions(spark, place)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        lake_tables.forget(spark, place, hours=2)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert lake_tables.versions(spark, place) == before


def test_a_table_does_not_grow_without_end(
    spark: SparkSession,
    connection: ClientSettings,
    fill: Fill,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_to_lake, "MOST_FIELDS", 5)
    topic = "wide"
    Topics(connection).create(topic, partitions=1)
    put(connection, topic, {"id": 1, "prices": {f"shop {n}": n for n in range(9)}})
    fill(Lake(topic=topic, schema="id LONG"))
    table = lake_tables.rows_of(spark, str(tmp_path / "tables" / topic))
    assert set(table.columns) == {"id"} | OF_THE_RECORD
    assert rows(table, "id") == [(1,)]
