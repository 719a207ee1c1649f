"""Rows into tables of PostgreSQL that exist: no digit is lost, and the same row of a key stays."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from headrace.pipelines import Jdbc
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.sinks.jdbc import JdbcWriter
from headrace.pipelines.sinks.latest import ByColumns
from tests.services.servers import Postgres

pytestmark = pytest.mark.timeout(1200)

PLACED = "id LONG, v {kind}, _record_partition INT, _record_offset LONG"


@pytest.fixture
def database(postgres: Postgres) -> Any:
    with psycopg.connect(f"postgresql://headrace@{postgres.place}", autocommit=True) as one:
        yield one


def into(name: str, at: Postgres, **more: Any) -> JdbcWriter:
    url = f"jdbc:postgresql://{at.place}"
    sink = Jdbc(name, url=url, options={"user": "headrace"}, **more)
    return JdbcWriter(sink, "stream", lambda line: None)


@pytest.mark.parametrize(
    ("column", "kind", "kept", "lost"),
    [
        ("integer", "DOUBLE", 2.0, 1.5),
        ("numeric(10,2)", "DECIMAL(38,18)", Decimal("1.25"), Decimal("1.239")),
        ("double precision", "LONG", 2**53, 2**53 + 1),
        ("varchar(3)", "STRING", "abc", "abc  "),
        ("char(3)", "STRING", "abc", "ab "),
        ("bigint", "INT", 5, None),
    ],
)
def test_a_value_that_its_column_would_round_is_refused(
    column: str,
    kind: str,
    kept: Any,
    lost: Any,
    spark: SparkSession,
    postgres: Postgres,
    database: Any,
) -> None:
    name = f"made_with_{column.partition('(')[0].replace(' ', '_')}"
    database.execute(f"CREATE TABLE {name} (id bigint, v {column})")
    writer = into(name, postgres)
    writer.write(spark.createDataFrame([(1, kept), (2, None)], f"id LONG, v {kind}"), (name, 0))
    if lost is not None:
        rows = spark.createDataFrame([(3, kept), (4, lost)], f"id LONG, v {kind}")
        with pytest.raises(PipelineError, match=f"the column v of {name} is"):
            writer.write(rows, (name, 1))
    found = database.execute(f"SELECT id, v FROM {name} ORDER BY id").fetchall()
    assert found == [(1, kept), (2, None)]


def test_a_time_in_a_column_of_days_is_refused(
    spark: SparkSession, postgres: Postgres, database: Any
) -> None:
    database.execute("CREATE TABLE of_days (id bigint, v date)")
    rows = spark.sql("SELECT 1L AS id, TIMESTAMP'2026-01-31 12:00:00' AS v")
    with pytest.raises(PipelineError, match=r"the column v of of_days is date.*2026-01-31 12:00"):
        into("of_days", postgres).write(rows, ("of_days", 0))


def test_of_two_rows_without_their_newest_the_place_decides(
    spark: SparkSession, postgres: Postgres, database: Any
) -> None:
    """Also where they come in two batches: the table must not depend on how records fell."""
    writer = into("by_place", postgres, key="id", newest="v")
    latest = ByColumns(("v", "_record_partition", "_record_offset"))
    batches = [(None, 1, 3), (None, 0, 9), (7, 0, 1), (None, 1, 9), (7, 1, 0), (7, 0, 8)]
    seen = []
    for number, row in enumerate(batches):
        rows = spark.createDataFrame([(1, *row)], PLACED.format(kind="LONG"))
        writer.write(rows, ("by_place", number), latest)
        seen += database.execute("SELECT v, _record_partition, _record_offset FROM by_place")
    assert seen == [batches[n] for n in (0, 0, 2, 2, 4, 4)]


def test_text_is_compared_as_spark_does(
    spark: SparkSession, postgres: Postgres, database: Any
) -> None:
    database.execute(
        'CREATE TABLE by_text (id bigint PRIMARY KEY, v text COLLATE "und-x-icu", '
        "_record_partition int, _record_offset bigint)"
    )
    writer = into("by_text", postgres, key="id", newest="v")
    latest = ByColumns(("v", "_record_partition", "_record_offset"))
    for number, text in enumerate("aB"):  # by the rules of a language a is before B
        rows = spark.createDataFrame([(1, text, 0, number)], PLACED.format(kind="STRING"))
        writer.write(rows, ("by_text", number), latest)
    assert database.execute("SELECT v FROM by_text").fetchall() == [("a",)]
