"""What clients of a replicated cluster were told, held against what is seen later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.simulator.checkers import Violation

Place = tuple[str, int]  # topic and partition


class ReplicaChecker:
    def __init__(self) -> None:
        self.acknowledged: dict[Place, dict[int, bytes]] = {}  # by offset
        self.seen: dict[Place, dict[int, bytes]] = {}  # by consumers, below a high watermark
        self.sent: dict[Place, set[bytes]] = {}
        self._leaders: dict[tuple[Place, int], int] = {}  # by leader epoch

    def acknowledge(self, place: Place, offset: int, value: bytes) -> None:
        known = self.acknowledged.setdefault(place, {})
        if offset in known:
            raise Violation(f"{place}: offset {offset} was acknowledged twice")
        known[offset] = value
        self._compare(place, offset, value, self.seen.get(place, {}))

    def read(self, place: Place, offset: int, value: bytes) -> None:
        """A consumer has got it: it is committed, so everybody gets it from now on."""
        if value not in self.sent.get(place, ()):
            raise Violation(f"{place}: nobody has sent {value!r}, which is at offset {offset}")
        self._compare(place, offset, value, self.acknowledged.get(place, {}))
        self._compare(place, offset, value, self.seen.setdefault(place, {}))
        self.seen[place][offset] = value

    def _compare(self, place: Place, offset: int, value: bytes, known: Mapping[int, bytes]) -> None:
        if known.get(offset, value) != value:
            raise Violation(
                f"{place}: offset {offset} has two values, {known[offset]!r} and {value!r}"
            )

    def leads(self, place: Place, epoch: int, node: int) -> None:
        other = self._leaders.setdefault((place, epoch), node)
        if other != node:
            raise Violation(f"{place}: nodes {other} and {node} both lead epoch {epoch}")

    def finish(self, place: Place, node: int, records: Iterable[tuple[int, bytes]]) -> None:
        """All that a replica has when the faults are over and it is in sync."""
        found = dict(records)
        for promises, whose in ((self.acknowledged, "acknowledged"), (self.seen, "read")):
            for offset, value in promises.get(place, {}).items():
                if found.get(offset) != value:
                    raise Violation(
                        f"{place}: node {node} has {found.get(offset)!r} at offset {offset}, where "
                        f"{value!r} was {whose}"
                    )
        values = list(found.values())
        if len(values) != len(set(values)):
            raise Violation(f"{place}: node {node} has a record twice, which was sent once")
