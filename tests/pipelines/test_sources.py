"""Tables as sources, and what values become: inferred, VARIANT, Avro."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.client.connection import ClientSettings
from headrace.pipelines import Table, Topic, pipeline
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream.folder import Folder
from headrace.pipelines.stream.span import parse
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

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize(
    "form", ["delta", "iceberg", pytest.param("parquet", marks=pytest.mark.full)]
)
def test_a_table_is_read_as_a_stream_and_as_history(
    form: str, spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, f"first-{form}")
    timed = Topic(topic, schema=SCHEMA)
    first = pipeline(source=timed, sink=Table("first", format=form), name=topic)(lambda rows: rows)
    source = Table("first", format=form, event_time="time", late="1 hour")

    @pipeline(source=source, sink=Table("second"), name=f"second-{form}")
    def second(rows: DataFrame) -> DataFrame:
        return rows.select("id", "amount")

    with pytest.raises(PipelineError, match="There is no table"):
        run(second).stream(once=True)
    for numbers in (range(70), range(70, 100)):
        orders(connection.bootstrap, topic, numbers)
        run(first).stream(once=True)
        run(second).stream(once=True)
    assert table(spark, tmp_path / "tables" / "second") == expected(range(100))
    run(second).history(parse("2026-01-01..2026-01-01T07:00:00Z"), into="seven")
    assert table(spark, tmp_path / "tables" / "seven") == expected(range(7))
    if form == "delta":
        counted_from_a_table(source, spark, run, tmp_path)


def counted_from_a_table(source: Table, spark: SparkSession, run: Run, tmp_path: Path) -> None:
    """A function that keeps state does not care where its rows come from."""

    @pipeline(source=source, sink=Table("counted", mode="upsert", key="kind"))
    def counted(rows: DataFrame) -> DataFrame:
        return rows.groupBy(F.col("amount").alias("kind")).agg(F.count("*").alias("orders"))

    run(counted).stream(once=True)
    wanted = [(kind, len([n for n in range(100) if n % 7 == kind])) for kind in range(7)]
    assert table(spark, tmp_path / "tables" / "counted") == wanted
    run(counted).history(parse(".."), into="offline")
    assert table(spark, tmp_path / "tables" / "offline") == wanted


def test_a_table_whose_rows_change_is_no_stream(
    connection: ClientSettings, run: Run, spark: SparkSession, tmp_path: Path
) -> None:
    topic = new_topic(connection, "changing")
    orders(connection.bootstrap, topic, range(10))
    run(rows_into(Table("changing"), topic)).stream(once=True)
    after = pipeline(source=Table("changing"), sink=Table("after"), name="after")(lambda rows: rows)
    run(after).stream(once=True)
    place = tmp_path / "tables" / "changing"
    spark.sql(f"UPDATE delta.`{place}` SET amount = 100 WHERE id = 3")
    with pytest.raises(PipelineError, match="a stream reads only what is added"):
        run(after).stream(once=True)


def by_schema(topic: str, schema: str, **source: Any) -> Pipeline:
    made = pipeline(source=Topic(topic, schema=schema, **source), sink=Table(topic), name=topic)
    return made(lambda rows: rows)


def test_a_schema_is_inferred_once_and_stays(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "inferred")
    made = by_schema(topic, "infer", event_time="time", late="1 hour")
    with pytest.raises(PipelineError, match="holds no JSON yet"):
        run(made).stream(once=True)
    changing = [{"note": n if n % 2 else "text"} for n in range(20)]
    put(
        connection.bootstrap,
        topic,
        [json.dumps(order(n) | more).encode() for n, more in enumerate(changing)],
    )
    run(made).stream(once=True)
    pinned = "amount: BIGINT, id: BIGINT, note: VARIANT, time: TIMESTAMP"
    assert Folder(tmp_path, topic).schema() == pinned
    put(connection.bootstrap, topic, [json.dumps(order(20) | {"new": 1}).encode()], 20)
    put(connection.bootstrap, topic, [b'{"id": "text", "time": "2026-01-01T00:00:00Z"}'], 21)
    run(made).stream(once=True)  # a new field is left out, one of another type is a bad record
    rows = spark.read.format("delta").load(str(tmp_path / "tables" / topic))
    assert rows.columns == ["amount", "id", "note", "time"]
    notes = rows.orderBy("id").selectExpr("id", "to_json(note)").collect()
    assert [tuple(row) for row in notes[:3]] == [(0, '"text"'), (1, "1"), (2, '"text"')]
    assert len(notes) == 21
    assert len(read(connection.bootstrap, made.dead_topic, 1)) == 1


def test_json_of_any_shape_is_kept_as_variant(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "variant")
    values = [b'{"a": 1}', b'{"a": {"b": [2]}}', b"[1, 2]", b'"text"', b"{broken"]
    put(connection.bootstrap, topic, list(values))
    run(by_schema(topic, "VARIANT")).stream(once=True)
    rows = spark.read.format("delta").load(str(tmp_path / "tables" / topic))
    kept = sorted(row[0] for row in rows.selectExpr("to_json(value)").collect())
    assert kept == sorted(['{"a":1}', '{"a":{"b":[2]}}', "[1,2]", '"text"'])
    [letter] = read(connection.bootstrap, f"{topic}.pipeline.{topic}.dead", 1)
    assert letter["headrace-dead-message"] == b"the value is not JSON"


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": ["null", "long"]},
            {"name": "name", "type": ["null", "string"]},
        ],
    }
)


def avro(n: int) -> bytes:
    """By hand, from Avro's specification: a branch of a union, then zigzag or length and text."""
    assert 0 <= n < 64
    text = b"order %d" % n
    return bytes([2, n << 1, 2, len(text) << 1]) + text


