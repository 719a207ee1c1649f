"""Days in a pipeline's own zone, as groups of a stream.

Spark's windows of a day begin at midnight UTC, whatever the zone, while its dates use the zone: a
number would be shown under the wrong day. And a day may have 23 or 25 hours. So rows are grouped by
the moment at which their day ends, which Spark can compare with its watermark: the state of a day
is dropped when the watermark has passed that moment, as it is for a window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, GroupedData

DAY_END = "_headrace_day_end"
# By which Spark knows a column whose groups end with the watermark. The delay itself is that of the
# watermark, which has been taken from the times of the rows; the number here is not used.
EVENT_TIME = {"spark.watermarkDelayMs": 0}


def by_day(rows: DataFrame, time: str, *others: str | Column) -> GroupedData:
    """Groups rows by the day of a time, and by more columns; `day()` is then the day as a date."""
    from pyspark.sql import functions as F

    end = F.date_add(F.to_date(time), 1).cast("timestamp")
    marked = rows.select("*", end.alias(DAY_END, metadata=EVENT_TIME))
    return marked.groupBy(DAY_END, *others)


def day() -> Column:
    """Returns the day of a group that `by_day` made."""
    from pyspark.sql import functions as F

    return F.date_sub(F.to_date(DAY_END), 1)
