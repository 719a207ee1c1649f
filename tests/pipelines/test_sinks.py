"""Each sink over orderly restarts, and when a batch is written again after a kill."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.consumer.fetched import headers_of
from headrace.pipelines import Jdbc, Table, Topic, pipeline
from headrace.pipelines.declaration import Pipeline, Sink
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.sinks.table_writer import TableWriter
from headrace.pipelines.sinks.to_topic import outgoing
from headrace.pipelines.stream.folder import Folder
from headrace.pipelines.stream.span import parse
from tests.pipelines.conftest import Run
from tests.pipelines.orders import (
    SCHEMA,
    expected,
    forget_last_batch,
    new_topic,
    orders,
    put,
    read,
    rows_into,
    table,
)
from tests.services.servers import Postgres

pytestmark = pytest.mark.timeout(1200)


def url_of(server: Postgres) -> str:
    return f"jdbc:postgresql://{server.place}"


def in_database(server: Postgres, what: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(f"postgresql://headrace@{server.place}") as connection:
        return sorted(connection.execute(what).fetchall())


@pytest.mark.parametrize("form", ["delta", "iceberg", "parquet"])
def test_append_holds_each_record_once_over_runs(
    form: str, spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, f"append-{form}")
    made = rows_into(Table("all", format=form), topic)
    orders(connection.bootstrap, topic, range(100))
    run(made).stream(once=True)
    orders(connection.bootstrap, topic, range(100, 130))
    run(made).stream(once=True)
    run(made).stream(once=True)  # nothing new: nothing written
    place = tmp_path / "tables" / "all"
    assert table(spark, place, form) == expected(range(130))
    forget_last_batch(tmp_path, topic)
    run(made).stream(once=True)  # the last batch again
    assert table(spark, place, form) == expected(range(130))
    with pytest.raises(PipelineError, match="--into"):
        run(made).history(parse(".."))


def test_each_batch_of_narrower_numbers_goes_into_the_wider_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "wide")
    spark.sql("SELECT 0L AS n, 0D AS x").write.format("delta").save(place)
    into = TableWriter(Table("wide"), place, print, "begin anew")
    for n in range(1, 4):
        into.write(spark.sql(f"SELECT {n} AS n, CAST({n} AS FLOAT) AS x"), ("stream", n))
    assert table(spark, place) == [(n, float(n)) for n in range(4)]


def test_lists_and_maps_of_what_is_never_null_are_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As `collect_list(struct("id"))` is, where the schema says that id is there."""
    place = str(tmp_path / "lists")
    into = TableWriter(Table("lists"), place, print, "begin anew")
    into.write(spark.sql("SELECT array(named_struct('a', 1)) AS l"), ("stream", 0))
    more = "array(named_struct('a', 2)) AS l, map('k', named_struct('b', 3)) AS m"
    into.write(spark.sql(f"SELECT {more}"), ("stream", 1))
    held = spark.read.format("delta").load(place).orderBy("l").collect()
    assert [row.asDict(recursive=True) for row in held] == [
        {"l": [{"a": 1}], "m": None},
        {"l": [{"a": 2}], "m": {"k": {"b": 3}}},
    ]


def test_iceberg_tables_take_partitions_and_begin_anew_after_a_reset(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "parts")
    made = rows_into(Table("parts", format="iceberg", partition_by=("amount",)), topic)
    orders(connection.bootstrap, topic, range(20))
    run(made).stream(once=True)
    folder = Folder(tmp_path, topic)
    folder.reset(table=False, keep_rows=True)
    run(made).stream(once=True)  # another stream: its first batch is not taken for the old one
    place = tmp_path / "tables" / "parts"
    assert table(spark, place, "iceberg") == sorted(expected(range(20)) * 2)
    assert len(list(place.glob("data/amount=3/*.parquet"))) >= 2
    folder.reset(table=True)
    assert not place.exists()


