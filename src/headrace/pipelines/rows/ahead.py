"""The limit on the future: an event time that is further ahead than a topic allows.

One such row would move the watermark, and every row after it would be too late. The measure is the
record's own time or the clock, whichever is earlier. The record's own time decides for a record
whose producer has the right clock, so that a stream, a stream that catches up and `--history`
decide alike. The clock decides where the producer's clock is ahead too.

The clock of a micro-batch is the time at which Spark planned it. Spark keeps it in the checkpoint,
so a batch that is repeated decides as it did before. Without a clock only the record's own time is
asked: for two queries over the same records, which have two clocks, and for `--real-time`, where a
batch lasts for minutes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

DEFAULT = "5 minutes"
# Spark's intervals that always have the same length.
INTERVAL = re.compile(r"\d{1,9} (second|minute|hour|day|week)s?", re.ASCII)


def is_interval(text: str) -> bool:
    return INTERVAL.fullmatch(text) is not None


def clock_of_batch() -> Column:
    """Within a stream: the time at which its batch was planned."""
    from pyspark.sql import functions as F

    return F.current_timestamp()


def clock_at(wall_ms: int) -> Column:
    from pyspark.sql import functions as F

    return F.timestamp_millis(F.lit(wall_ms))


def planned_at(checkpoint: Path, number: int) -> int:
    """What `clock_of_batch` was for a batch, in milliseconds, from Spark's checkpoint."""
    lines = (checkpoint / "offsets" / str(number)).read_text("utf-8").splitlines()
    return int(json.loads(lines[1])["batchTimestampMs"])


def reason(name: str, time: Column, limit: str, clock: Column | None) -> Column:
    """Returns why an event time is too far ahead, or null. A record without a time of its own
    (negative in Kafka) is judged by the clock alone."""
    from pyspark.sql import functions as F

    most = F.expr(f"INTERVAL {limit}")
    written = F.col("timestamp")
    has_time = written >= F.timestamp_millis(F.lit(0))
    why = F.when(
        has_time & (time > written + most),
        F.lit(f"{name} is more than {limit} after the time of the record"),
    )
    if clock is None:
        return why
    return why.when(time > clock + most, F.lit(f"{name} is more than {limit} ahead of the clock"))
