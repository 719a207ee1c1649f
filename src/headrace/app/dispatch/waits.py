"""The waits of a dispatcher in memory, by due time. Pure: time is an argument.

Checking the time, rather than sleeping until then, lets a test move the clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from headrace.app.dispatch.effects import Write
from headrace.app.dispatch.record_in_hand import RecordInHand


@dataclass(slots=True)
class LaneWait:
    """A lane is held until its first record may be tried again."""

    lane: Hashable


@dataclass(slots=True)
class RecordWait:
    """A record without order that will be tried again."""

    record: RecordInHand
    made: int  # attempts so far


@dataclass(slots=True)
class ReleaseWait:
    """A record of a queue that goes back to the queue."""

    record: RecordInHand


@dataclass(slots=True)
class BatchIsLate:
    """An incomplete batch that has waited long enough for more."""


# A Write that failed and will be repeated.
Wait = LaneWait | RecordWait | ReleaseWait | BatchIsLate | Write


class PutOff:
    """When records delayed by TryLater are due: counts how many wait because something is away."""

    def __init__(self) -> None:
        self._due: list[int] = []  # heap

    def add(self, due_ms: int) -> None:
        heapq.heappush(self._due, due_ms)

    def count(self, now_ms: int) -> int:
        while self._due and self._due[0] <= now_ms:
            heapq.heappop(self._due)
        return len(self._due)


class Waits:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Wait]] = []
        self._number = 0  # of entries: at equal times the older entry is first

    def add(self, due_ms: int, wait: Wait) -> None:
        self._number += 1
        heapq.heappush(self._heap, (due_ms, self._number, wait))

    def due(self, now_ms: int) -> Iterator[Wait]:
        while self._heap and self._heap[0][0] <= now_ms:
            yield heapq.heappop(self._heap)[2]

    def set_back(self, by_ms: int) -> None:
        """The clock was set back: each wait keeps its length."""
        self._heap = [(due_ms - by_ms, number, wait) for due_ms, number, wait in self._heap]

    def next_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)
