"""Where the last record of every key of a stretch of a log lies: it decides what compaction keeps.

First every batch of the stretch is noted, then `settle` puts the offsets that stay in order: from
then on it is known how many records of a batch stay without a look into it. Keys of up to 64 bytes
are known exactly, longer ones by a digest of 16 bytes, so that what a key costs is bounded. Memory
is counted by a measured price; when the budget is used up, the stretch ends there and the rest of
the log waits for the next round. The walk over records is straight-line: it is most of what
compaction costs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from hashlib import blake2b

from headrace.protocol.errors import MalformedMessage
from headrace.protocol.primitives import BROKEN, read_zigzag

LONGEST_KEY = 64
NO_OFFSET = 2**63 - 1  # stands behind the last one
# At worst, just after the table has grown: 90 bytes of table, 33 of a bytes object, 32 of an int;
# 16 for the offset in order.
BYTES_PER_KEY = 176
BYTES_PER_BATCH_WITH_TOMBSTONES = 100


def digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


class LastOfKeys:
    __slots__ = (
        "offsets",
        "with_tombstones",
        "latest_offset",
        "bytes_used",
        "_settled",
        "_cursor",
        "_budget",
    )

    def __init__(self, budget: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.with_tombstones: set[int] = set()  # base offsets of batches
        self.latest_offset = -1  # every batch up to here has been noted
        self.bytes_used = 0
        self._settled = array("q")
        self._cursor = 0  # batches are asked for in order, so the answer is mostly here
        self._budget = budget

    @property
    def is_full(self) -> bool:
        return self.bytes_used >= self._budget

    def settle(self) -> None:
        """Nothing more is noted."""
        self._settled = array("q", sorted(self.offsets.values()))
        self._settled.append(NO_OFFSET)

    def staying(self, first: int, last: int) -> array[int]:
        """The offsets between these two, in order, that hold the last record of a key."""
        settled, start = self._settled, self._cursor
        if settled[start] < first or (start and settled[start - 1] >= first):
            start = bisect_left(settled, first)
        stop = start
        if settled[start] <= last:
            stop = bisect_left(
                settled, last + 1, start, min(start + last - first + 2, len(settled))
            )
        self._cursor = stop
        return settled[start:stop]

    def note(
        self, data: bytes, pos: int, end: int, *, base_offset: int, count: int, has_gaps: bool
    ) -> None:
        """The records of one batch, uncompressed, between two positions of `data`."""
        before = len(self.offsets)
        try:
            note = self._note_with_gaps if has_gaps else self._note_all
            key_length = note(data, pos, end, base_offset, count)
        except BROKEN as error:
            raise MalformedMessage(f"record: {error}") from error
        # The last key stands for the others of its batch: keys of one topic are much alike.
        price = BYTES_PER_KEY + min(key_length, LONGEST_KEY)
        self.bytes_used += (len(self.offsets) - before) * price

    def _note_all(self, data: bytes, pos: int, end: int, base_offset: int, count: int) -> int:
        """The usual batch: its offsets follow one another."""
        offsets = self.offsets
        key_length = 0
        tombstones = False
        for offset in range(base_offset, base_offset + count):
            length = data[pos]
            pos += 1
            if length > 127:
                second = data[pos]
                if second < 128:
                    length += (second << 7) - 128
                    pos += 1
                else:
                    length, pos = read_zigzag(data, pos - 1)
                    length <<= 1
            at = pos + 1  # attributes
            pos += length >> 1
            while data[at] > 127:  # timestamp delta
                at += 1
            at += 1
            while data[at] > 127:  # offset delta
                at += 1
            at += 1
            key_length = data[at]
            if key_length == 1:  # no key: it has no place in a compacted log
                continue
            if key_length > 127:
                key_length, at = read_zigzag(data, at)
            else:
                key_length >>= 1
                at += 1
            stop = at + key_length
            if stop >= pos:
                raise MalformedMessage("record: its key does not fit")
            if data[stop] == 1:  # no value
                tombstones = True
            if key_length > LONGEST_KEY:
                offsets[digest(data[at:stop])] = offset
            else:
                offsets[data[at:stop]] = offset
        if pos != end:
            raise MalformedMessage("batch: its records do not end where the batch does")
        if tombstones:
            self.with_tombstones.add(base_offset)
            self.bytes_used += BYTES_PER_BATCH_WITH_TOMBSTONES
        return key_length

    def _note_with_gaps(self, data: bytes, pos: int, end: int, base_offset: int, count: int) -> int:
        """A batch that has lost records before."""
        key_length = 0
        for _ in range(count):
            length, at = read_zigzag(data, pos)
            pos = at + length
            _, at = read_zigzag(data, at + 1)
            delta, at = read_zigzag(data, at)
            key_length, at = read_zigzag(data, at)
            if length < 0 or at + key_length > pos:
                raise MalformedMessage("record: its key does not fit")
            if key_length >= 0:
                key = data[at : at + key_length]
                self.offsets[key if key_length <= LONGEST_KEY else digest(key)] = (
                    base_offset + delta
                )
        if pos != end:
            raise MalformedMessage("batch: its records do not end where the batch does")
        return max(key_length, 0)
