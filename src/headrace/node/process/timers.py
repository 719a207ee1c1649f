"""Timers: functions that the loop calls at a time, once or repeatedly, in monotonic time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heappop, heappush

log = logging.getLogger(__name__)

ONCE = 0


class Timers:
    def __init__(self) -> None:
        self._due: list[tuple[int, int, int, Callable[[], None]]] = []
        self._added = 0

    def every(self, period_ms: int, do: Callable[[], None], now_ms: int) -> None:
        self._added += 1
        heappush(self._due, (now_ms + period_ms, self._added, period_ms, do))

    def once(self, at_ms: int, do: Callable[[], None]) -> None:
        self._added += 1
        heappush(self._due, (at_ms, self._added, ONCE, do))

    def run(self, now_ms: int) -> None:
        while self._due and self._due[0][0] <= now_ms:
            _, _, period_ms, do = heappop(self._due)
            if period_ms != ONCE:
                self.every(period_ms, do, now_ms)
            try:
                do()
            except Exception:  # what fails now may work the next time
                log.exception("work that is done at its time failed (each %d ms)", period_ms)

    def next_ms(self) -> int | None:
        return self._due[0][0] if self._due else None
