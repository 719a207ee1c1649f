"""A Delta table looked at without Spark shows what Spark shows; else Spark is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.shipped import delta_without_spark, lake_tables
from headrace.pipelines.shipped.delta_without_spark import DeltaFiles
from headrace.pipelines.stream.folder import table_held

pytestmark = pytest.mark.timeout(1200)

EVERYTHING = """
SELECT CAST(n AS INT) AS n,
       CAST(n AS STRING) || ' ü \n' AS `a"name`,
       IF(n % 3 = 0, NULL, TIMESTAMP '2026-03-29 01:30:00.120 UTC' + make_interval(0,0,0,n)) AS t,
       DATE '2026-01-01' + CAST(n AS INT) AS day,
       CAST(n AS DECIMAL(10, 2)) / 4 AS price,
       IF(n = 2, DOUBLE('NaN'), n / 3) AS third,
       n % 2 = 0 AS even,
       encode('b' || n, 'utf-8') AS raw,
       IF(n = 1, NULL, named_struct('x', n, 'y', IF(n = 4, NULL, 'why'), 't',
          TIMESTAMP '2026-01-01 00:00:00 UTC', 'd', DATE '2026-01-02')) AS inner,
       array(n, NULL, n + 1) AS list,
       map('k', n, 'none', NULL) AS pairs,
       array(named_struct('raw', encode('é', 'utf-8'), 'ok', true)) AS deep
FROM (SELECT explode(sequence(1, 6)) AS n)
"""


WITHOUT_NAN = EVERYTHING.replace("DOUBLE('NaN')", "DOUBLE('Infinity')")


def made(spark: SparkSession, place: Path, times: int = 1, query: str = EVERYTHING) -> str:
    for _ in range(times):
        spark.sql(query).coalesce(1).write.format("delta").mode("append").save(str(place))
    return str(place)


def without_spark(place: str) -> DeltaFiles:
    found = delta_without_spark.found(place)
    assert found is not None
    return found


def as_text(cells: list[list[Any]]) -> list[list[str]]:
    """NaN is not equal to itself, and Spark gives raw bytes in an array."""
    return [[str(bytes(c) if isinstance(c, bytearray) else c) for c in row] for row in cells]


def test_rows_are_shown_as_spark_shows_them(spark: SparkSession, tmp_path: Path) -> None:
    place = made(spark, tmp_path / "all")
    for order in (["n"], ["T", "n"], ["even", "price"]):
        table, nested = lake_tables.for_people(spark.read.format("delta").load(place))
        wanted = [list(row) for row in table.orderBy(*order).limit(4).collect()]
        names, cells, holding_json = without_spark(place).rows(limit=4, order=order)
        assert names == table.columns and holding_json == nested
        assert as_text(cells) == as_text(wanted)


def test_its_past_is_shown_too(spark: SparkSession, tmp_path: Path) -> None:
    place = made(spark, tmp_path / "past", times=2)
    versions = without_spark(place).versions()
    assert [(one.version, one.operation) for one in versions] == [(0, "write"), (1, "write")]
    for given in ({"version": 0}, {"at": versions[0].time}):
        _, cells, _ = without_spark(place).rows(limit=100, order=[], **given)
        assert len(cells) == 6
    with pytest.raises(PipelineError, match="its first version is of"):
        without_spark(place).rows(limit=1, order=[], at="2001-01-01")
    with pytest.raises(PipelineError, match='no column .nope.; it has n, a"name'):
        without_spark(place).rows(limit=1, order=["nope"])


def test_small_files_become_one_and_spark_reads_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = made(spark, tmp_path / "small", times=3, query=WITHOUT_NAN)
    before = sorted(map(str, spark.read.format("delta").load(place).collect()))
    done = without_spark(place).compact_if_free(forget_hours=168)
    assert done is not None
    assert (done.files_before, done.files_after, done.removed) == (3, 1, 0)
    assert sorted(map(str, spark.read.format("delta").load(place).collect())) == before
    made(spark, Path(place))
    assert spark.read.format("delta").load(place).count() == 24


def test_a_file_with_nan_is_spark_s_to_write_again(spark: SparkSession, tmp_path: Path) -> None:
    """The statistics of deltalake leave NaN out, and Spark answers from them."""
    place = made(spark, tmp_path / "nan", times=2)
    assert without_spark(place).compact_if_free(forget_hours=None) is None


def test_a_table_that_somebody_writes_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    place = made(spark, tmp_path / "busy", times=2)
    with table_held(place, alone=False):
        assert without_spark(place).compact_if_free(forget_hours=None) is None


def test_what_deltalake_would_read_wrong_is_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    mapped, deleted = str(tmp_path / "mapped"), str(tmp_path / "deleted")
    spark.sql(
        f"CREATE TABLE delta.`{mapped}` (`a b` INT) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(
        f"CREATE TABLE delta.`{deleted}` (n INT) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    for place in (mapped, deleted, str(tmp_path / "none"), "s3://bucket/table"):
        assert delta_without_spark.found(place) is None


def test_times_that_deltalake_would_change_are_spark_s(spark: SparkSession, tmp_path: Path) -> None:
    """Compacting such a table wrote the year 1816 for 9999."""
    setting = "spark.sql.parquet.outputTimestampType"
    ours = spark.conf.get(setting)
    far, near = "TIMESTAMP '9999-12-31 00:00:00 UTC'", "TIMESTAMP '2026-01-01 00:00:00 UTC'"
    asked = {
        "far": f"SELECT {far} AS t",
        "nested": f"SELECT named_struct('t', {far}) AS s",
        "listed": f"SELECT array({near}) AS l",  # nobody knows how far they reach
        "near": f"SELECT {near} AS t",
        "null": "SELECT CAST(NULL AS TIMESTAMP) AS t",
    }
    for kind, found in (("INT96", {"near", "null"}), ("TIMESTAMP_MICROS", set(asked))):
        spark.conf.set(setting, kind)
        try:
            for name, query in asked.items():
                place = str(tmp_path / kind / name)
                spark.sql(query).write.format("delta").save(place)
                assert (delta_without_spark.found(place) is not None) == (name in found), name
        finally:
            spark.conf.set(setting, ours)


def test_a_partition_that_the_two_name_differently_is_compacted_by_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By deltalake the files of such a partition stayed for Spark, and each row came twice."""
    for name, by_spark in (("tea = 100 %", False), ("tee mit süßem", True), ("tea~", True)):
        place = str(tmp_path / name[:4])
        rows = spark.sql(f"SELECT '{name}' AS p, 1 AS n").coalesce(1)
        for _ in range(2):
            rows.write.format("delta").partitionBy("p").mode("append").save(place)
        done = without_spark(place).compact_if_free(forget_hours=None)
        assert (done is None) == by_spark
        assert spark.read.format("delta").load(place).count() == 2
