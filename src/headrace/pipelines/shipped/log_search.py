"""Looks for lines in the table of logs: only the days and services that are asked for are read.

A Delta table on this machine is read without Spark (`scanned`), any other one by Spark (`newest`).
Both give rows with the fields of a record in the topic, in their order, without those that are not
there; `time` is in milliseconds. Days may be those of any zone, so one more on each side is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipelines.shipped import delta_without_spark, lake_tables
from headrace.pipelines.spark import session
from headrace.pipelines.stream.folder import table_location

if TYPE_CHECKING:
    from pyarrow.dataset import Expression
    from pyspark.sql import Column

    from headrace.pipelines.shipped.delta_without_spark import DeltaFiles

SHOWN = (
    *("id", "time", "service", "host", "level", "message", "file", "fields", "problem", "cut"),
)
A_DAY, A_MILLISECOND = timedelta(days=1), timedelta(milliseconds=1)

Row = dict[str, Any]


def without_spark(data: Path, table: str) -> DeltaFiles | None:
    """Returns the table's files; None if only Spark can read it. Raises PipelineError if there is
    no such table."""
    location = table_location(data, table)
    lake_tables.must_be_there(location)
    return delta_without_spark.found(location)


def scanned(
    files: DeltaFiles,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    service: str | None = None,
    levels: Sequence[str] | None = None,
) -> Iterator[tuple[Row, int]]:
    """Returns rows that match all conditions, with their times, in no order."""
    for row in files.scanned(SHOWN, _where(from_ms, to_ms, service, levels)):
        yield _as_in_the_topic(row), (row["time"] - _moment(0)) // A_MILLISECOND


def _where(
    from_ms: int | None, to_ms: int | None, service: str | None, levels: Sequence[str] | None
) -> Expression | None:
    from pyarrow import dataset

    found = []
    if from_ms is not None:
        first = _moment(from_ms)
        found += [dataset.field("day") >= (first - A_DAY).date(), dataset.field("time") >= first]
    if to_ms is not None:
        last = _moment(to_ms)
        found += [dataset.field("day") <= (last + A_DAY).date(), dataset.field("time") < last]
    if service is not None:
        found.append(dataset.field("service") == service)
    if levels is not None:
        found.append(dataset.field("level").isin(list(levels)))
    return reduce(and_, found) if found else None


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


def _as_in_the_topic(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def newest(
    data: Path,
    table: str,
    *,
    most: int,
    from_ms: int | None = None,
    to_ms: int | None = None,
    service: str | None = None,
    levels: Sequence[str] | None = None,
    text: str | None = None,
) -> tuple[int, list[Row]]:
    """Returns how many lines match, and the newest of them, by Spark."""
    location = table_location(data, table)
    lake_tables.must_be_there(location)
    spark = session.start("logs", master="local[*]", given={session.ZONE: "UTC"}, note=None)
    # If pyspark is missing, an earlier check has already reported it.
    from pyspark.sql import functions as F

    with lake_tables.explained():
        rows = lake_tables.rows_of(spark, location, version=None, at=None)
        for condition in _conditions(from_ms, to_ms, service, levels, text):
            rows = rows.where(condition)
        moment = F.unix_millis("time").alias("time")
        shown = [moment if name == "time" else F.col(name) for name in SHOWN]
        last = rows.orderBy(F.col("time").desc(), F.col("id").desc()).limit(most).select(*shown)
        newest = [_as_in_the_topic(row.asDict(recursive=True)) for row in last.collect()]
        return rows.select("id").distinct().count(), newest


def _conditions(
    from_ms: int | None,
    to_ms: int | None,
    service: str | None,
    levels: Sequence[str] | None,
    text: str | None,
) -> list[Column]:
    from pyspark.sql import functions as F

    found = []
    if from_ms is not None:
        first = F.timestamp_millis(F.lit(from_ms))
        found += [F.col("day") >= F.date_sub(F.to_date(first), 1), F.col("time") >= first]
    if to_ms is not None:
        last = F.timestamp_millis(F.lit(to_ms))
        found += [F.col("day") <= F.date_add(F.to_date(last), 1), F.col("time") < last]
    if service is not None:
        found.append(F.col("service") == service)
    if levels is not None:
        found.append(F.col("level").isin(*levels))
    if text is not None:
        low = text.lower()
        within = F.exists(F.map_values("fields"), lambda one: F.lower(one).contains(low))
        found.append(F.lower("message").contains(low) | F.coalesce(within, F.lit(False)))
    return found
