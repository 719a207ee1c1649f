"""Care for lake tables: compaction of small files, their versions, and what they held before.

A table is Delta's if it has Delta's log, else Iceberg's if it has Iceberg's metadata. Moments are
UTC, in and out: what `versions` returns can be passed to `rows_of` as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.sinks.table_writer import BATCH, LAST_BATCH, STREAM
from headrace.pipelines.sinks.tables import has_delta_log, iceberg_name, is_delta, quoted
from headrace.pipelines.spark.session import settings_for_now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The error of Spark when a file of a table no longer exists.
GONE = ("file_not_exist", "filenotfoundexception", "no such file", "notfoundexception")


@dataclass(slots=True)
class Version:
    """A state of the table: a number for Delta, a snapshot's id for Iceberg."""

    version: int
    time: str
    operation: str


@dataclass(slots=True)
class Compacted:
    """The result of a compaction. `removed` is how many files no version needs any more, if that
    was checked."""

    files_before: int
    files_after: int
    removed: int | None = None


@contextmanager
def explained() -> Iterator[None]:
    """Turns Spark's error into one sentence; Spark must be installed."""
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


def must_be_there(location: str) -> None:
    """Refuses a missing table before Spark is started. An address is not checked: only Spark can
    look there."""
    if "://" not in location:
        _local_format(location)


def format_of(spark: SparkSession, location: str) -> str:
    if "://" not in location:
        return _local_format(location)
    if is_delta(spark, location):
        return "delta"
    if spark.catalog.tableExists(iceberg_name(spark, location)):
        return "iceberg"
    raise PipelineError(f"There is no Delta or Iceberg table at {location}.")


def _local_format(location: str) -> str:
    if has_delta_log(location):
        return "delta"
    if (Path(location) / "metadata").is_dir():
        return "iceberg"
    raise PipelineError(f"There is no Delta or Iceberg table at {location}.")


# ---- its past


def versions(spark: SparkSession, location: str) -> list[Version]:
    """Oldest first."""
    return [Version(one, moment_text(at_ms), said) for one, at_ms, said in _states(spark, location)]


def _states(spark: SparkSession, location: str) -> list[tuple[int, int, str]]:
    """Version, its time in milliseconds, what was done."""
    from pyspark.sql import functions as F

    if format_of(spark, location) == "delta":
        rows = spark.sql(f"DESCRIBE HISTORY delta.{quoted(location)}")
        rows = rows.select("version", F.unix_millis("timestamp"), "operation").orderBy("version")
    else:
        rows = spark.table(f"{iceberg_name(spark, location)}.snapshots").orderBy("committed_at")
        rows = rows.select("snapshot_id", F.unix_millis("committed_at"), "operation")
    return [(int(one[0]), int(one[1]), str(one[2]).lower()) for one in rows.collect()]


def rows_of(
    spark: SparkSession, location: str, *, version: int | None = None, at: str | None = None
) -> DataFrame:
    """The table now, at a version, or as it was at a moment."""
    if at is not None:
        version = _version_at(spark, location, at)
    delta = format_of(spark, location) == "delta"
    name = f"delta.{quoted(location)}" if delta else iceberg_name(spark, location)
    if version is not None:
        return spark.sql(f"SELECT * FROM {name} VERSION AS OF {int(version)}")
    return spark.sql(f"SELECT * FROM {name}")


