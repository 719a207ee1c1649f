"""The `.index` file of a segment: where in the `.log` file an offset can be found.

An entry is the last offset of a batch, relative to the segment's base (int32), and the position at
which that batch begins (int32), big-endian. At most one entry per `index.interval.bytes` of log: a
lookup answers a position at or before the batch that is sought, and the log is walked from there.
"""

from __future__ import annotations

from struct import Struct

from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.segments.sparse_index import SparseIndex

ENTRY = Struct(">ii")
MAX_RELATIVE_OFFSET = 0x7FFF_FFFF
ENDLESS = 1 << 62


class OffsetIndex(SparseIndex):
    __slots__ = ("last_offset",)

    def __init__(self, open_files: OpenFiles, path: str, base_offset: int) -> None:
        super().__init__(open_files, path, base_offset, ENTRY)
        self.last_offset = base_offset  # of the last entry; the base offset while there is none

    def create(self, max_bytes: int) -> None:
        super().create(max_bytes)
        self._remember_last()

    def load(self) -> None:
        super().load()
        self._remember_last()

    def add(self, offset: int, position: int) -> None:
        # Both are promises of the caller: the log rolls when an index is full, and appends only at
        # its end. Lookups by halves would be wrong in an index that does not ascend.
        assert self.entries < self.max_entries, "a full offset index: the segment must roll first"
        assert offset > self.last_offset or not self.entries, "index entries ascend"
        self._add(offset - self.base_offset, position)
        self.last_offset = offset

    def position_for(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`."""
        return self.entry_for(offset)[0]

    def entry_for(self, offset: int) -> tuple[int, int]:
        """Returns that position, and the offset by which the batch there ends."""
        _, entry = self.last_not_above(offset - self.base_offset, field=0)
        if entry is None:
            return 0, ENDLESS
        return int(entry[1]), self.base_offset + int(entry[0])

    def _guess(self, target: int, written: int) -> int:
        """Offsets and bytes mostly grow alike: one read instead of eight in a large index."""
        return written * target // max(self.last_offset - self.base_offset, 1)

    def offset_from(self, position: int) -> int | None:
        """The offset of the first entry that points to `position` or behind it, if there is one."""
        slot = self.last_slot_not_above(position - 1, field=1) + 1
        return self.base_offset + int(self.entry(slot)[0]) if slot < self.entries else None

    def is_full(self) -> bool:
        return self.entries >= self.max_entries

    def truncate(self, to_offset: int) -> None:
        """Drop the entries of batches that end at or after `to_offset`."""
        self.truncate_entries(self.last_slot_not_above(to_offset - self.base_offset - 1, 0) + 1)
        self._remember_last()

    def _remember_last(self) -> None:
        last = self.entry(self.entries - 1)[0] if self.entries else 0
        self.last_offset = self.base_offset + last
