"""Alerts from minutes: a run of bad minutes is raised once and cleared once.

A minute is judged when no late row can change it any more, so an alert is never taken back: it
comes `late` after its minute. A run is seen through windows that slide over it by a minute: the
window that begins with a good minute and continues with `lasts` bad ones raises the alert, the
window that begins with `lasts` bad ones and ends with a good one clears it. A minute without rows
is a good one. No state but that of the windows is kept, so a stream and a run over history find the
same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RAISED, CLEARED = "raised", "cleared"


def runs(bad: DataFrame, keys: list[str], value: str, lasts: int) -> DataFrame:
    """Takes rows of bad minutes (a column `window` that ends with the minute, keys, a value).
    Returns a row for each run of `lasts` or more minutes when it begins, and one when it is
    over."""
    from pyspark.sql import functions as F

    seen = _slid(bad, keys, value, lasts)
    count, first, last = F.size("minutes"), F.col("minutes")[0], F.element_at("minutes", -1)
    begins = (count == lasts) & (first["at"] == _minute(1))
    ends = (count == lasts) & (last["at"] == _minute(lasts - 1))
    return _told(seen, keys, begins, ends, last["value"])


def silences(alive: DataFrame, keys: list[str], lasts: int) -> DataFrame:
    """Takes rows of minutes in which a key sent something. Returns a row when a key is silent for
    `lasts` minutes, and one when it sends again after so long, or for the first time."""
    from pyspark.sql import functions as F

    seen = _slid(alive.withColumn("heard", F.lit(1.0)), keys, "heard", lasts)
    alone, first = F.size("minutes") == 1, F.col("minutes")[0]
    gone = alone & (first["at"] == _minute(0))
    back = alone & (first["at"] == _minute(lasts))
    return _told(seen, keys, gone, back, F.lit(None).cast("double"))


def _slid(rows: DataFrame, keys: list[str], value: str, lasts: int) -> DataFrame:
    """Each window of `lasts` minutes and one more, with its minutes in their order."""
    from pyspark.sql import functions as F

    at = F.col("window.end") - F.expr("INTERVAL 1 MINUTE")
    one = F.struct(at.alias("at"), F.col(value).cast("double").alias("value"))
    marked = rows.select("window", *keys, one.alias("one"))
    over = F.window(F.window_time("window"), f"{lasts + 1} minutes", "1 minute")
    grouped = marked.groupBy(over, *keys).agg(F.collect_set("one").alias("found"))
    return grouped.withColumn("minutes", F.sort_array("found"))


def _minute(number: int) -> Column:
    """Returns the minute of a window by its number, from 0."""
    from pyspark.sql import functions as F

    return F.col("window.start") + F.expr(f"INTERVAL {number} MINUTE")


def _told(
    seen: DataFrame, keys: list[str], raised: Column, cleared: Column, value: Column
) -> DataFrame:
    from pyspark.sql import functions as F

    state = F.when(raised, RAISED).when(cleared, CLEARED)
    told = seen.withColumn("state", state).where("state IS NOT NULL")
    of_raised = F.when(F.col("state") == RAISED, value)
    return told.select(*keys, "state", F.col("window.end").alias("time"), of_raised.alias("value"))