def test_postgresql_keeps_one_row_per_key_and_takes_each_batch_once(
    connection: ClientSettings, run: Run, tmp_path: Path, postgres: Postgres
) -> None:
    stages = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'headrace_stage%'"
    of_others = in_database(postgres, stages)  # the server has refused batches of other tests
    topic = new_topic(connection, "to-postgres")
    orders(connection.bootstrap, topic, range(100))
    sinks: list[Sink] = [
        Jdbc("appended", url=url_of(postgres), options={"user": "headrace"}),
        Jdbc("by_key", url=url_of(postgres), key="id", options={"user": "headrace"}),
    ]
    made: list[Pipeline] = []
    for number, sink in enumerate(sinks):
        one = rows_into(sink, topic)
        one.name = f"{topic}-{number}"
        made.append(one)
        run(one).stream(once=True)
        forget_last_batch(tmp_path, one.name)
        run(one).stream(once=True)
    assert in_database(postgres, "SELECT id, amount FROM appended") == expected(range(100))
    assert in_database(postgres, "SELECT id, amount FROM by_key") == expected(range(100))
    assert in_database(postgres, stages) == of_others
    run(made[1]).history(parse(".."), into="again")
    assert in_database(postgres, "SELECT count(*) FROM again") == [(100,)]
    put(connection.bootstrap, topic, [b'{"id": 5, "time": "2026-01-09T00:00:00Z", "amount": 70}'])
    run(made[1]).stream(once=True)
    assert in_database(postgres, "SELECT amount FROM by_key WHERE id = 5") == [(70,)]
    with pytest.raises(PipelineError, match="--into"):
        run(made[0]).history(parse(".."))
    state = Folder(tmp_path, made[0].name).state
    kept = shutil.move(state, tmp_path / "kept")
    with pytest.raises(PipelineError, match="appended has rows of an earlier run.*--keep-rows"):
        run(made[0]).stream(once=True)
    shutil.rmtree(state)
    shutil.move(kept, state)
    with psycopg.connect(f"postgresql://headrace@{postgres.place}") as database:
        database.execute("DROP TABLE appended")
    with pytest.raises(PipelineError, match="appended is gone, and the checkpoint"):
        run(made[0]).stream(once=True)


def test_what_postgresql_refuses_is_said_in_a_sentence(
    connection: ClientSettings, run: Run, postgres: Postgres
) -> None:
    topic = new_topic(connection, "refused-by-postgres")
    twice = [b'{"id": 1, "time": "2026-01-01T00:00:00Z", "amount": %d}' % n for n in (1, 2)]
    put(connection.bootstrap, topic, list(twice))
    with psycopg.connect(f"postgresql://headrace@{postgres.place}") as database:
        database.execute("CREATE TABLE no_index (id bigint, amount bigint)")
    reasons = {
        "no_index": "no unique index on id",
        "twice_in_one": "two rows with the same key",
    }
    for name, reason in reasons.items():
        one = rows_into(
            Jdbc(name, url=url_of(postgres), key="id", options={"user": "headrace"}), topic
        )
        one.name = name.replace("_", "-")
        with pytest.raises(PipelineError, match=reason):
            run(one).stream(once=True)
    gone = rows_into(Jdbc("a", url="jdbc:postgresql://127.0.0.1:1/x", key="id"), topic)
    gone.name = "nobody-there"
    with pytest.raises(PipelineError, match="did not take a batch: .*refused"):
        run(gone).stream(once=True)


def test_a_topic_gets_each_row_with_an_id_that_stays_the_same_when_it_is_written_again(
    connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "to-topic")
    orders(connection.bootstrap, topic, range(70))
    source = Topic(topic, schema=SCHEMA, per_batch=40)

    @pipeline(source=source, sink=Topic("totals", key="kind"), name=topic)
    def totals(rows: DataFrame) -> DataFrame:
        return rows.repartition(3).select(F.col("amount").alias("kind"), "id")

    run(totals).stream(once=True)
    first = read(connection.bootstrap, "totals", 70)
    again = 70 - 40
    last = forget_last_batch(tmp_path, topic)
    run(totals).stream(once=True)
    both = read_all(connection, "totals", 70 + again)
    ids: Counter[bytes] = Counter(one["headrace-message-id"] for one in both)
    assert len(ids) == 70 and sorted(set(ids.values())) == [1, 2]
    values = {one["headrace-message-id"]: one["value"] for one in first}
    assert {one["headrace-message-id"]: one["value"] for one in both} == values
    assert sorted(json.loads(value)["id"] for value in values.values()) == list(range(70))
    stream, batch, partition, number = next(iter(ids)).decode().split("/")
    assert stream.startswith(f"headrace.{topic}.") and int(batch) in (0, last)
    assert int(partition) < 4 and int(number) < 40
    assert all(one["key"] == str(json.loads(one["value"])["kind"]).encode() for one in first)


