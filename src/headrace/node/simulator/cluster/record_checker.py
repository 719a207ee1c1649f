"""The answers about records to clients of a replicated cluster, compared with what is seen later.

Every record that was acknowledged or read is there for ever, once, at its offset, on every replica,
unless a client asked for its deletion: then it may be there or not.
A leader epoch has one leader. Readers go forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.node.simulator.checkers import Violation
from headrace.node.simulator.cluster.scripts import Place


class RecordChecker:
    def __init__(self) -> None:
        self.acknowledged: dict[Place, dict[int, bytes]] = {}  # by offset
        self.somewhere: dict[Place, set[bytes]] = {}  # acknowledged, at an unknown offset
        self.seen: dict[Place, dict[int, bytes]] = {}  # by consumers, below a high watermark
        self._sent: dict[Place, set[bytes]] = {}
        self._leaders: dict[tuple[Place, int], int] = {}  # by leader epoch
        self._latest: dict[Place, int] = {}  # the largest end that a client has seen
        self._deleted: dict[Place, int] = {}  # everything before may be gone

    @property
    def acknowledged_count(self) -> int:
        at_offsets = sum(map(len, self.acknowledged.values()))
        return at_offsets + sum(map(len, self.somewhere.values()))

    # Actions of clients and their answers

    def send(self, place: Place, values: Iterable[bytes]) -> None:
        self._sent.setdefault(place, set()).update(values)

    def acknowledge(self, place: Place, base_offset: int, values: Iterable[bytes]) -> None:
        known = self.acknowledged.setdefault(place, {})
        for offset, value in enumerate(values, start=base_offset):
            if offset in known:
                raise Violation(f"{place}: offset {offset} was acknowledged twice")
            known[offset] = value
            self._compare(place, offset, value, self.seen.get(place, {}))

    def acknowledge_somewhere(self, place: Place, values: Iterable[bytes]) -> None:
        self.somewhere.setdefault(place, set()).update(values)

    def delete_before(self, place: Place, offset: int) -> None:
        """Note that a client is about to delete the records before `offset`."""
        self._deleted[place] = max(offset, self.deleted_before(place))
        self.somewhere.pop(place, None)  # their offsets are not known

    def deleted_before(self, place: Place) -> int:
        """Records from this offset on must be there."""
        return self._deleted.get(place, 0)

    def read(self, place: Place, offset: int, value: bytes) -> None:
        """A consumer has read the value: it is committed, so every consumer gets it from now on."""
        if value not in self._sent.get(place, ()):
            raise Violation(f"{place}: nobody has sent {value!r}, which is at offset {offset}")
        self._compare(place, offset, value, self.acknowledged.get(place, {}))
        self._compare(place, offset, value, self.seen.setdefault(place, {}))
        self.seen[place][offset] = value

    def _compare(self, place: Place, offset: int, value: bytes, known: Mapping[int, bytes]) -> None:
        if known.get(offset, value) != value:
            raise Violation(
                f"{place}: offset {offset} has two values, {known[offset]!r} and {value!r}"
            )

    def latest_known(self, place: Place) -> int:
        return self._latest.get(place, 0)

    def told_end(self, place: Place, end: int, known_before: int) -> None:
        """Check the end that a client got; it asked when the end `known_before` was known."""
        if end < known_before:
            raise Violation(f"{place}: the high watermark {end} was {known_before} before")
        self._latest[place] = max(end, self.latest_known(place))

    def leads(self, place: Place, epoch: int, node: int) -> None:
        other = self._leaders.setdefault((place, epoch), node)
        if other != node:
            raise Violation(f"{place}: nodes {other} and {node} both lead epoch {epoch}")

    # The end

    def finish(self, place: Place, node: int, records: Iterable[tuple[int, bytes]]) -> None:
        """All that a replica has when the faults are over and it is in sync."""
        found = dict(records)
        for promises, whose in ((self.acknowledged, "acknowledged"), (self.seen, "read")):
            for offset, value in promises.get(place, {}).items():
                if offset < self.deleted_before(place):
                    continue
                if found.get(offset) != value:
                    raise Violation(
                        f"{place}: node {node} has {found.get(offset)!r} at offset {offset}, where "
                        f"{value!r} was {whose}"
                    )
        values = set(found.values())
        if len(values) != len(found):
            raise Violation(f"{place}: node {node} has a record twice, which was sent once")
        missing = self.somewhere.get(place, set()) - values
        if missing:
            raise Violation(f"{place}: node {node} lacks {missing}, which were acknowledged")

    def lost(self, place: Place, records: Iterable[tuple[int, bytes]]) -> int:
        """Returns how many acknowledged records a replica lacks."""
        found = dict(records)
        known = self.acknowledged.get(place, {})
        return sum(found.get(offset) != value for offset, value in known.items())
