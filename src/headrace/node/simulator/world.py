"""Virtual time: one queue of events, run in order, and chance from one seed.

A run is a function of its seed: the same seed gives the same events in the same order, on every
machine. Every simulated part asks this for the time, for chance and to be called later.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from headrace.environment import Now

WALL_START_MS = 1_700_000_000_000


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.now_ms = 0
        self.events = 0  # that have run
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_START_MS + self.now_ms)

    def at(self, delay_ms: int, do: Callable[[], None]) -> None:
        """Events of the same moment run in the order in which they were asked for."""
        self._count += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._count, do))

    def run(self, for_ms: int) -> None:
        until_ms = self.now_ms + for_ms
        while self._queue and self._queue[0][0] <= until_ms:
            self.now_ms, _, do = heapq.heappop(self._queue)
            self.events += 1
            do()
        self.now_ms = until_ms

    def happens(self, probability: float) -> bool:
        return probability > 0 and self.chance.random() < probability
