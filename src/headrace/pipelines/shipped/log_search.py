"""Looks for lines in the table of logs: only the days that are asked for are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipelines import session
from headrace.pipelines.folder import table_place
from headrace.pipelines.shipped import lake_tables

if TYPE_CHECKING:
    from pyspark.sql import Column

SHOWN = ("id", "time", "level", "service", "host", "message", "file", "fields", "problem")


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
) -> tuple[int, list[dict[str, Any]]]:
    """How many lines match, and the newest of them, with `time` in milliseconds."""
    from pyspark.sql import functions as F

    place = table_place(data, table)
    lake_tables.must_be_there(place)
    spark = session.start("logs", master="local[*]", given={session.ZONE: "UTC"}, note=None)
    with lake_tables.explained():
        rows = lake_tables.rows_of(spark, place, version=None, at=None)
        for condition in _conditions(from_ms, to_ms, service, levels, text):
            rows = rows.where(condition)
        moment = F.unix_millis("time").alias("time")
        shown = [moment if name == "time" else F.col(name) for name in SHOWN]
        last = rows.orderBy(F.col("time").desc(), "id").limit(most).select(*shown)
        return rows.count(), [row.asDict(recursive=True) for row in last.collect()]


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
        found += [F.col("day") >= F.to_date(first), F.col("time") >= first]
    if to_ms is not None:
        last = F.timestamp_millis(F.lit(to_ms))
        found += [F.col("day") <= F.to_date(last), F.col("time") < last]
    if service is not None:
        found.append(F.col("service") == service)
    if levels is not None:
        found.append(F.col("level").isin(*levels))
    if text is not None:
        low = text.lower()
        within = F.exists(F.map_values("fields"), lambda one: F.lower(one).contains(low))
        found.append(F.lower("message").contains(low) | F.coalesce(within, F.lit(False)))
    return found