@pytest.mark.parametrize("form", ["avro", "confluent-avro"])
def test_avro_values_bare_and_behind_confluents_header(
    form: str, spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, f"in-{form}")
    header = b"\0\0\0\0\7" if form == "confluent-avro" else b""
    good = [header + avro(n) for n in range(10)]
    nothing = header + b"\0\0"  # both fields null: a good row, not a broken one
    broken = [header + b"\x02", None]
    put(connection.bootstrap, topic, [*good, nothing, *broken])
    if header:
        put(connection.bootstrap, topic, [avro(1)], 13)
    run(by_schema(topic, AVRO, format=form)).stream(once=True)
    rows = table_with_nulls(spark, tmp_path / "tables" / topic)
    assert rows == [*((n, f"order {n}") for n in range(10)), (None, None)]
    letters = read(connection.bootstrap, f"{topic}.pipeline.{topic}.dead", 2 + bool(header))
    reasons = sorted(one["headrace-dead-message"].decode() for one in letters)
    wanted = ["the value is not Avro of the schema", "the value is null"]
    if header:
        wanted.insert(0, 'the value does not begin with Confluent\'s header; is it format="avro"?')
    assert reasons == wanted


def table_with_nulls(spark: SparkSession, place: Path) -> list[tuple[object, ...]]:
    rows = spark.read.format("delta").load(str(place)).orderBy(F.col("id").asc_nulls_last())
    return [tuple(row) for row in rows.collect()]


def test_rows_of_a_topic_without_a_schema_are_as_they_came(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "bare")
    orders(connection.bootstrap, topic, range(6))

    @pipeline(source=Topic(topic), sink=Table("bare"))
    def bare(rows: DataFrame) -> DataFrame:
        value = F.get_json_object(F.col("value").cast("string"), "$.id").cast("long")
        return rows.select(value.alias("id"), (value % 7).alias("amount"))

    run(bare).stream(once=True)
    assert table(spark, tmp_path / "tables" / "bare") == expected(range(6))