def _version_at(spark: SparkSession, location: str, at: str) -> int:
    """The last one that was there at that moment. Delta itself refuses moments after its last."""
    at_ms = milliseconds(at)
    states = _states(spark, location)
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
        raise PipelineError(f"{moment!r} is not a time such as 2026-01-31T12:00:00Z.") from None
    whole = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (whole - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def moment_text(at_ms: int) -> str:
    """As `milliseconds` takes it."""
    moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


# ---- its files


def compact(
    spark: SparkSession, location: str, *, sizes: FileSizes | None = None, min_files: int = 2
) -> Compacted:
    """Few large files in place of many small ones. Readers see the same rows; older versions stay
    readable until `forget`. With `sizes` only files that are small are rewritten, where there are
    `min_files` of them."""
    before = files(spark, location)
    if format_of(spark, location) == "delta":
        with settings_for_now(spark, {} if sizes is None else sizes.of_delta()):
            spark.sql(f"OPTIMIZE delta.{quoted(location)}").collect()
    else:
        catalog, table = _for_procedures(spark, location)
        options = {"min-input-files": str(min_files)}
        options |= {} if sizes is None else sizes.of_iceberg()
        listed = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
        spark.sql(
            f"CALL {catalog}.system.rewrite_data_files(table => '{table}', "
            f"options => map({listed}))"
        ).collect()
    return Compacted(before, files(spark, location))


@dataclass(slots=True)
class FileSizes:
    """A file of less than `small_bytes` is rewritten, into files of about `target_bytes`."""

    small_bytes: int
    target_bytes: int

    def of_delta(self) -> dict[str, str]:
        settings = "spark.databricks.delta.optimize"
        return {
            f"{settings}.minFileSize": str(self.small_bytes),
            f"{settings}.maxFileSize": str(self.target_bytes),
        }

    def of_iceberg(self) -> dict[str, str]:
        return {
            "min-file-size-bytes": str(self.small_bytes),
            "target-file-size-bytes": str(self.target_bytes),
            "max-file-size-bytes": str(2**63 - 1),  # nothing is cut into smaller ones
        }


def forget(spark: SparkSession, location: str, *, hours: float) -> int | None:
    """Remove files that only versions older than `hours` need: those can no longer be read.

    How many files of data were removed; unknown for a Delta table that is not on this machine.
    """
    if format_of(spark, location) == "delta":
        before = _on_disk(location)
        with _few_tasks(spark):
            spark.sql(f"VACUUM delta.{quoted(location)} RETAIN {hours:g} HOURS").collect()
        after = _on_disk(location)
        return None if before is None or after is None else before - after
    _keep_last_batches(spark, location)
    catalog, table = _for_procedures(spark, location)
    until = datetime.now(UTC) - timedelta(hours=hours)
    [done] = spark.sql(
        f"CALL {catalog}.system.expire_snapshots(table => '{table}', "
        f"older_than => TIMESTAMP '{until:%Y-%m-%d %H:%M:%S.%f}+00:00')"
    ).collect()
    return int(done["deleted_data_files_count"])


def _few_tasks(spark: SparkSession) -> AbstractContextManager[None]:
    """VACUUM lists the files of a table, however few, with 10,000 tasks by default."""
    tasks = str(4 * spark.sparkContext.defaultParallelism)
    return settings_for_now(
        spark, {"spark.sql.sources.parallelPartitionDiscovery.parallelism": tasks}
    )


def _keep_last_batches(spark: SparkSession, location: str) -> None:
    """A stream's memory of its last batch is in a snapshot. Compaction makes newer ones without it,
    so it is kept in the table: without it a batch that is repeated would be there twice."""
    from pyspark.sql import functions as F

    name = iceberg_name(spark, location)
    summary = F.col("summary")
    ours = spark.table(f"{name}.snapshots").where(summary[STREAM].isNotNull())
    last = ours.groupBy(summary[STREAM]).agg(F.max(summary[BATCH].cast("long")))
    for stream, batch in last.collect():
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{LAST_BATCH}{stream}' = '{batch}')")


def _for_procedures(spark: SparkSession, location: str) -> tuple[str, str]:
    catalog, _, name = iceberg_name(spark, location).partition(".")
    return catalog, name.replace("'", "''")


def files(spark: SparkSession, location: str) -> int:
    """Returns how many data files the newest version has."""
    if format_of(spark, location) == "delta":
        [row] = spark.sql(f"DESCRIBE DETAIL delta.{quoted(location)}").select("numFiles").collect()
        return int(row[0])
    return int(spark.table(f"{iceberg_name(spark, location)}.files").count())


def _on_disk(location: str) -> int | None:
    if "://" in location:
        return None
    return sum(1 for one in Path(location).rglob("*.parquet") if "_delta_log" not in one.parts)


# ---- its rows, on a screen


def for_people(rows: DataFrame) -> tuple[DataFrame, set[str]]:
    """Returns rows for a screen: moments as text in UTC, whatever the zone of this machine, and
    nested values as JSON; also the names of those columns."""
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
