"""A `.log` file read batch by batch: its good batches, and the ranges that are damaged.

Changes nothing and reads 1 MiB at a time, whatever a damaged length claims. Behind damage it looks
for the next batch whose checksum is right, so one flipped bit hides one batch, not the rest of the
file. The checksum does not cover base offset, length and leader epoch. So offsets must ascend, and
in a log without holes (`contiguous`, the metadata log) each batch must begin exactly where the one
before ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from headrace.environment import File
from headrace.node.storage.segments.batch_headers import crc_of_large
from headrace.node.storage.segments.offset_index import MAX_RELATIVE_OFFSET
from headrace.wire.protocol.record_batch import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    header_at,
)

CHUNK = 1 << 20
OFFSET_AND_LENGTH = Struct(">qi")  # how a batch begins


class DamagedRange(NamedTuple):
    """Bytes between two good batches, or after the last one, that are not a good batch."""

    position: int
    size: int
    offset: int  # the first offset that may be missing
    next_offset: int | None  # of the good batch behind it; None: none follows
    reason: str


class BatchScan:
    """One walk over a file. `next_offset` is the end of the good batches so far."""

    __slots__ = ("file", "end", "next_offset", "below", "contiguous", "_chunk", "_start")

    def __init__(
        self,
        file: File,
        *,
        next_offset: int,
        below: int | None = None,
        contiguous: bool = False,
    ) -> None:
        """`below`: where the next segment begins, if there is one."""
        self.file = file
        self.end = file.size
        self.next_offset = next_offset
        self.below = next_offset + MAX_RELATIVE_OFFSET + 1 if below is None else below
        self.contiguous = contiguous
        self._chunk = memoryview(b"")
        self._start = 0

    def batches(self, position: int = 0) -> Iterator[BatchHeader | DamagedRange]:
        while position < self.end:
            found = self._judge(position)
            if isinstance(found, BatchHeader):
                self.next_offset = found.last_offset + 1
                yield found
                position += found.size
                continue
            behind = self._find_behind(position)
            size = (self.end if behind is None else behind.position) - position
            following = None if behind is None else behind.base_offset
            yield DamagedRange(position, size, self.next_offset, following, found)
            if behind is not None:
                self.next_offset = behind.base_offset
            position += size

    def good_batch_at(self, position: int) -> BatchHeader | None:
        """Returns the batch that begins at `position`; None if there is no good batch."""
        return self._good_behind(position) if 0 <= position < self.end else None

    def _judge(self, position: int) -> BatchHeader | str:
        """Returns the good batch at `position`, or the reason why there is none."""
        left = self.end - position
        data = self._read(position, HEADER_SIZE)
        if not any(data):
            return "zeros, space that was allocated and never written"
        if len(data) < HEADER_SIZE:
            return f"torn, {left} bytes are too few for a batch"
        header = header_at(data, 0, position)
        if header.magic != MAGIC:
            return f"no batch of the format in use, its magic is {header.magic}"
        if header.size < HEADER_SIZE:
            return f"the length of the batch is wrong ({header.size} bytes)"
        if header.size > left:
            return f"torn, a batch of {header.size} bytes begins here and {left} are there"
        return self._fault_in(header) or header

    def _fault_in(self, header: BatchHeader) -> str | None:
        """The error of a batch whose length can be right."""
        delta = header.last_offset - header.base_offset
        if not 0 <= delta <= MAX_RELATIVE_OFFSET or header.base_offset < 0:
            return f"the offsets of the batch are wrong ({header.base_offset} + {delta})"
        if header.base_offset < self.next_offset:
            return f"the batch begins at offset {header.base_offset}, before {self.next_offset}"
        if header.base_offset > self.next_offset and (self.contiguous or self.leaps(header)):
            return f"the batch begins at offset {header.base_offset}, not at {self.next_offset}"
        return None if self._crc_is_right(header) else "the CRC of the batch does not fit"

    def leaps(self, header: BatchHeader) -> bool:
        """Returns whether a batch after a hole, as compaction leaves them, contradicts the batch
        after it."""
        if header.last_offset >= self.below:
            return True
        data = self._read(header.position + header.size, HEADER_SIZE)
        if len(data) < HEADER_SIZE or data[MAGIC_AT] != MAGIC:
            return False
        following = header_at(data, 0, 0).base_offset
        return self.next_offset <= following <= header.last_offset

    def _crc_is_right(self, header: BatchHeader) -> bool:
        first, size = header.position + ATTRIBUTES_AT, header.size - ATTRIBUTES_AT
        if size <= CHUNK:
            return crc32c(self._read(first, size)) == header.crc
        return crc_of_large(self.file, first, first + size) == header.crc

    def _read(self, position: int, length: int) -> memoryview:
        at = position - self._start
        if at < 0 or at + length > len(self._chunk):
            self._chunk = memoryview(self.file.read(max(CHUNK, length), position))
            self._start, at = position, 0
        return self._chunk[at : at + length]

    # --- behind damage

    def _find_behind(self, damaged: int) -> BatchHeader | None:
        """Returns the next good batch. A length that leads to a good batch is believed, since the
        payload of a damaged batch may itself contain bytes that are a batch."""
        head = self._read(damaged, HEADER_SIZE)
        if len(head) == HEADER_SIZE:
            size = header_at(head, 0, damaged).size
            if HEADER_SIZE <= size < self.end - damaged:
                behind = self._good_behind(damaged + size)
                if behind is not None:
                    return behind
        return self._search(damaged + 1)

    def _search(self, position: int) -> BatchHeader | None:
        lowest, highest = self.next_offset, self.next_offset + MAX_RELATIVE_OFFSET
        while position + HEADER_SIZE <= self.end:
            chunk = self.file.read(CHUNK, position)
            at = chunk.find(MAGIC, MAGIC_AT)
            while at >= 0:
                # Most bytes that could be a magic are not: the two numbers before them are a cheap
                # check.
                base, length = OFFSET_AND_LENGTH.unpack_from(chunk, at - MAGIC_AT)
                if lowest <= base <= highest and 0 < length < self.end:
                    found = self._good_behind(position + at - MAGIC_AT)
                    if found is not None:
                        return found
                at = chunk.find(MAGIC, at + 1)
            position += len(chunk) - MAGIC_AT
        return None

    def _good_behind(self, position: int) -> BatchHeader | None:
        data = self._read(position, HEADER_SIZE)
        if len(data) < HEADER_SIZE:
            return None
        header = header_at(data, 0, position)
        if (
            header.magic != MAGIC
            or not HEADER_SIZE <= header.size <= self.end - position
            or not 0 <= header.last_offset - header.base_offset <= MAX_RELATIVE_OFFSET
            or not 0 <= header.base_offset - self.next_offset <= MAX_RELATIVE_OFFSET
        ):
            return None
        return header if self._crc_is_right(header) else None
