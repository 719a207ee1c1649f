"""Care for lake tables: compaction of small files, their versions, and what they held before.

A table is Delta's if it has Delta's log, else Iceberg's if it has Iceberg's metadata. Moments are
UTC, in and out: what `versions` says can be given to `rows_of` as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.table_writer import BATCH, LAST_BATCH, STREAM
from headrace.pipelines.tables import has_delta_log, iceberg_name, is_delta, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What Spark says when a file of a table is not there any more.
GONE = ("file_not_exist", "filenotfoundexception", "no such file", "notfoundexception")


@dataclass(slots=True)
class Version:
    """A state of the table: a number for Delta, a snapshot's id for Iceberg."""

    version: int
    time: str
    operation: str


@dataclass(slots=True)
class Compacted:
    """`removed` is how many files no version needs any more, if they were looked for."""

    files_before: int
    files_after: int
    removed: int | None = None


@contextmanager
def explained() -> Iterator[None]:
    """What Spark refuses, as one sentence; Spark is there."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as failure:
        lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
        if any(sign in str(failure).lower() for sign in GONE):
            raise PipelineError(
                "Files that this version of the table needs are gone: `headrace lake compact "
                "--forget` removes those of old versions."
            ) from failure
        raise PipelineError(f"Spark refuses: {(lines or ['no reason'])[0][:500]}") from failure


# ---- which table


def must_be_there(place: str) -> None:
    """Before Spark is started; of an address nobody knows but Spark."""
    if "://" not in place:
        _local_format(place)


def format_of(spark: SparkSession, place: str) -> str:
    if "://" not in place:
        return _local_format(place)
    if is_delta(spark, place):
        return "delta"
    if spark.catalog.tableExists(iceberg_name(spark, place)):
        return "iceberg"
    raise PipelineError(f"There is no Delta or Iceberg table at {place}.")


def _local_format(place: str) -> str:
    if has_delta_log(place):
        return "delta"
    if (Path(place) / "metadata").is_dir():
        return "iceberg"
    raise PipelineError(f"There is no Delta or Iceberg table at {place}.")


# ---- its past


def versions(spark: SparkSession, place: str) -> list[Version]:
    """Oldest first."""
    return [Version(one, moment_text(at_ms), said) for one, at_ms, said in _states(spark, place)]


def _states(spark: SparkSession, place: str) -> list[tuple[int, int, str]]:
    """Version, its time in milliseconds, what was done."""
    from pyspark.sql import functions as F

    if format_of(spark, place) == "delta":
        rows = spark.sql(f"DESCRIBE HISTORY delta.{quoted(place)}")
        rows = rows.select("version", F.unix_millis("timestamp"), "operation").orderBy("version")
    else:
        rows = spark.table(f"{iceberg_name(spark, place)}.snapshots").orderBy("committed_at")
        rows = rows.select("snapshot_id", F.unix_millis("committed_at"), "operation")
    return [(int(one[0]), int(one[1]), str(one[2]).lower()) for one in rows.collect()]


def rows_of(
    spark: SparkSession, place: str, *, version: int | None = None, at: str | None = None
) -> DataFrame:
    """The table now, at a version, or as it was at a moment."""
    if at is not None:
        version = _version_at(spark, place, at)
    delta = format_of(spark, place) == "delta"
    name = f"delta.{quoted(place)}" if delta else iceberg_name(spark, place)
    if version is not None:
        return spark.sql(f"SELECT * FROM {name} VERSION AS OF {int(version)}")
    return spark.sql(f"SELECT * FROM {name}")


def _version_at(spark: SparkSession, place: str, at: str) -> int:
    """The last one that was there at that moment. Delta itself refuses moments after its last."""
    at_ms = milliseconds(at)
    states = _states(spark, place)
    there = [version for version, made_ms, _ in states if made_ms <= at_ms]
    if not there:
        since = (
            f"its first version is of {moment_text(states[0][1])}"
            if states
            else "it has no version"
        )
        raise PipelineError(f"There was no table at {at}: {since}.")
    return there[-1]


def milliseconds(moment: str) -> int:
    """Since 1970; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(moment)
    except ValueError:
        raise PipelineError(f"{moment!r} is no moment, such as 2026-01-31T12:00:00Z.") from None
    whole = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (whole - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def moment_text(at_ms: int) -> str:
    """As `milliseconds` takes it."""
    moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


# ---- its files


def compact(spark: SparkSession, place: str) -> Compacted:
    """Few large files in place of many small ones. Readers see the same rows; older versions stay
    readable until `forget`."""
    before = _files(spark, place)
    if format_of(spark, place) == "delta":
        spark.sql(f"OPTIMIZE delta.{quoted(place)}").collect()
    else:
        catalog, table = _for_procedures(spark, place)
        spark.sql(
            f"CALL {catalog}.system.rewrite_data_files(table => '{table}', "
            "options => map('min-input-files', '2'))"
        ).collect()
    return Compacted(before, _files(spark, place))


def forget(spark: SparkSession, place: str, *, hours: float) -> int | None:
    """Remove files that only versions older than `hours` need: those can no longer be read.

    How many files of data were removed; unknown for a Delta table that is not on this machine.
    """
    if format_of(spark, place) == "delta":
        before = _on_disk(place)
        with _few_tasks(spark):
            spark.sql(f"VACUUM delta.{quoted(place)} RETAIN {hours:g} HOURS").collect()
        after = _on_disk(place)
        return None if before is None or after is None else before - after
    _keep_last_batches(spark, place)
    catalog, table = _for_procedures(spark, place)
    until = datetime.now(UTC) - timedelta(hours=hours)
    [done] = spark.sql(
        f"CALL {catalog}.system.expire_snapshots(table => '{table}', "
        f"older_than => TIMESTAMP '{until:%Y-%m-%d %H:%M:%S.%f}')"
    ).collect()
    return int(done["deleted_data_files_count"])


@contextmanager
def _few_tasks(spark: SparkSession) -> Iterator[None]:
    """VACUUM lists the files of a table, however few, with 10,000 tasks unless told otherwise."""
    name = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    before = spark.conf.get(name)
    spark.conf.set(name, str(4 * spark.sparkContext.defaultParallelism))
    try:
        yield
    finally:
        spark.conf.set(name, before)


def _keep_last_batches(spark: SparkSession, place: str) -> None:
    """A stream's memory of its last batch is in a snapshot. Compaction makes newer ones without it,
    so it is kept in the table: without it a batch that is repeated would be there twice."""
    from pyspark.sql import functions as F

    name = iceberg_name(spark, place)
    summary = F.col("summary")
    ours = spark.table(f"{name}.snapshots").where(summary[STREAM].isNotNull())
    last = ours.groupBy(summary[STREAM]).agg(F.max(summary[BATCH].cast("long")))
    for stream, batch in last.collect():
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{LAST_BATCH}{stream}' = '{batch}')")


def _for_procedures(spark: SparkSession, place: str) -> tuple[str, str]:
    catalog, _, name = iceberg_name(spark, place).partition(".")
    return catalog, name.replace("'", "''")


def _files(spark: SparkSession, place: str) -> int:
    if format_of(spark, place) == "delta":
        [row] = spark.sql(f"DESCRIBE DETAIL delta.{quoted(place)}").select("numFiles").collect()
        return int(row[0])
    return int(spark.table(f"{iceberg_name(spark, place)}.files").count())


def _on_disk(place: str) -> int | None:
    if "://" in place:
        return None
    return sum(1 for one in Path(place).rglob("*.parquet") if "_delta_log" not in one.parts)


# ---- its rows, on a screen


def for_people(rows: DataFrame) -> tuple[DataFrame, set[str]]:
    """Moments as text in UTC, whatever the zone of this machine, and what is within a column as
    JSON; and the names of those columns."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType, VariantType

    columns, nested = [], set()
    for field in rows.schema.fields:
        column = F.col(quoted(field.name))
        if isinstance(field.dataType, TimestampType):
            column = column.cast("string")
        elif isinstance(field.dataType, ArrayType | MapType | StructType | VariantType):
            column = F.to_json(column)
            nested.add(field.name)
        columns.append(column.alias(field.name))
    return rows.select(*columns), nested
