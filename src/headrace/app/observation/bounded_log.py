"""Log lines that may be very many: the first of a period are written, the rest is counted.

A handler that fails for one reason fails for every record. Its first lines show the reason; the sum
at the end of the period shows how often it happened, so nothing is silent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from headrace.app.worker.timers import WallClock

log = logging.getLogger("headrace.app")

Trace = tuple[type[BaseException], BaseException, TracebackType | None]


@dataclass(slots=True)
class Kind:
    """Lines with the same meaning for many records; `more` describes those that were left out."""

    more: str  # such as "more attempts failed"
    most: int  # lines of one kind and cause in one period
    period_ms: int


@dataclass(slots=True)
class _Period:
    kind: Kind
    cause: str
    ends_ms: int
    lines: int = 0
    left_out: int = 0
    last: str = ""


class BoundedLog:
    """The failure log of one subscription; may be called on any thread."""

    def __init__(
        self, *, clock: WallClock, after: Callable[[int, Callable[[], None]], None]
    ) -> None:
        """`after` calls a function at a time of the wall clock."""
        self._clock = clock
        self._after = after
        self._lock = threading.Lock()
        self._periods: dict[tuple[str, str], _Period] = {}  # by kind and cause, while they last

    def say(
        self, kind: Kind, cause: str, level: int, line: str, trace: Trace | None = None
    ) -> None:
        """Write a line, or count it; lines of one kind and cause count together. The first has its
        stack."""
        with self._lock:
            period = self._period(kind, cause)
            written = period.lines < kind.most
            if period.lines:
                trace = None
            period.lines += 1
            if not written:
                period.left_out += 1
                period.last = line
        if written:
            log.log(level, "%s", line, exc_info=trace)

    def _period(self, kind: Kind, cause: str) -> _Period:
        place = kind.more, cause
        period = self._periods.get(place)
        if period is None:
            period = _Period(kind, cause, self._clock() + kind.period_ms)
            self._periods[place] = period
            self._after(period.ends_ms, lambda: self._end(period))
        return period

    def _end(self, period: _Period) -> None:
        place = period.kind.more, period.cause
        with self._lock:
            if self._periods.get(place) is not period:
                return
            del self._periods[place]
        if period.left_out:
            log.warning(
                "%s %s (%s); the last: %s",
                f"{period.left_out:,}", period.kind.more, period.cause, period.last,
            )  # fmt: skip

    def close(self) -> None:
        """Write the sums that are not written yet."""
        for period in list(self._periods.values()):
            self._end(period)
