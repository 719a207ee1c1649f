"""Finds the records of a range of a log that are the last of their keys: compaction keeps these.

Records are noted from the last to the first: the first sight of a key is then its last record, and
nothing has to be kept of a key but that it was seen. A set needs less memory than a table with an
offset for each key, and misses the processor's cache two times for a record instead of five, which
was most of what compaction cost. Several thousand records at a time, so that the processor can wait
for more than one miss at once.
Memory is counted as Python uses it. When the budget is used up, the stretch was too long.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from itertools import compress
from sys import getsizeof

from headrace.wire.protocol.record_batch.keys import Keys

NO_OFFSET = 2**63 - 1  # the sentinel after the last offset
# The key's object without its bytes, as such are handed out, and its offset.
BYTES_PER_KEY = 33 + 7 + 8
BYTES_PER_ENTRY = 27  # of a table that is nearly full: 16 for three fifths of its places
BYTES_PER_BATCH_WITH_TOMBSTONES = 100
BYTES_PER_UNREADABLE_BATCH = 300


class LastOfKeys:
    __slots__ = (
        "seen",
        "with_tombstones",
        "unreadable",
        "latest_offset",
        "bytes_used",
        "_staying",
        "_cursor",
        "_keys_size",
        "_budget",
    )

    def __init__(self, budget: int) -> None:
        # A record without a key is never the last of one.
        self.seen: set[bytes | None] = {None}
        self.with_tombstones: set[int] = set()  # base offsets of batches that have all records
        # Base offset of each batch whose keys are not known, and why: it replaces no record.
        self.unreadable: dict[int, str] = {}
        self.latest_offset = -1  # up to here every batch of the stretch has been noted
        self.bytes_used = 0
        self._staying = array("q")  # offsets: the largest first, from `finish` on the smallest
        self._cursor = 0  # batches are asked for in order, so the answer is mostly here
        self._keys_size = 0
        self._budget = budget

    @property
    def is_full(self) -> bool:
        return self.bytes_used >= self._budget

    def note(self, keys: Keys, offsets: Iterable[int]) -> None:
        """Note records in the order of their offsets; all must be before the records noted so
        far."""
        fresh = set(keys) - self.seen
        if not fresh:
            return
        flags = bytes(map(fresh.__contains__, keys))
        last = dict(zip(compress(keys, flags), compress(offsets, flags), strict=True))
        self._staying.extend(sorted(last.values(), reverse=True))
        self.seen |= fresh
        size = sum(map(len, filter(None, fresh)))
        self._keys_size += size + len(fresh) * BYTES_PER_KEY
        self.bytes_used = self._keys_size + self._table_size()

    def note_tombstones(self, base_offset: int) -> None:
        self.with_tombstones.add(base_offset)
        self._keys_size += BYTES_PER_BATCH_WITH_TOMBSTONES

    def note_unreadable(self, base_offset: int, why: str) -> None:
        self.unreadable[base_offset] = why
        self._keys_size += BYTES_PER_UNREADABLE_BATCH

    def _table_size(self) -> int:
        size = getsizeof(self.seen)
        # Nearly full: it is about to be copied into one of twice the size.
        return 3 * size if len(self.seen) * BYTES_PER_ENTRY > size else size

    def finish(self) -> None:
        """Nothing more is noted."""
        self._staying.reverse()
        self._staying.append(NO_OFFSET)

    def not_seen(self, keys: Keys) -> bytes:
        """Returns for each key 1 if it does not occur in the stretch: its record is before the
        stretch and stays."""
        gone = self.seen.intersection(keys)
        return bytes([key not in gone for key in keys])

    def staying(self, first: int, count: int) -> bytearray:
        """Returns a flag for each of `count` offsets: 1 if it holds the last record of a key."""
        flags = bytearray(count)
        staying, index = self._staying, self._cursor
        if staying[index] < first or (index and staying[index - 1] >= first):
            index = bisect_left(staying, first)
        while staying[index] < first + count:
            flags[staying[index] - first] = 1
            index += 1
        self._cursor = index
        return flags
