"""Delayed messages: rows, and when they are due as a histogram. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.client.delay.pending_rows import field_bytes
from headrace.console.views import words
from headrace.console.views.overview import time_left
from headrace.console.views.payloads import Payload, payload
from headrace.operations.delayed import Lateness, RejectedMessage, latest_of

BARS = 24


@dataclass(slots=True)
class DelayedRow:
    topic: str
    partition: int  # of the companion, where it waits
    offset: int
    due_ms: int
    left: str
    id: str | None
    key: Payload
    size_bytes: int
    repeats: str  # of a cron; "" for once


def delayed_row(row: Mapping[str, Any], now_ms: int) -> DelayedRow:
    cron = row.get("cron")
    return DelayedRow(
        row["topic"],
        row["partition"],
        row["offset"],
        row["due_ms"],
        time_left(row["due_ms"], now_ms),
        row["id"],
        payload(field_bytes(row, "key")),
        row["size"],
        "" if cron is None else words.text(f"{cron['expression']} in {cron['zone']}"),
    )


@dataclass(slots=True)
class Bar:
    from_ms: int
    to_ms: int
    count: int
    share: float  # of the highest


def histogram(due_ms: Sequence[int], bars: int = BARS) -> list[Bar]:
    """Equal steps from the first to the last; none for fewer than two moments."""
    if len(due_ms) < 2 or min(due_ms) == max(due_ms):
        return []
    first, last = min(due_ms), max(due_ms)
    step = (last - first) / bars
    counts = [0] * bars
    for each in due_ms:
        counts[min(int((each - first) / step), bars - 1)] += 1
    highest = max(counts)
    return [
        Bar(int(first + i * step), int(first + (i + 1) * step), count, count / highest)
        for i, count in enumerate(counts)
    ]


def lateness_words(lateness: Lateness) -> str:
    """`half within 5 ms, 99 % within 20 ms`; "" if nothing was delivered."""
    if not any(lateness.values()):
        return ""
    said = []
    for percent, name in ((50, "half"), (99, "99 %"), (100, "all")):
        bound = latest_of(lateness, percent)
        within = "later than the last bound" if bound is None else f"within {bound} ms"
        said.append(f"{name} {within}")
    return ", ".join(said)


@dataclass(slots=True)
class RejectedRow:
    at_ms: int | None
    reason: str
    source: str
    id: str
    key: bytes | None
    value: bytes | None


def rejected_row(found: RejectedMessage) -> RejectedRow:
    reason, source, id = (
        (raw or b"").decode(errors="replace") for raw in (found.reason, found.source, found.id)
    )
    return RejectedRow(found.at_ms, reason, source, id, found.key, found.value)
