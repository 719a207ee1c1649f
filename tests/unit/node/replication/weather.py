"""Virtual time, and a network that loses, delays, repeats and reorders what it is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

CONTROLLER = 0


class Weather:
    """Events in the order of their time; a seed gives the same order each time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.counts: Counter[str] = Counter()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._so_far = 0
        self.loss = 0.0
        self.repeats = 0.0
        self.long_delays = 0.0
        self.cuts: set[tuple[int, int]] = set()  # from, to

    def at(self, delay_ms: int, event: Callable[[], None]) -> None:
        self._so_far += 1
        heappush(self._events, (self.now_ms + max(delay_ms, 0), self._so_far, event))

    def run(self, until_ms: int) -> None:
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, event = heappop(self._events)
            event()
        self.now_ms = until_ms

    def send(self, source: int, target: int, deliver: Callable[[], None]) -> None:
        self.counts["messages"] += 1
        if (source, target) in self.cuts or self.random.random() < self.loss:
            self.counts["messages lost"] += 1
            return
        copies = 2 if self.random.random() < self.repeats else 1
        for _ in range(copies):
            delay_ms = self.random.randint(1, 12)
            if self.random.random() < self.long_delays:
                delay_ms = self.random.randint(50, 900)
            self.at(delay_ms, deliver)

    def cut(self, node: int, others: list[int], *, inwards: bool, outwards: bool) -> None:
        for other in others:
            if inwards:
                self.cuts.add((other, node))
            if outwards:
                self.cuts.add((node, other))

    def calm(self) -> None:
        self.cuts.clear()
        self.loss = self.repeats = self.long_delays = 0.0
