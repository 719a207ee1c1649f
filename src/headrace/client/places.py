"""How far the program has come in each partition, and what of that is not committed yet.

An offset here is that of the next record to give out. It moves when a record is given to the
program, not when it is fetched, so a commit never covers what nobody has seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.client.records import TopicPartition

Offsets = Mapping[TopicPartition, int]


class Places:
    def __init__(self) -> None:
        self.next: dict[TopicPartition, int] = {}
        self._began: dict[TopicPartition, int] = {}  # the first offset given out, or sought
        self._uncommitted: set[TopicPartition] = set()

    def gave(self, place: TopicPartition, offset: int) -> None:
        if place not in self.next:
            self._began[place] = offset
        self.next[place] = offset + 1
        self._uncommitted.add(place)

    def sought(self, place: TopicPartition, offset: int) -> None:
        self.forget([place])
        if offset >= 0:  # else the beginning or the end: known when the first record comes
            self.next[place] = self._began[place] = offset
            self._uncommitted.add(place)

    def forget(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._uncommitted.discard(place)
            self.next.pop(place, None)
            self._began.pop(place, None)

    def uncommitted(self) -> dict[TopicPartition, int]:
        return {place: self.next[place] for place in self._uncommitted}

    def committed(self, offsets: Offsets) -> None:
        for place, offset in offsets.items():
            if self.next.get(place) == offset:
                self._uncommitted.discard(place)

    def give_up(self) -> None:
        """What is not committed now is not to be."""
        self._uncommitted.clear()

    def before(self, committed: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        """Where to go back to: what is committed, else where we began."""
        back = {}
        for place, offset in self.next.items():
            saved = committed.get(place)
            back[place] = self._began.get(place, offset) if saved is None else saved
        return back
