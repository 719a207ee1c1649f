"""Where the last record of every key of a stretch of a log lies: it decides what compaction keeps.

The batches of the stretch are numbered in order; a dictionary says in which one the last record of
a key is. A batch counts how many of its records are the last of their key, so that most batches
need not be looked into again: all of them stay, or none does. Keys of up to 64 bytes are known
exactly, longer ones by a digest of 16 bytes, so that what a key costs is bounded. Memory is counted
by a measured price; when the budget is used up, the stretch ends there and the rest of the log
waits for the next round. The walk over records is straight-line: it is most of what compaction
costs (0.3 us a record).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from hashlib import blake2b

from headrace.protocol.errors import MalformedMessage
from headrace.protocol.primitives import BROKEN, read_zigzag

LONGEST_KEY = 64
# At worst, just after the table has grown: 90 bytes of table, 33 of a bytes object.
BYTES_PER_KEY = 128
BYTES_PER_BATCH = 45  # its number, which keys share, and an entry in each of the three arrays

TOMBSTONES, REPEATS = 1, 2
UNKNOWN = -1  # the number of a batch that does not belong to the stretch


def digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


class LastOfKeys:
    __slots__ = ("batches", "live", "latest_offset", "bytes_used", "_bases", "_flags", "_budget")

    def __init__(self, budget: int) -> None:
        self.batches: dict[bytes, int] = {}  # key -> number of the batch with its last record
        self.live = array("i")  # by number: records that are the last of their key
        self.latest_offset = -1  # every batch up to here has been noted
        self.bytes_used = 0
        self._bases = array("q")  # by number: base offset
        self._flags = bytearray()  # by number: TOMBSTONES, REPEATS
        self._budget = budget

    @property
    def is_full(self) -> bool:
        return self.bytes_used >= self._budget

    def number_of(self, base_offset: int) -> int:
        number = bisect_left(self._bases, base_offset)
        if number < len(self._bases) and self._bases[number] == base_offset:
            return number
        return UNKNOWN

    def keeps_all(self, number: int, count: int) -> bool:
        """Every record stays, and nothing about the batch changes."""
        return self.live[number] == count and not self._flags[number]

    def has_repeats(self, number: int) -> bool:
        """The same key more than once in the batch."""
        return bool(self._flags[number] & REPEATS)

    def note(self, data: bytes, pos: int, end: int, base_offset: int, count: int) -> None:
        """The records of the next batch, uncompressed, between two positions of `data`."""
        number = len(self.live)
        self._bases.append(base_offset)
        self._flags.append(0)
        self.live.append(0)
        before = len(self.batches)
        try:
            key_length = self._note_records(data, pos, end, number, count)
        except BROKEN as error:
            raise MalformedMessage(f"record: {error}") from error
        # The last key stands for the others of its batch: keys of one topic are much alike.
        price = BYTES_PER_KEY + min(key_length, LONGEST_KEY)
        self.bytes_used += BYTES_PER_BATCH + (len(self.batches) - before) * price

    def _note_records(self, data: bytes, pos: int, end: int, number: int, count: int) -> int:
        batches, live = self.batches, self.live
        key_length = fresh = flags = 0
        for _ in range(count):
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
            key = data[at:stop]
            if key_length > LONGEST_KEY:
                key = digest(key)
            if data[stop] == 1:  # no value
                flags |= TOMBSTONES
            if key in batches:
                earlier = batches[key]
                if earlier == number:
                    flags |= REPEATS
                    continue
                live[earlier] -= 1
            batches[key] = number
            fresh += 1
        if pos != end:
            raise MalformedMessage("batch: its records do not end where the batch does")
        live[number] = fresh
        self._flags[number] = flags
        return key_length
