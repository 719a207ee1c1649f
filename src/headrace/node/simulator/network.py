"""A network between nodes that loses, delays, reorders and doubles messages, and can be cut.

A message that is delayed longer than the next one arrives after it. A cut has a direction: a node
may still send but not receive, or receive but not send. A firewall refuses: a connection attempt
fails at once as if no process listened there, though one does.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from headrace.node.simulator.counters import Counters
from headrace.node.simulator.world import World


class Network:
    def __init__(self, world: World, counters: Counters) -> None:
        self._world = world
        self._counters = counters
        self._cuts: set[tuple[int, int]] = set()  # from, to
        self._firewalls: set[tuple[int, int]] = set()  # from, to: refused
        self.refused = 0  # connections so far, by firewalls and where no process listens
        self.loss = 0.0  # the probability that a message is lost
        self.duplication = 0.0
        self.doubled: Container[int] | None = None  # only between these nodes; None: for all
        self.delays_ms: tuple[int, ...] = (1, 2)  # one of them for each message

    def carry(self, source: int, target: int, deliver: Callable[[], None]) -> None:
        world = self._world
        if (source, target) in self._cuts or world.happens(self.loss):
            self._counters.lost_messages += 1
            return
        world.at(world.chance.choice(self.delays_ms), deliver)
        if self.duplication and self._is_doubled(source, target):
            self._counters.duplicated_messages += 1
            world.at(world.chance.randint(1, 1_000), deliver)

    def _is_doubled(self, source: int, target: int) -> bool:
        within = self.doubled
        if within is not None and not (source in within and target in within):
            return False
        return self._world.happens(self.duplication)

    def connects(self, source: int, target: int) -> bool:
        """Returns whether both directions are open, as a new connection needs them."""
        return (source, target) not in self._cuts and (target, source) not in self._cuts

    def refuses(self, source: int, target: int) -> bool:
        """Returns whether a firewall between them refuses connections to `target`."""
        return (source, target) in self._firewalls

    def wall_off(self, node: int, others: Iterable[int], *, both_ways: bool) -> None:
        """Requests of others to `node` are refused; `both_ways`: its own requests to them as
        well."""
        for other in others:
            if other != node:
                self._firewalls.add((other, node))
                if both_ways:
                    self._firewalls.add((node, other))

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
        self._firewalls.clear()

    def calm(self) -> None:
        """No fault from now on; messages on their way still arrive when they arrive."""
        self.heal()
        self.loss = self.duplication = 0.0
        self.delays_ms = (1, 2)
