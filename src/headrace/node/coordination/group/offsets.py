"""Committed offsets of each group and partition, and their expiration.

Kept as the values of their records, by group and then by (topic, partition). Offsets of an open
transaction wait per producer until its marker comes; the transaction does not replace an offset
that was committed later than its own. The rules for commits are in `offset_rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from headrace.node.coordination.group import records
from headrace.node.coordination.records import Record
from headrace.wire.protocol.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.protocol.messages.offset_commit_value import OffsetCommitValue

Place = tuple[str, int]  # topic, partition
GroupOffsets = dict[Place, OffsetCommitValue]
Committed = tuple[str, Place, OffsetCommitValue]  # the group, the place, the offset
NO_EXPIRY = -1


class Offsets:
    __slots__ = ("by_group", "pending", "_pending_at", "_replays", "_committed_at")

    def __init__(self) -> None:
        self.by_group: dict[str, GroupOffsets] = {}
        # producer id -> what its open transaction committed, with the number of the replay
        self.pending: dict[int, dict[tuple[str, Place], tuple[int, OffsetCommitValue]]] = {}
        # The number of those for each place: a place is looked up more often than it is pending.
        self._pending_at: dict[tuple[str, Place], int] = {}
        # Only while transactions are open: the replay that last set a place.
        self._committed_at: dict[tuple[str, Place], int] = {}
        self._replays = 0

    # --- replay

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        place = (key.topic, key.partition)
        if self.pending:
            self._replays += 1
            self._committed_at[key.group, place] = self._replays
            if value is None and self._pending_at.pop((key.group, place), 0):
                for waiting in self.pending.values():
                    waiting.pop((key.group, place), None)
        if value is not None:
            offsets = self.by_group.get(key.group)
            if offsets is None:
                offsets = self.by_group[key.group] = {}
            offsets[place] = value
        elif key.group in self.by_group:
            self.by_group[key.group].pop(place, None)
            if not self.by_group[key.group]:
                del self.by_group[key.group]

    def replay_pending(
        self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None
    ) -> None:
        if value is None:
            return
        self._replays += 1
        place = (key.group, (key.topic, key.partition))
        waiting = self.pending.setdefault(producer_id, {})
        if place not in waiting:
            self._pending_at[place] = self._pending_at.get(place, 0) + 1
        waiting[place] = self._replays, value

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        waiting = self.pending.pop(producer_id, {})
        for place in waiting:
            self._pending_at[place] -= 1
            if not self._pending_at[place]:
                del self._pending_at[place]
        if committed:
            for (group, at), (number, value) in waiting.items():
                if self._committed_at.get((group, at), 0) < number:
                    self.by_group.setdefault(group, {})[at] = value
                    self._committed_at[group, at] = number
        if not self.pending:
            self._committed_at.clear()

    # --- questions

    def of(self, group: str) -> GroupOffsets:
        return self.by_group.get(group) or {}

    def is_unstable(self, group: str, place: Place) -> bool:
        """Returns whether an open transaction may change it (KIP-447)."""
        return (group, place) in self._pending_at

    def has_open_transaction(self, group: str) -> bool:
        return any(found == group for waiting in self.pending.values() for found, _ in waiting)

    def forget(self, group: str, places: Iterable[Place]) -> Iterator[Record]:
        for topic, partition in places:
            yield records.forgotten_offset(group, topic, partition)

    def forget_all(self, group: str) -> list[Record]:
        places = dict.fromkeys(self.of(group))
        for waiting in self.pending.values():
            places.update((place, None) for found, place in waiting if found == group)
        return list(self.forget(group, places))

    @property
    def count(self) -> int:
        """The number of offsets, with those of open transactions."""
        kept = sum(map(len, self.by_group.values()))
        return kept + sum(map(len, self.pending.values()))

    def copies(self) -> OffsetCopies:
        """Returns all present offsets. Fast, since they are not inspected: 10 ns each."""
        kept = [(group, offsets.copy()) for group, offsets in self.by_group.items()]
        return OffsetCopies(kept, [waiting.copy() for waiting in self.pending.values()])

    def forget_if_same(self, found: Iterable[Committed]) -> Iterator[Record]:
        """Yields tombstones for offsets that were not committed again since; each place once."""
        told: set[tuple[str, Place]] = set()
        for group, place, value in found:
            if (group, place) not in told and self._is_same(group, place, value):
                told.add((group, place))
                yield records.forgotten_offset(group, *place)

    def _is_same(self, group: str, place: Place, value: OffsetCommitValue) -> bool:
        if self.of(group).get(place) == value:
            return True
        if (group, place) not in self._pending_at:
            return False
        nothing = 0, None
        return any(
            waiting.get((group, place), nothing)[1] == value for waiting in self.pending.values()
        )


@dataclass(slots=True)
class OffsetCopies:
    """The offsets of one moment, to be read while new ones are committed."""

    kept: list[tuple[str, GroupOffsets]]
    pending: list[dict[tuple[str, Place], tuple[int, OffsetCommitValue]]]

    def of_topics(self, topics: frozenset[str], per_part: int) -> Iterator[list[Committed]]:
        """Yields the offsets in these topics, after each `per_part` offsets that were inspected."""
        every: Iterator[Committed] = chain(
            ((group, *one) for group, offsets in self.kept for one in offsets.items()),
            ((*place, value) for one in self.pending for place, (_, value) in one.items()),
        )
        while part := list(islice(every, per_part)):
            yield [one for one in part if one[1][0] in topics]


def is_expired(value: OffsetCommitValue, base_ms: int, now_ms: int, retention_ms: int) -> bool:
    """Returns whether the offset has expired; `base_ms` is when its time began: the commit, or the
    moment when the last member left."""
    if value.expire_timestamp != NO_EXPIRY:
        return now_ms >= value.expire_timestamp  # set by an old client (KIP-211)
    return now_ms - base_ms >= retention_ms
