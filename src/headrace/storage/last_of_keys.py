"""Where the last record of every key of a stretch of a log lies: it decides what compaction keeps.

First every batch of the stretch is noted, then `settle` puts the offsets that stay in order: from
then on it is known which records of a batch stay without a look into it. Keys of up to 64 bytes are
known exactly, longer ones by a digest of 16 bytes, so that what a key costs is bounded. Memory is
counted as Python uses it; when the budget is used up, the stretch ends there and the rest of the
log waits for the next round. Noting is most of what compaction costs: records of one shape are
taken together (`record_runs.py`), the walk over the others is straight-line.
"""

from __future__ import annotations

from bisect import bisect_left
from hashlib import blake2b
from itertools import chain
from sys import getsizeof

from headrace.protocol.errors import MalformedMessage
from headrace.protocol.primitives import BROKEN, read_zigzag
from headrace.storage import record_runs

LONGEST_KEY = 64
NO_OFFSET = 2**63 - 1  # stands behind the last one
# An int; the key's own object comes to it, and the table. What `settle` makes, at most 10 bytes for
# each, comes on top when nothing else grows any more: less than a tenth.
BYTES_PER_KEY = 32
BYTES_OBJECT = 33  # that hold no byte yet
BYTES_PER_ENTRY = 32  # of a table that is nearly full: 24 and 4 for two thirds of its places
# One byte for each offset is quicker to make and to ask than offsets in order (8 bytes for each
# that stays), where few are left out.
MOST_FLAGS_PER_KEY = 10
BYTES_PER_BATCH_WITH_TOMBSTONES = 100


def digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


class LastOfKeys:
    __slots__ = (
        "offsets",
        "with_tombstones",
        "latest_offset",
        "bytes_used",
        "first_offset",
        "_flags",
        "_settled",
        "_cursor",
        "_keys_size",
        "_budget",
    )

    def __init__(self, budget: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.with_tombstones: set[int] = set()  # base offsets of batches
        self.latest_offset = -1  # every batch up to here has been noted
        self.bytes_used = 0
        self.first_offset = -1  # of the first batch that was noted
        self._flags = bytearray()  # by offset, from the first on; or, where that would be large,
        self._settled = [NO_OFFSET]  # the offsets that stay, in order
        self._cursor = 0  # batches are asked for in order, so the answer is mostly here
        self._keys_size = 0
        self._budget = budget

    @property
    def is_full(self) -> bool:
        return self.bytes_used >= self._budget

    def settle(self) -> None:
        """Nothing more is noted."""
        span = self.latest_offset - self.first_offset + 1
        if self.first_offset >= 0 and span <= MOST_FLAGS_PER_KEY * len(self.offsets):
            flags, first = bytearray(span), self.first_offset
            for offset in self.offsets.values():
                flags[offset - first] = 1
            self._flags = flags
        else:
            self._settled = [*sorted(self.offsets.values()), NO_OFFSET]

    def staying(self, first: int, count: int) -> bytes | bytearray:
        """Of so many offsets from this one on, 1 for each that holds the last record of a key."""
        if self._flags:
            start = first - self.first_offset
            return self._flags[start : start + count] if start >= 0 else bytes(count)
        flags = bytearray(count)
        settled, place = self._settled, self._cursor
        if settled[place] < first or (place and settled[place - 1] >= first):
            place = bisect_left(settled, first)
        while settled[place] < first + count:
            flags[settled[place] - first] = 1
            place += 1
        self._cursor = place
        return flags

    def note(
        self, data: bytes, pos: int, end: int, *, base_offset: int, count: int, has_gaps: bool
    ) -> None:
        """The records of one batch, uncompressed, between two positions of `data`."""
        before = len(self.offsets)
        try:
            if has_gaps:
                key_length = self._note_with_gaps(data, pos, end, base_offset, count)
            else:
                key_length = self._note_all(data, pos, end, base_offset, count)
        except BROKEN as error:
            raise MalformedMessage(f"record: {error}") from error
        if self.first_offset < 0:
            self.first_offset = base_offset
        # The last key stands for the others of its batch: keys of one topic are much alike.
        price = BYTES_PER_KEY + (min(key_length, LONGEST_KEY) + BYTES_OBJECT + 15 & ~15)
        self._keys_size += (len(self.offsets) - before) * price
        self.bytes_used = self._keys_size + self._table_size()

    def _table_size(self) -> int:
        size = getsizeof(self.offsets)
        # Nearly full: it is about to be copied into one of twice the size.
        return 3 * size if len(self.offsets) * BYTES_PER_ENTRY > size else size

    def _note_all(self, data: bytes, pos: int, end: int, base_offset: int, count: int) -> int:
        """The usual batch: its offsets follow one another."""
        key_length = 0
        tombstones = False
        offset, last = base_offset, base_offset + count
        while offset < last:
            size, found = record_runs.alike(data, pos, end, last - offset)
            at, length, noted = (
                record_runs.keys_alike(data, pos, size, found) if found else (0, 0, 0)
            )
            if not noted or length > LONGEST_KEY:
                key_length, pos, tombstone = self._walk(data, pos, offset, last)
                tombstones = tombstones or tombstone
                break
            key_length = length
            offsets, stop = self.offsets, pos + noted * size
            keys = chain.from_iterable(record_runs.fields_at(data, pos, size, noted, at, length))
            for key, each in zip(keys, range(offset, offset + noted), strict=True):
                offsets[key] = each
            offset += noted
            if 1 in data[pos + at + length : stop : size]:  # no value
                tombstones = True
            pos = stop
        if pos != end:
            raise MalformedMessage("batch: its records do not end where the batch does")
        if tombstones:
            self.with_tombstones.add(base_offset)
            self._keys_size += BYTES_PER_BATCH_WITH_TOMBSTONES
        return key_length

    def _walk(self, data: bytes, pos: int, first: int, last: int) -> tuple[int, int, bool]:
        """Record by record, up to `last`: the length of the last key, where the next record
        begins, and whether there were tombstones."""
        offsets = self.offsets
        key_length = 0
        tombstones = False
        for offset in range(first, last):
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
        return key_length, pos, tombstones

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
