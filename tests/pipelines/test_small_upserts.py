"""Few rows by key without a job of Spark: the same table as by Spark, or Spark does it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.pipelines.declaration import Table
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.sinks import small_upserts
from headrace.pipelines.sinks import touched as touched_module
from headrace.pipelines.sinks.table_writer import TableWriter
from headrace.pipelines.sinks.touched import touched

pytestmark = pytest.mark.timeout(1200)

COLUMNS = (
    "at TIMESTAMP, name STRING, day DATE, n INT, total LONG, share DOUBLE, part FLOAT, ok BOOLEAN"
)
AT = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
FIRST: list[tuple[Any, ...]] = [
    (AT, "it's ü", date(2026, 1, 1), 1, 2**60, 0.5, 1.5, True),
    (AT, "", None, None, None, None, None, None),
    (AT, "gone", date(1, 1, 1), -1, 0, float("-inf"), float("inf"), False),
]
THEN: list[tuple[Any, ...]] = [
    (AT, "it's ü", date(2026, 1, 2), 2, 3, -0.5, 2.5, None),
    (AT, "", None, 7, 7, 7.0, 7.0, True),
    (AT, "new", None, 3, None, None, None, None),
]


def writer(place: Path, notes: list[str], **more: Any) -> TableWriter:
    table = Table("t", mode="upsert", key=("at", "name"), **more)
    return TableWriter(table, str(place), notes.append, "begin anew")


def write(spark: SparkSession, into: TableWriter, rows: list[tuple[Any, ...]]) -> None:
    into.write(spark.createDataFrame(rows, COLUMNS), None, None)


def read(spark: SparkSession, place: Path) -> list[str]:
    frame: DataFrame = spark.read.format("delta").load(str(place))
    return sorted(repr(tuple(row)) for row in frame.collect())


def operations(spark: SparkSession, place: Path) -> list[str]:
    history = spark.sql(f"DESCRIBE HISTORY delta.`{place}`").orderBy("version").collect()
    return [str(row["engineInfo"]).split("/")[0].split(":")[0] for row in history]


def test_the_table_is_the_one_that_spark_makes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    few, spark_only = tmp_path / "few", tmp_path / "spark"
    for rows in (FIRST, THEN, THEN):
        write(spark, writer(few, notes), rows)
        with monkeypatch.context() as without:
            without.setattr(small_upserts, "fits", lambda *_: False)
            write(spark, writer(spark_only, notes), rows)
    assert read(spark, few) == read(spark, spark_only)
    assert len(read(spark, few)) == 4
    assert operations(spark, few) == ["Apache-Spark", "delta-rs", "delta-rs", "delta-rs"]
    assert not notes
    # And Spark goes on with it, with a new column.
    more = spark.createDataFrame(THEN, COLUMNS).selectExpr("*", "1 AS more")
    into = writer(few, notes)
    into.write(more, None, None)
    assert len(notes) == 1 and notes[0].startswith("new columns in t: more")
    assert operations(spark, few)[-1] == "delta-rs"
    assert spark.read.format("delta").load(str(few)).where("more = 1").count() == 3


def test_two_rows_of_a_key_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    notes: list[str] = []
    said = r"at = 2026-03-29 01:30:00.123456 UTC, name = 'new'"
    with pytest.raises(PipelineError, match=f"two rows with the same key \\({said}\\)"):
        write(spark, writer(tmp_path / "twice", notes), [*THEN, THEN[-1]])


@pytest.mark.parametrize(
    "why",
    [
        "a property",
        "a partition",
        "a nested column",
        "a name",
        "a null",
        "long text",
        "partitions of another",
        "not a number",
        "not a number before",
        "a rule of a column",
    ],
)
def test_what_is_not_simple_is_spark_s(
    spark: SparkSession, tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    if why == "long text":
        frame = spark.createDataFrame(FIRST, COLUMNS)
        size = sum(len(row[1].encode()) for row in FIRST)
        assert touched(frame, ("at", "name"), ()).text_bytes == size
        monkeypatch.setattr(small_upserts, "MOST_TEXT_BYTES", size - 1)
    place = tmp_path / "table"
    into = writer(place, notes, partition_by=("name",) if why == "a partition" else ())
    frame = spark.createDataFrame(FIRST, COLUMNS)
    if why == "a partition":  # Delta takes an empty text for null there
        frame = frame.where("name <> ''")
    if why == "a nested column":
        frame = frame.selectExpr("*", "array(n) AS list")
    if why == "a null":
        frame = frame.where("name <> ''").unionByName(
            spark.createDataFrame([(AT, None, *FIRST[1][2:])], COLUMNS)
        )
    if why == "a name":
        frame = frame.withColumnRenamed("total", "Total")
    if why == "partitions of another":
        empty = frame.limit(0)
        empty.write.format("delta").partitionBy("name").save(str(place))
        frame = frame.where("name <> ''")
    if why == "a rule of a column":
        ruled = COLUMNS.replace("name STRING", "name VARCHAR(9)")
        spark.sql(f"CREATE TABLE delta.`{place}` ({ruled}) USING delta")
    if why.startswith("not a number"):
        frame = frame.selectExpr("* EXCEPT (share)", "double('NaN') AS share")
    into.write(frame, None, None)
    if why == "not a number before":  # it stays in rows that are not touched
        into.write(frame.where("name <> 'gone'").withColumn("share", F.lit(0.5)), None, None)
    if why == "a property":
        spark.sql(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    if why != "not a number before":
        into.write(frame, None, None)
    assert operations(spark, place)[-1] == "Apache-Spark"
    if why.startswith("not a number"):
        [(greatest,)] = spark.sql(f"SELECT max(share) FROM delta.`{place}`").collect()
        assert isnan(greatest)
    assert spark.read.format("delta").load(str(place)).count() == frame.count()


@pytest.mark.parametrize("refuses", [False, True])
def test_rows_that_are_fetched_once_few_were_seen_make_the_same_table(
    refuses: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream has one writer: after a batch of few rows the next is brought here as a whole. Its
    rows are Spark's to merge where deltalake refuses, or where they are many after all."""
    notes: list[str] = []
    stream, spark_only = writer(tmp_path / "stream", notes), writer(tmp_path / "spark", notes)
    many = [(AT, f"many {n}", date(2026, 1, n + 1), n, n, n / 2, None, True) for n in range(9)]
    monkeypatch.setattr(touched_module, "FEW_ROWS", 5)
    for rows in (FIRST, THEN, [], many, THEN):
        with monkeypatch.context() as without:
            if refuses:
                without.setattr(small_upserts, "merged", lambda *_: False)
            write(spark, stream, rows)
            without.setattr(small_upserts, "fits", lambda *_: False)
            without.setattr(small_upserts, "may_fit", lambda *_: False)
            write(spark, spark_only, rows)
    assert read(spark, tmp_path / "stream") == read(spark, tmp_path / "spark")
    assert len(read(spark, tmp_path / "stream")) == 4 + len(many)
    if not refuses:
        merges = ["Apache-Spark", "delta-rs", "delta-rs", "Apache-Spark", "delta-rs"]
        assert operations(spark, tmp_path / "stream") == merges
    with pytest.raises(PipelineError, match="two rows with the same key"):
        write(spark, stream, [THEN[0], THEN[0]])
