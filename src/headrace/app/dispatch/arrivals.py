"""Records that were read and wait until it is certain to which topic they belong.

When a topic is deleted and created again, librdkafka continues by name without a notice. If a
record must count once (`once=`, `exactly_once`), that must be known before a handler gets the
record: the new topic is read again from its beginning, so a record that was handled as one of the
old topic would be handled twice. A topic id is never used again. So if a question that was asked
after a record was read is answered with the known id, the record belongs to that topic.

One request is in flight at a time, for all records that were read before it was sent: a record
waits for one or two round trips, however many records there are. Called on the polling thread only.
Not certain: a broker that does not know the new topic yet answers with the old id, while the leader
of the new one already returns its records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from headrace.app.dispatch.owned_partition import OwnedPartition
from headrace.app.dispatch.record_in_hand import FetchedRecord

Owned = TypeVar("Owned", bound=OwnedPartition)

# How long to poll for records while some wait here.
POLL_S = 0.0005


class AskedTopicIds(Protocol):
    """Questions for the ids of topics, which are numbered in the order in which they are asked."""

    @property
    def next_question(self) -> int: ...
    def answered(self, topic: str) -> int:
        """The number of the last question that was answered with the known id of this topic."""
        ...


class Arrivals(Generic[Owned]):
    def __init__(self, ids: AskedTopicIds) -> None:
        self._ids = ids
        # For each partition, in order: the number of the question that must be answered first, and
        # the records.
        self._waiting: dict[Owned, deque[tuple[int, Sequence[FetchedRecord]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def topics(self) -> set[str]:
        return {owned.topic for owned in self._waiting}

    def add(self, owned: Owned, read: Sequence[FetchedRecord]) -> None:
        self._waiting.setdefault(owned, deque()).append((self._ids.next_question, read))
        owned.arriving += len(read)

    def certain(self) -> Iterator[tuple[Owned, Sequence[FetchedRecord]]]:
        """The records that may be handled, in the order in which they were read."""
        for owned, waiting in list(self._waiting.items()):
            answered = self._ids.answered(owned.topic)
            while waiting and waiting[0][0] <= answered:
                _, read = waiting.popleft()
                yield owned, read
                owned.arriving -= len(read)  # only now: they must count in one place at least
            if not waiting:
                del self._waiting[owned]

    def forget(self, owned: Owned) -> None:
        self._waiting.pop(owned, None)
        owned.arriving = 0
