"""Functions to call at a wall-clock time; the polling thread checks several times a second.

Checking the time, rather than sleeping until then, lets a test move the clock.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

# Milliseconds since 1970. Due times are compared with this clock only; tests give one that they
# move. The length of a call is measured with monotonic time elsewhere.
WallClock = Callable[[], int]


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Timers:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, due_ms: int, do: Callable[[], None]) -> None:
        with self._lock:
            heapq.heappush(self._heap, (due_ms, next(self._numbers), do))

    def run_due(self, now_ms: int) -> None:
        while True:
            with self._lock:
                if not self._heap or self._heap[0][0] > now_ms:
                    return
                do = heapq.heappop(self._heap)[2]
            do()

    def next_ms(self) -> int | None:
        with self._lock:
            return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)
