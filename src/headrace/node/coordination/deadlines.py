"""Deadlines by key, in monotonic milliseconds: set, moved and dropped in about the time of a dict.

Most deadlines are moved often and never reached (a member's session, at each heartbeat), so moving
one to a later time changes the dictionary only: the heap is corrected when it gets there.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush

# Dropped deadlines stay in the heap until they are reached; it is cleaned when they are the
# majority.
SWEEP_ABOVE = 1_000
NEVER_MS = 1 << 62


class Deadlines:
    __slots__ = ("_heap", "_count", "at", "earliest_ms")

    def __init__(self) -> None:
        self.at: dict[Hashable, int] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._count = 0  # breaks ties, in the order of setting
        # No deadline is reached before it. Reading it costs one slot; `next_ms` makes it exact,
        # since deadlines may have been moved or dropped meanwhile.
        self.earliest_ms = NEVER_MS

    def set(self, key: Hashable, at_ms: int) -> None:
        before = self.at.get(key)
        self.at[key] = at_ms
        if before is None or at_ms < before:
            self._push(key, at_ms)

    def drop(self, key: Hashable) -> None:
        self.at.pop(key, None)

    @property
    def next_ms(self) -> int | None:
        """Returns when the first deadline is reached."""
        heap = self._heap
        while heap:
            at_ms, _, key = heap[0]
            real_ms = self.at.get(key)
            if real_ms == at_ms:
                self.earliest_ms = at_ms
                return at_ms
            heappop(heap)
            if real_ms is not None and real_ms > at_ms:
                self._push(key, real_ms)
        self.earliest_ms = NEVER_MS
        return None

    def reached(self, now_ms: int) -> Hashable | None:
        """Returns the first key whose deadline is reached; it stays until it is dropped or
        moved."""
        next_ms = self.next_ms
        return self._heap[0][2] if next_ms is not None and next_ms <= now_ms else None

    def _push(self, key: Hashable, at_ms: int) -> None:
        if at_ms < self.earliest_ms:
            self.earliest_ms = at_ms
        self._count += 1
        heappush(self._heap, (at_ms, self._count, key))
        if len(self._heap) > SWEEP_ABOVE and len(self._heap) > 2 * len(self.at):
            self._count = 0
            self._heap = []
            for number, (name, reached_ms) in enumerate(self.at.items()):
                self._heap.append((reached_ms, number, name))
            self._count = len(self._heap)
            heapify(self._heap)
