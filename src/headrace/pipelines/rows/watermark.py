"""The watermark of a stream: the newest event time of all its rows so far, minus a delay.

Each row that the function is given moves it, also a row that the function leaves out. Spark would
evaluate such a filter before it looks at the times (`PushPredicateThroughNonJoin`), unless the
filter uses the time: which rows are late would then depend on how a filter is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def watermarked(rows: DataFrame, event_time: str, late: str) -> DataFrame:
    """The rows, with a watermark by the column `event_time`."""
    from pyspark.sql import functions as F

    # Always true, but not deterministic: Spark does not move another filter below this one.
    stays = F.spark_partition_id() >= 0
    return rows.withWatermark(event_time, late).where(stays)
