"""The position of the program in each partition, and the part that is not committed yet.

An offset here is that of the next record to return. It moves when a record is given to the program,
not when it is fetched, so a commit never covers a record that the program has not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.client.records import TopicPartition

Offsets = Mapping[TopicPartition, int]


class Positions:
    """Records come in runs of one partition: the position is stored when a run ends or is asked
    for, so most records cost two comparisons here and no access to a dictionary.
    """

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}
        self._began: dict[TopicPartition, int] = {}  # the first offset returned, or sought
        self._uncommitted: set[TopicPartition] = set()
        self._run: TopicPartition | None = None
        self._run_next = 0

    def gave(self, topic: str, partition: int, offset: int) -> None:
        run = self._run
        if run is None or run[1] != partition or run[0] != topic:
            self._enter_run()
            run = self._run = TopicPartition(topic, partition)
            if run not in self._next:
                self._began[run] = offset
        self._run_next = offset + 1

    def _enter_run(self) -> None:
        if self._run is not None:
            self._next[self._run] = self._run_next
            self._uncommitted.add(self._run)
            self._run = None

    @property
    def next(self) -> dict[TopicPartition, int]:
        self._enter_run()
        return self._next

    def sought(self, place: TopicPartition, offset: int) -> None:
        self.forget([place])
        if offset >= 0:  # else the beginning or the end: known when the first record comes
            self._next[place] = self._began[place] = offset
            self._uncommitted.add(place)

    def forget(self, places: Iterable[TopicPartition]) -> None:
        self._enter_run()
        for place in places:
            self._uncommitted.discard(place)
            self._next.pop(place, None)
            self._began.pop(place, None)

    def uncommitted(self) -> dict[TopicPartition, int]:
        known = self.next
        return {place: known[place] for place in self._uncommitted}

    def committed(self, offsets: Offsets) -> None:
        known = self.next
        for place, offset in offsets.items():
            if known.get(place) == offset:
                self._uncommitted.discard(place)

    def give_up(self) -> None:
        """Forget offsets that are not committed now, so that they are not committed later."""
        self._enter_run()
        self._uncommitted.clear()

    def before(self, committed: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        """The offsets to go back to: committed ones, else where we began."""
        back = {}
        for place, offset in self.next.items():
            saved = committed.get(place)
            back[place] = self._began.get(place, offset) if saved is None else saved
        return back