def test_a_topic_gets_all_digits_of_a_time_and_the_nulls(spark: SparkSession) -> None:
    made = spark.sql(
        "SELECT timestamp'2026-10-25 00:30:00.123456Z' AS at, named_struct('at', "
        "timestamp_ntz'2026-01-01 00:00:00.000001', 'no', CAST(NULL AS INT)) AS within, "
        "CAST(NULL AS STRING) AS no, 1.50BD AS price, date'2026-01-02' AS day"
    )
    written = {
        "at": "2026-10-25T00:30:00.123456Z",
        "within": {"at": "2026-01-01T00:00:00.000001", "no": None},
        "no": None,
        "price": 1.50,
        "day": "2026-01-02",
    }
    for key, text in {
        "at": "2026-10-25T00:30:00.123456Z",
        "within": '{"at":"2026-01-01T00:00:00.000001","no":null}',
        "no": None,
        "price": "1.50",
        "day": "2026-01-02",
    }.items():
        [row] = outgoing(made, Topic("t", key=key)).collect()
        assert (row["key"], json.loads(row["value"])) == (text, written)
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:  # the hour that comes twice is told by its offset
        [row] = outgoing(made.select("at", "no"), Topic("t", key="at", nulls=False)).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert (
        json.loads(row["value"]) == {"at": row["key"]} == {"at": "2026-10-25T02:30:00.123456+02:00"}
    )


def read_all(connection: ClientSettings, topic: str, count: int) -> list[dict[str, Any]]:
    """From the beginning, whatever was read before."""
    [described] = Topics(connection).describe([topic])
    held = sum((one.end_offset or 0) for one in described.partitions)
    assert held == count
    from confluent_kafka import Consumer, TopicPartition

    settings = {"group.id": "again", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": connection.bootstrap, **settings})
    consumer.assign([TopicPartition(topic, one.partition, 0) for one in described.partitions])
    found = []
    while len(found) < count:
        message = consumer.poll(120)
        assert message is not None and message.error() is None
        whole = {"key": message.key(), "value": message.value()}
        found.append(dict(headers_of(message)) | whole)
    consumer.close()
    return found


def test_upsert_keeps_the_newest_row_of_a_key_and_says_if_it_cannot_know(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "newest")
    made_up = b'{"id": %d, "time": "2026-01-0%dT00:00:00Z", "amount": %d}'
    put(connection.bootstrap, topic, [made_up % (n % 2, 9 - n, n) for n in range(6)])
    source = Topic(topic, schema=SCHEMA)
    known = Table("known", mode="upsert", key="id", newest="time")
    run(pipeline(source=source, sink=known, name="knows")(lambda rows: rows)).stream(once=True)
    rows = table(spark, tmp_path / "tables" / "known")
    assert [(row[0], row[2]) for row in rows] == [(0, 0), (1, 1)]
    guess = Table("guess", mode="upsert", key="id")
    with pytest.raises(PipelineError, match="two rows with the same key.*newest="):
        run(pipeline(source=source, sink=guess, name="guesses")(lambda rows: rows)).stream(
            once=True
        )


def test_an_empty_text_and_null_are_never_one_row(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "parts")
    sink = Table("parts", mode="upsert", key=("id", "land"), partition_by=("land",))
    into = TableWriter(sink, place, print, "begin anew")
    known = spark.createDataFrame([(1, None, 5), (1, "at", 6)], "id INT, land STRING, n INT")
    for _ in range(2):
        into.write(known, None)
    both = spark.createDataFrame([(1, "", 7), (1, None, 8)], known.schema)
    with pytest.raises(PipelineError, match="empty text in land, by.*out of partition_by="):
        into.write(both, None)
    # Delta goes on with the partitions of a table when partition_by= is left out later.
    for now in (replace(sink, partition_by=()), Table("parts")):
        with pytest.raises(Exception, match="empty text in land, by.*new table"):
            TableWriter(now, place, print, "begin anew").write(both, None)
    held = [tuple(row) for row in spark.read.format("delta").load(place).collect()]
    assert sorted(held, key=str) == [(1, "at", 6), (1, None, 5)]


def test_an_appended_row_is_not_put_into_the_partition_of_null_for_an_empty_text(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "empty-parts")
    orders(connection.bootstrap, topic, range(3))
    for form in ("delta", "parquet", "iceberg"):
        name = f"empty-{form}"
        sink = Table(name, format=form, partition_by=("land",))

        @pipeline(source=Topic(topic, schema=SCHEMA), sink=sink, name=name)
        def made(rows: DataFrame) -> DataFrame:
            land = F.when(F.col("id") == 1, "").otherwise("at").alias("land")
            return rows.select("id", land)

        place = tmp_path / "tables" / name
        if form == "iceberg":  # keeps both
            run(made).stream(once=True)
            assert table(spark, place, form) == [(0, "at"), (1, ""), (2, "at")]
            continue
        with pytest.raises(PipelineError, match=f"{name} has an empty text in land, by which"):
            run(made).stream(once=True)
        if form == "delta":
            assert table(spark, place, form) == []
