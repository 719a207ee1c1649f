"""Keys of one partition that wait for a retry, so that no later record overtakes a failed one.

With `order_by="key"` a failed record and all later ones of its key are copied to the retry
partition of the same number. Its owner keeps the copies here, in the order of their original
offsets, and releases the first when it is due; the others follow when it is done. A copy is entered
only when it has been read back from the retry partition, so a crash takes the same path as normal
operation; a copy that was appended and not yet read keeps its key blocked by a count. Pure: time is
an argument.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

# How many records of one partition may wait; then its source pauses.
MOST = 10_000


class Copy(Protocol):
    """What must be known about a copy in the retry partition."""

    @property
    def lane(self) -> Hashable: ...
    @property
    def origin_offset(self) -> int: ...
    @property
    def offset(self) -> int:
        """The offset of the copy itself, in the retry partition."""
        ...

    @property
    def due_ms(self) -> int: ...


C = TypeVar("C", bound=Copy)


class _Key(Generic[C]):
    __slots__ = ("appended", "out", "queue")

    def __init__(self) -> None:
        self.queue: list[C] = []  # by original offset, then by its own
        self.appended = 0  # copies that are or will be written and have not been read back
        self.out: C | None = None  # the head, while it is being handled


class BlockedKeys(Generic[C]):
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._keys: dict[Hashable, _Key[C]] = {}
        self._ours: dict[int, Hashable] = {}  # offsets of copies we appended -> lane
        self._due: list[tuple[int, int, Hashable]] = []  # heap: due, offset of the head, lane
        self.count = 0  # copies here or not read back yet

    @property
    def full(self) -> bool:
        return self.count >= self._most

    def blocks(self, lane: Hashable) -> bool:
        """Whether a new record of this key must go to the retry partition, behind the others.

        Not when only the last copy is being handled: the new record waits behind it in the lane.
        """
        key = self._keys.get(lane)
        return key is not None and bool(key.queue or key.appended)

    def appending(self, lane: Hashable) -> None:
        """A copy will be appended to the retry partition: from now on its key is blocked."""
        self._key(lane).appended += 1
        self.count += 1

    def appended(self, lane: Hashable, offset: int) -> None:
        """The copy was committed, and will be read back from the retry partition."""
        self._ours[offset] = lane

    def arrived(self, copy: C) -> None:
        """A copy was read from the retry partition."""
        promised = self._ours.pop(copy.offset, None)
        if promised is None:
            self.count += 1
        else:
            self._kept_promise(promised)
        key = self._key(copy.lane)
        insort(key.queue, copy, key=_in_order)
        self._schedule(copy.lane, key)

    def _kept_promise(self, lane: Hashable) -> None:
        """An appended copy was read. `lane` is the lane before its move: a record without a key
        gets another one after it."""
        key = self._keys[lane]
        key.appended -= 1
        if not key.queue and not key.appended and key.out is None:
            del self._keys[lane]

    def take_due(self, now_ms: int) -> list[C]:
        """Heads that are due and must be handled now, one of each key."""
        taken = []
        while self._due and self._due[0][0] <= now_ms:
            _, offset, lane = heapq.heappop(self._due)
            key = self._keys.get(lane)
            if key is None or not self._may_go(key) or key.queue[0].offset != offset:
                continue  # an older entry of the heap
            key.out = key.queue.pop(0)
            taken.append(key.out)
        return taken

    def next_due_ms(self) -> int | None:
        return self._due[0][0] if self._due else None

    def finished(self, copy: C) -> None:
        """The copy that was out is finished, or was appended again as another copy."""
        key = self._keys.get(copy.lane)
        if key is None or key.out is not copy:
            return
        key.out = None
        self.count -= 1
        if not key.queue and not key.appended:
            del self._keys[copy.lane]
        else:
            self._schedule(copy.lane, key)

    def returned(self, copy: C) -> None:
        """The copy that was out was not tried: it waits in its place again."""
        key = self._keys.get(copy.lane)
        if key is not None and key.out is copy:
            key.out = None
            insort(key.queue, copy, key=_in_order)
            self._schedule(copy.lane, key)

    def _key(self, lane: Hashable) -> _Key[C]:
        key = self._keys.get(lane)
        if key is None:
            key = self._keys[lane] = _Key()
        return key

    def _may_go(self, key: _Key[C]) -> bool:
        # The appended copy may belong before the head: wait until it has been read.
        return bool(key.queue) and key.out is None and not key.appended

    def _schedule(self, lane: Hashable, key: _Key[C]) -> None:
        if self._may_go(key):
            head = key.queue[0]
            heapq.heappush(self._due, (head.due_ms, head.offset, lane))


def _in_order(copy: Copy) -> tuple[int, int]:
    return copy.origin_offset, copy.offset
