"""Tables on disk as sources, and how Spark finds those of Iceberg.

A table is a folder. Iceberg's want a catalog: the folder above them is one of Iceberg's kind
"hadoop", made known to the session under a name of its own. Nothing of a table is cached there:
what was committed last must be seen, or a batch would be written twice.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipelines.declaration import Table
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows.watermark import watermarked
from headrace.pipelines.stream.span import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ICEBERG_CATALOG = "org.apache.iceberg.spark.SparkCatalog"


def is_there(location: str) -> bool:
    """Returns whether a table on this machine exists. Always True for an address: only Spark can
    look there."""
    return "://" in location or Path(location).exists()


def is_delta(spark: SparkSession, location: str) -> bool:
    """Returns whether a Delta table exists, here or at an address."""
    if "://" not in location:
        return has_delta_log(location)
    from delta.tables import DeltaTable

    return bool(DeltaTable.isDeltaTable(spark, location))


def has_delta_log(location: str) -> bool:
    """A process that was killed at the wrong moment leaves a log without a commit: no table yet."""
    try:
        with os.scandir(Path(location) / "_delta_log") as log:
            # It ends at the first one: a stream's log has tens of thousands.
            return any(entry.name.endswith(".json") for entry in log)
    except (FileNotFoundError, NotADirectoryError):
        return False


def iceberg_name(spark: SparkSession, location: str) -> str:
    """Returns the name of the Iceberg table at a place, as Spark's SQL uses it."""
    above, _, name = location.rstrip("/").rpartition("/")
    catalog = "headrace_" + hashlib.sha256(above.encode()).hexdigest()[:12]
    setting = f"spark.sql.catalog.{catalog}"
    if spark.conf.get(setting, None) is None:
        spark.conf.set(setting, ICEBERG_CATALOG)
        spark.conf.set(f"{setting}.type", "hadoop")
        spark.conf.set(f"{setting}.warehouse", above or "/")
        spark.conf.set(f"{setting}.cache-enabled", "false")
    return f"{catalog}.{quoted(name)}"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def whole(spark: SparkSession, table: Table, location: str) -> DataFrame:
    """Returns all rows that are there now."""
    _must_be_there(location)
    reader = spark.read.options(**table.options)
    if table.format == "iceberg":
        return reader.table(iceberg_name(spark, location))
    return reader.format(table.format).load(location)


def streamed(spark: SparkSession, table: Table, location: str) -> DataFrame:
    """The rows that are there and those to come. Tables whose rows are changed are refused by
    their format when the change is met."""
    _must_be_there(location)
    reader = spark.readStream.options(**table.options)
    if table.format == "iceberg":
        rows = reader.table(iceberg_name(spark, location))
    elif table.format == "parquet":
        rows = reader.schema(spark.read.parquet(location).schema).parquet(location)
    else:
        rows = reader.format(table.format).load(location)
    if table.event_time is not None and table.late is not None:
        _must_have(rows, table)
        rows = watermarked(rows, table.event_time, table.late)
    return rows


def within(rows: DataFrame, table: Table, span: Span) -> DataFrame:
    """Returns the rows whose event time is in a span."""
    from pyspark.sql import functions as F

    if span.from_ms is None and span.to_ms is None:
        return rows
    if table.event_time is None:
        raise PipelineError(
            f"Table {table.name} has no times: give it event_time= and late=, or take all of it "
            "with --history .."
        )
    _must_have(rows, table)
    time = F.col(table.event_time).cast("timestamp")
    if span.from_ms is not None:
        rows = rows.where(time >= F.timestamp_millis(F.lit(span.from_ms)))
    if span.to_ms is not None:
        rows = rows.where(time < F.timestamp_millis(F.lit(span.to_ms)))
    return rows


def _must_be_there(location: str) -> None:
    if not is_there(location):
        raise PipelineError(f"There is no table {location}.")


def _must_have(rows: DataFrame, table: Table) -> None:
    if table.event_time not in rows.columns:
        raise PipelineError(f"Table {table.name} has no column {table.event_time}.")
