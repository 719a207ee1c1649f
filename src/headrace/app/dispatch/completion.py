"""Which records of one partition are finished, when they finish out of order.

The committed offset is that of the lowest unfinished record; the finished records above it are
written, run-length coded, into the commit's metadata, so that after a crash only unfinished ones
come again. The topic's id is beside them: a commit for a deleted topic of the same name has no
meaning for the present topic. Offsets need not be dense: compaction and transaction markers leave
holes, which are not waited for. The metadata has at most 4,096 characters, the broker's default
limit (`offset.metadata.max.bytes`): if `full`, it is nearly used up and no more records should
begin. Not done: a limit that the operator has lowered is not known here.
"""

from __future__ import annotations

import base64
import binascii
from collections import deque
from collections.abc import Iterable, Iterator

LONGEST_METADATA = 4096
# From here on no new record begins: running ones may still add some ranges.
FULL_FROM = 3600
# Computing the ranges takes time in proportion to the finished records: not before it can matter. A
# range takes two bytes at least, 2.7 characters.
LOOK_FROM = 1000
LOOK_AGAIN_AFTER = 100
PREFIX = "hr1:"
# `hr2:<topic id>:` and the same ranges. Workers that only understand hr1 ignore them.
PREFIX_WITH_ID = "hr2:"
ID_LENGTH = 22  # base64 of 16 bytes, as Kafka prints topic ids

Ranges = list[tuple[int, int]]  # [first, after the last) of finished offsets, ascending


class Completion:
    """The records of one partition from the lowest unfinished one to the last that was begun."""

    __slots__ = (
        "_begun", "_finished", "_next", "_start", "_known", "_looked_at", "_was_full", "topic_id",
    )  # fmt: skip

    def __init__(
        self,
        position: int,
        finished: Iterable[tuple[int, int]] = (),
        topic_id: str | None = None,
    ) -> None:
        self.topic_id = topic_id
        self._begun: deque[int] = deque()  # ascending; the head is unfinished
        self._finished: set[int] = set()  # of those in _begun
        self._next = position  # the offset to continue at when all records are finished
        self._start = position
        self._known: deque[tuple[int, int]] = deque(finished)  # from the commit we started at
        self._looked_at = -LOOK_AGAIN_AFTER  # how many were finished at the last check
        self._was_full = False

    def begin(self, offset: int) -> bool:
        """A record was read, in order. Returns False if it is known, or was finished by a former
        owner."""
        if offset < self._next:
            return False
        self._next = offset + 1
        known = self._known
        while known and known[0][1] <= offset:
            known.popleft()
        if known and known[0][0] <= offset:
            if self._begun:
                self._begun.append(offset)
                self._finished.add(offset)
            return False
        self._begun.append(offset)
        return True

    def starts_beyond(self, offset: int) -> bool:
        """Whether the very first record is before the start: the committed offset is beyond the end
        of the log, so the log is read from its beginning, as any consumer does."""
        return offset < self._next == self._start

    def finish(self, offset: int) -> None:
        begun, finished = self._begun, self._finished
        if begun and begun[0] == offset:
            begun.popleft()
            while finished and begun[0] in finished:
                finished.discard(begun.popleft())
        else:
            finished.add(offset)

    @property
    def position(self) -> int:
        """The offset to commit: no record before it is needed again."""
        if self._begun:
            return self._begun[0]
        position = self._next
        for first, after in self._known:  # all records are finished; skip known finished ranges
            if first > position:
                break
            position = max(position, after)
        return position

    @property
    def outstanding(self) -> int:
        """Records that were begun and are not finished."""
        return len(self._begun) - len(self._finished)

    @property
    def full(self) -> bool:
        """Whether the metadata is nearly full."""
        count = len(self._finished)
        if count < LOOK_FROM and not self._known:
            return False
        if abs(count - self._looked_at) >= LOOK_AGAIN_AFTER:
            self._looked_at = count
            self._was_full = len(self.metadata()) >= FULL_FROM
        return self._was_full

    def finished_ranges(self) -> Ranges:
        """The finished offsets above `position`."""
        position = self.position
        return list(_joined(_ranges(self._begun, self._finished), self._known, position))

    def metadata(self) -> str:
        """The metadata for the commit of `position`; records that do not fit are left out and come
        again."""
        return encode(self.position, self.finished_ranges(), self.topic_id)


def _ranges(begun: Iterable[int], finished: set[int]) -> Iterator[tuple[int, int]]:
    """Ranges of finished records; a hole in the offsets does not end one.

    Most finished records are at the front, so the search ends with the last of them, not with the
    last begun.
    """
    first = after = -1
    left = len(finished)
    for offset in begun if left else ():
        if offset in finished:
            if first < 0:
                first = offset
            after = offset + 1
            left -= 1
            if not left:
                break
        elif first >= 0:
            yield first, after
            first = -1
    if first >= 0:
        yield first, after


def _joined(
    ours: Iterable[tuple[int, int]], known: Iterable[tuple[int, int]], position: int
) -> Iterator[tuple[int, int]]:
    last: tuple[int, int] | None = None
    for first, after in (*ours, *known):  # records known from before follow those that have come
        if after <= position:
            continue
        first = max(first, position)
        if last is not None and first <= last[1]:
            last = (last[0], max(after, last[1]))
            continue
        if last is not None:
            yield last
        last = (first, after)
    if last is not None:
        yield last


def encode(position: int, ranges: Iterable[tuple[int, int]], topic_id: str | None = None) -> str:
    """The ranges as gap, length, gap, length ... in base64 varints, counted from `position`."""
    raw = bytearray()
    prefix = PREFIX if topic_id is None else f"{PREFIX_WITH_ID}{topic_id}:"
    room = (LONGEST_METADATA - len(prefix)) // 4 * 3
    at = position
    for first, after in ranges:
        pair = _varint(first - at) + _varint(after - first)
        if len(raw) + len(pair) > room:
            break
        raw += pair
        at = after
    return prefix + base64.b64encode(raw).decode() if raw or topic_id else ""


def decode(position: int, metadata: str | None) -> Ranges:
    """The ranges that `encode` wrote. Damaged or foreign metadata has none: all records come
    again."""
    if not metadata or not metadata.startswith((PREFIX, PREFIX_WITH_ID)):
        return []
    try:
        raw = base64.b64decode(metadata.rpartition(":")[2], validate=True)
    except (binascii.Error, ValueError):
        return []
    ranges: Ranges = []
    at, numbers = position, _numbers(raw)
    for gap, length in zip(numbers[::2], numbers[1::2], strict=False):
        if length < 1:
            return []
        ranges.append((at + gap, at + gap + length))
        at += gap + length
    return ranges if len(numbers) % 2 == 0 else []


def topic_id_in(metadata: str | None) -> str | None:
    """The id of the topic that the commit was made for, if the metadata holds one."""
    parts = (metadata or "").split(":")
    well_formed = len(parts) == 3 and f"{parts[0]}:" == PREFIX_WITH_ID
    return parts[1] if well_formed and len(parts[1]) == ID_LENGTH else None


def _varint(number: int) -> bytes:
    assert number >= 0
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _numbers(raw: bytes) -> list[int]:
    found = []
    number = shift = 0
    for byte in raw:
        number |= (byte & 127) << shift
        if byte > 127:
            shift += 7
        else:
            found.append(number)
            number = shift = 0
    return found if not shift else []
