"""Care for lake tables: compaction of small files, their versions, and what they held before.

A table is Delta's if it has Delta's log, else Iceberg's if it has Iceberg's metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.tables import iceberg_name, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(slots=True)
class Version:
    """A state of the table: a number for Delta, a snapshot's id for Iceberg."""

    version: int
    time: str
    operation: str


@dataclass(slots=True)
class Compacted:
    files_before: int
    files_after: int


@contextmanager
def explained() -> Iterator[None]:
    """What Spark refuses, as one sentence; Spark is there."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as failure:
        said = str(failure).strip().splitlines() or ["it gave no reason"]
        raise PipelineError(f"Spark refuses: {said[0][:500]}") from failure


def format_of(place: str) -> str:
    if (Path(place) / "_delta_log").is_dir():
        return "delta"
    if (Path(place) / "metadata").is_dir():
        return "iceberg"
    raise PipelineError(f"There is no Delta or Iceberg table at {place}.")


def versions(spark: SparkSession, place: str) -> list[Version]:
    """All that can still be read, oldest first."""
    if format_of(place) == "delta":
        rows = spark.sql(f"DESCRIBE HISTORY delta.{quoted(place)}")
        found = rows.select("version", "timestamp", "operation").collect()
    else:
        rows = spark.table(f"{iceberg_name(spark, place)}.snapshots")
        found = rows.select("snapshot_id", "committed_at", "operation").collect()
    listed = [Version(one[0], one[1].isoformat(), str(one[2]).lower()) for one in found]
    return sorted(listed, key=lambda one: one.time)


def rows_of(
    spark: SparkSession, place: str, *, version: int | None = None, at: str | None = None
) -> DataFrame:
    """The table now, at a version, or as it was at a moment."""
    delta = format_of(place) == "delta"
    name = f"delta.{quoted(place)}" if delta else iceberg_name(spark, place)
    if version is not None:
        return spark.sql(f"SELECT * FROM {name} VERSION AS OF {int(version)}")
    if at is not None:
        return spark.sql(f"SELECT * FROM {name} TIMESTAMP AS OF {_literal(at)}")
    return spark.sql(f"SELECT * FROM {name}")


def _literal(moment: str) -> str:
    from datetime import UTC, datetime

    try:
        found = datetime.fromisoformat(moment)
    except ValueError:
        raise PipelineError(f"{moment!r} is no moment, such as 2026-01-31T12:00:00Z.") from None
    whole = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return f"'{whole.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}'"


def compact(spark: SparkSession, place: str) -> Compacted:
    """Few large files in place of many small ones. Readers see the same rows; older versions stay
    readable until `forget`."""
    before = _files(spark, place)
    if format_of(place) == "delta":
        spark.sql(f"OPTIMIZE delta.{quoted(place)}").collect()
    else:
        catalog, _, name = iceberg_name(spark, place).partition(".")
        table = name.replace("'", "''")
        spark.sql(
            f"CALL {catalog}.system.rewrite_data_files(table => '{table}', "
            "options => map('min-input-files', '2'))"
        ).collect()
    return Compacted(before, _files(spark, place))


def forget(spark: SparkSession, place: str, *, hours: int) -> None:
    """Remove files that only versions older than `hours` need: those can no longer be read."""
    if format_of(place) == "delta":
        spark.sql(f"VACUUM delta.{quoted(place)} RETAIN {int(hours)} HOURS").collect()
        return
    catalog, _, name = iceberg_name(spark, place).partition(".")
    table = name.replace("'", "''")
    [(now,)] = spark.sql("SELECT current_timestamp()").collect()
    spark.sql(
        f"CALL {catalog}.system.expire_snapshots(table => '{table}', "
        f"older_than => TIMESTAMP '{_hours_before(now, hours)}')"
    ).collect()


def _hours_before(now: Any, hours: int) -> str:
    from datetime import timedelta

    return f"{now - timedelta(hours=hours):%Y-%m-%d %H:%M:%S}"


def _files(spark: SparkSession, place: str) -> int:
    if format_of(place) == "delta":
        [row] = spark.sql(f"DESCRIBE DETAIL delta.{quoted(place)}").select("numFiles").collect()
        return int(row[0])
    return int(spark.table(f"{iceberg_name(spark, place)}.files").count())
