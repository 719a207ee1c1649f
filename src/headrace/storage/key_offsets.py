"""The last offset of every key in a stretch of a log: what decides which records compaction keeps.

A dictionary, exact for keys of up to 64 bytes; longer ones are known by a digest of 16 bytes, so
that what a key costs is bounded. Memory is counted by a measured price per key; when the budget is
used up, the stretch ends there and the rest of the log waits for the next round.
The walk over records is straight-line: it is most of what a compaction costs (0.4 us a record).
"""

from __future__ import annotations

from hashlib import blake2b

from headrace.protocol.errors import MalformedMessage
from headrace.protocol.primitives import BROKEN, read_zigzag

LONGEST_KEY = 64
# At worst, just after the table has grown: 90 bytes of table, 33 of a bytes object, 32 of an int.
BYTES_PER_KEY = 160


def digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


class KeyOffsets:
    __slots__ = ("offsets", "latest_offset", "bytes_used", "_budget")

    def __init__(self, budget: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.latest_offset = -1  # every batch up to here has been noted
        self.bytes_used = 0
        self._budget = budget

    @property
    def is_full(self) -> bool:
        return self.bytes_used >= self._budget

    def note(
        self,
        data: bytes,
        pos: int,
        end: int,
        *,
        base_offset: int,
        count: int,
        has_gaps: bool,
        from_offset: int,
    ) -> None:
        """The records of one batch, uncompressed, between two positions of `data`."""
        before = len(self.offsets)
        try:
            if has_gaps or base_offset < from_offset:
                key_length = self._note_with_gaps(data, pos, end, base_offset, count, from_offset)
            else:
                key_length = self._note_all(data, pos, end, base_offset, count)
        except BROKEN as error:
            raise MalformedMessage(f"record: {error}") from error
        # The last key stands for the others of its batch: keys of one topic are much alike.
        kept_length = min(key_length, LONGEST_KEY)
        self.bytes_used += (len(self.offsets) - before) * (BYTES_PER_KEY + kept_length)

    def _note_all(self, data: bytes, pos: int, end: int, base_offset: int, count: int) -> int:
        """The usual batch: its offsets follow one another."""
        offsets = self.offsets
        key_length = 0
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
            if key_length == 1:  # no key: compaction drops it
                continue
            if key_length > 127:
                key_length, at = read_zigzag(data, at)
            else:
                key_length >>= 1
                at += 1
            stop = at + key_length
            if stop > pos:
                raise MalformedMessage("record: its key does not fit")
            if key_length > LONGEST_KEY:
                offsets[digest(data[at:stop])] = offset
            else:
                offsets[data[at:stop]] = offset
        if pos != end:
            raise MalformedMessage("batch: its records do not end where the batch does")
        return key_length

    def _note_with_gaps(
        self, data: bytes, pos: int, end: int, base_offset: int, count: int, from_offset: int
    ) -> int:
        """A batch that lost records before, or begins before the stretch."""
        key_length = 0
        for _ in range(count):
            length, at = read_zigzag(data, pos)
            pos = at + length
            _, at = read_zigzag(data, at + 1)
            delta, at = read_zigzag(data, at)
            key_length, at = read_zigzag(data, at)
            if length < 0 or at + key_length > pos:
                raise MalformedMessage("record: its key does not fit")
            if key_length >= 0 and base_offset + delta >= from_offset:
                key = data[at : at + key_length]
                self.offsets[key if key_length <= LONGEST_KEY else digest(key)] = (
                    base_offset + delta
                )
        if pos != end:
            raise MalformedMessage("batch: its records do not end where the batch does")
        return max(key_length, 0)
