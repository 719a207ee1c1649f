"""The report of one micro-batch, for people and for programs; from Spark's own report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

# The name of what Spark counts of a batch's records on the way (`DataFrame.observe`).
BAD_RECORDS = "headrace_bad_records"


@dataclass(slots=True)
class PipelineProgress:
    """Progress after one batch. `behind` is how many records the topic had beyond this batch: when
    the batch was planned, by Spark's report, or when it was reported, if the broker was asked."""

    batch: int
    time: str
    rows: int
    rows_per_second: float
    took_ms: int
    behind: int
    state_rows: int
    state_bytes: int
    dropped_late: int
    event_time: str | None = None  # the newest one of the batch

    def line(self) -> str:
        """Returns the line; lines of one run are aligned in columns."""
        parts = [
            f"batch {self.batch:<4}",
            f"{self.rows:>9,} rows",
            f"{_rate(self.rows_per_second):>9} rows/s",
            f"{self.took_ms / 1000:>7,.1f} s",
            f"{self.behind:>9,} behind",
        ]
        if self.state_rows:
            parts.append(f" {self.state_rows:,} in state ({_size(self.state_bytes)})")
        if self.dropped_late:
            parts.append(f" {self.dropped_late:,} too late")
        return " ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _rate(rows_per_second: float) -> str:
    return f"{rows_per_second:,.0f}" if rows_per_second >= 10 else f"{rows_per_second:.1f}"


def _size(count: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count / 1000:,.1f} kB"


def read(report: Mapping[str, Any]) -> PipelineProgress:
    """From `StreamingQuery.recentProgress`, as the dict that its JSON is."""
    operators = report.get("stateOperators") or []
    speed = report.get("processedRowsPerSecond")
    return PipelineProgress(
        batch=int(report["batchId"]),
        time=str(report.get("timestamp", "")),
        rows=int(report.get("numInputRows") or 0),
        rows_per_second=float(speed) if isinstance(speed, int | float) else 0.0,
        took_ms=int((report.get("durationMs") or {}).get("triggerExecution", 0)),
        behind=sum(_behind(source) for source in report.get("sources") or []),
        state_rows=sum(int(one.get("numRowsTotal") or 0) for one in operators),
        state_bytes=sum(int(one.get("memoryUsedBytes") or 0) for one in operators),
        dropped_late=sum(int(one.get("numRowsDroppedByWatermark") or 0) for one in operators)
        + int((report.get("observedMetrics") or {}).get(BAD_RECORDS, {}).get("late") or 0),
        event_time=(report.get("eventTime") or {}).get("max"),
    )


class Reports:
    """Spark's reports of one query, each given once. Spark keeps the last 99, and PySpark brings
    and parses all of them whenever it is asked, which a run does three times a second; so this
    looks at the newest first and stops at the one that it knows."""

    def __init__(self) -> None:
        self._newest: tuple[int, str] | None = None

    def new(self, query: Any) -> list[dict[str, Any]]:
        """Oldest first. While nothing comes in, Spark reports of the next batch again and again,
        without rows: a number alone does not name a report, its time does."""
        recent = query._jsq.recentProgress()
        found: list[dict[str, Any]] = []
        newest = None
        for number in range(len(recent) - 1, -1, -1):
            report = recent[number]
            name = (int(report.batchId()), str(report.timestamp()))
            if name == self._newest:
                break
            newest = newest or name
            found.append(json.loads(report.json()))
        self._newest = newest or self._newest
        return found[::-1]


def behind(report: Mapping[str, Any], ends: Mapping[str, Mapping[str, int]]) -> int:
    """Returns how many records are between the end of a batch and the ends of the topics."""
    done: dict[tuple[str, str], int] = {}
    for source in report.get("sources") or []:
        done |= _offsets(source.get("endOffset"))
    latest = _offsets({topic: dict(partitions) for topic, partitions in ends.items()})
    return sum(max(0, last - done.get(place, 0)) for place, last in latest.items())


def _behind(source: Mapping[str, Any]) -> int:
    ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    return sum(max(0, last - ends.get(place, 0)) for place, last in latest.items())


def _offsets(given: Any) -> dict[tuple[str, str], int]:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return {}
    if not isinstance(given, dict):
        return {}
    return {
        (topic, partition): int(offset)
        for topic, partitions in given.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
    }
