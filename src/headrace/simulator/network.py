"""A network between nodes that loses, delays, reorders and doubles messages, and can be cut.

A message that is delayed longer than the next one arrives after it. A cut has a direction: a node
may still be heard and hear nothing, or hear and not be heard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.simulator.counters import Counters
from headrace.simulator.world import World


class Network:
    def __init__(self, world: World, counters: Counters) -> None:
        self._world = world
        self._counters = counters
        self._cuts: set[tuple[int, int]] = set()  # from, to
        self.loss = 0.0  # the probability that a message is lost
        self.duplication = 0.0
        self.delays_ms: tuple[int, ...] = (1, 2)  # one of them for each message

    def carry(self, source: int, target: int, deliver: Callable[[], None]) -> None:
        world = self._world
        if (source, target) in self._cuts or world.happens(self.loss):
            self._counters.lost_messages += 1
            return
        world.at(world.chance.choice(self.delays_ms), deliver)
        if world.happens(self.duplication):
            self._counters.duplicated_messages += 1
            world.at(world.chance.randint(1, 1_000), deliver)

    def cut(self, source: int, target: int) -> None:
        """One way: what `source` sends does not reach `target`."""
        self._cuts.add((source, target))

    def isolate(self, node: int, others: Iterable[int], *, sends: bool, hears: bool) -> None:
        for other in others:
            if other != node:
                if not sends:
                    self.cut(node, other)
                if not hears:
                    self.cut(other, node)

    def heal(self) -> None:
        self._cuts.clear()

    def calm(self) -> None:
        """No fault from now on; messages on their way still arrive when they arrive."""
        self.heal()
        self.loss = self.duplication = 0.0
        self.delays_ms = (1, 2)
