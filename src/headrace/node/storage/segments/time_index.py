"""The `.timeindex` file of a segment: from when on records of a time can be found.

An entry is a timestamp (int64) and an offset relative to the segment's base (int32), big-endian: up
to and including that offset no record is younger than the timestamp, and the offset is the last one
of the batch that carries it. One slot is kept free for the entry that is made when the segment is
rolled or closed, which tells retention how old the whole segment is.
"""

from __future__ import annotations

from struct import Struct

from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.segments.sparse_index import SparseIndex
from headrace.wire.protocol.record_batch import NO_TIMESTAMP

ENTRY = Struct(">qi")


class TimeIndex(SparseIndex):
    __slots__ = ("last_timestamp", "last_offset")

    def __init__(self, open_files: OpenFiles, path: str, base_offset: int) -> None:
        super().__init__(open_files, path, base_offset, ENTRY)
        self.last_timestamp = NO_TIMESTAMP
        self.last_offset = base_offset

    def create(self, max_bytes: int) -> None:
        super().create(max_bytes)
        self._remember_last()

    def load(self) -> None:
        super().load()
        self._remember_last()

    def add(self, timestamp: int, offset: int) -> None:
        """Only a timestamp above the last one makes an entry."""
        if timestamp <= self.last_timestamp:
            return
        assert self.entries < self.max_entries, "a full time index: the segment must roll first"
        assert offset >= self.last_offset, "index entries ascend"
        self._add(timestamp, offset - self.base_offset)
        self.last_timestamp = timestamp
        self.last_offset = offset

    def offset_for(self, timestamp: int) -> int:
        """An offset at or before the first record that is not older than `timestamp`."""
        _, entry = self.last_not_above(timestamp, field=0)
        return self.base_offset + (0 if entry is None else int(entry[1]))

    def is_full(self) -> bool:
        return self.entries >= self.max_entries - 1

    def truncate(self, to_offset: int) -> None:
        """Drop the entries that name `to_offset` or a later one."""
        self.truncate_entries(self.last_slot_not_above(to_offset - self.base_offset - 1, 1) + 1)
        self._remember_last()

    def _remember_last(self) -> None:
        if self.entries:
            self.last_timestamp, relative = self.entry(self.entries - 1)
            self.last_offset = self.base_offset + relative
        else:
            self.last_timestamp, self.last_offset = NO_TIMESTAMP, self.base_offset
