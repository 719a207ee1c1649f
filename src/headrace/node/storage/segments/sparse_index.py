"""The common part of offset index and time index: a file of fixed-size, ascending entries.

The file is made as long as it may become (sparse) and cut to its entries when the segment is rolled
or closed, as Apache Kafka does. Apache maps the file into memory; here new entries are gathered and
written 64 at a time with one positioned write, which is as quick and cannot end in SIGBUS on a full
disk. Lookups include the entries that are not written yet. Losing these is harmless: the indexes of
a segment that was not flushed are rebuilt from its log on the next start.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import Any

from headrace.environment import File
from headrace.node.storage.durability.open_files import OpenFiles

WRITE_TOGETHER = 64
# A lookup reads this many entries at once (4 or 6 KiB), and halves the rest if they are not there.
SEARCH_BLOCK = 512


class SparseIndex:
    """Entries in a file, ascending in every field; the subclass knows what the fields mean."""

    __slots__ = (
        "path",
        "file",
        "base_offset",
        "entries",
        "max_entries",
        "_open_files",
        "_entry",
        "_unwritten",
    )

    def __init__(self, open_files: OpenFiles, path: str, base_offset: int, entry: Struct) -> None:
        self.path = path
        self.file: File | None = None
        self.base_offset = base_offset
        # `entries` counts the written and the unwritten ones; the unwritten are always the last.
        # `max_entries` is the length of the file in entries, also where it holds zeros.
        self.entries = 0
        self.max_entries = 0
        self._open_files = open_files
        self._entry = entry
        self._unwritten: list[bytes] = []

    def create(self, max_bytes: int) -> None:
        """An empty index in a new, preallocated file; an old file of that name is emptied."""
        file = self._open_files.open(self, create=True)
        if file.size:
            file.resize(0)
        self.entries = 0
        self._unwritten = []
        self._allocate(max_bytes)

    def load(self) -> None:
        """Take the number of entries from the file; an incomplete last entry does not count."""
        self.entries = self._open_files.disk.size(self.path) // self._entry.size
        self.max_entries = self.entries

    def grow(self, max_bytes: int) -> None:
        """Make room for more entries: this is the active segment's index again."""
        self._allocate(max(max_bytes, self.entries * self._entry.size))

    def trim(self) -> None:
        """Cut the file to its entries. Nothing can be added until it grows again."""
        self.write()
        self._allocate(self.entries * self._entry.size)

    def _allocate(self, max_bytes: int) -> None:
        self.max_entries = max_bytes // self._entry.size
        file = self.open_file()
        if file.size != self.max_entries * self._entry.size:
            file.resize(self.max_entries * self._entry.size)

    def truncate_entries(self, entries: int) -> None:
        """Keep the first `entries`; the rest of the file becomes zeros."""
        if entries >= self.entries:
            return
        written = self.entries - len(self._unwritten)
        if entries >= written:  # all removed entries are still in memory
            del self._unwritten[entries - written :]
            self.entries = entries
            return
        self.write()
        self.entries = entries
        file = self.open_file()
        # Shrink and grow again: the file system then returns zeros behind the entries, as in a new
        # file. `_indexes_are_plausible` of a segment depends on that after a kill.
        file.resize(entries * self._entry.size)
        file.resize(self.max_entries * self._entry.size)

    def write(self) -> None:
        """Bring gathered entries into the file (not to the disk: that is a flush)."""
        if self._unwritten:
            written = self.entries - len(self._unwritten)
            self.open_file().write_at(b"".join(self._unwritten), written * self._entry.size)
            self._unwritten = []

    def _add(self, *fields: int) -> None:
        self._unwritten.append(self._entry.pack(*fields))
        self.entries += 1
        if len(self._unwritten) >= WRITE_TOGETHER:
            # A full disk: the entries stay in memory and are written with the next one. The log
            # itself appends or refuses the records, and reports the error.
            with suppress(OSError):
                self.write()

    def entry(self, number: int) -> tuple[Any, ...]:
        unwritten_from = self.entries - len(self._unwritten)
        if number >= unwritten_from:
            return self._entry.unpack(self._unwritten[number - unwritten_from])
        size = self._entry.size
        return self._entry.unpack(self.open_file().read(size, number * size))

    def all_entries(self) -> list[tuple[Any, ...]]:
        size = self._entry.size
        written = self.entries - len(self._unwritten)
        data = self.open_file().read(written * size, 0) if written else b""
        return list(self._entry.iter_unpack(data + b"".join(self._unwritten)))

    def last_not_above(self, target: int, field: int) -> tuple[int, tuple[Any, ...] | None]:
        """Number and fields of the last entry whose `field` is not above `target`; or -1, None."""
        # Entries ascend, so the first unwritten entry decides which part holds the entry sought.
        # Lookups equal those of a plain sorted list: tests/unit/node/storage/test_indexes.py,
        # test_lookups_are_those_of_a_list and the two tests after it.
        written = self.entries - len(self._unwritten)
        if self._unwritten and self._entry.unpack(self._unwritten[0])[field] <= target:
            low, block = written, b"".join(self._unwritten)
        else:
            low, block = self._block_that_holds(target, field, written)
        in_block = self._count_not_above(block, target, field) - 1
        if in_block < 0:
            return -1, None
        return low + in_block, self._entry.unpack_from(block, in_block * self._entry.size)

    def last_slot_not_above(self, target: int, field: int) -> int:
        """Returns only the number of that entry."""
        return self.last_not_above(target, field)[0]

    def _block_that_holds(self, target: int, field: int, written: int) -> tuple[int, bytes]:
        """Returns a run of written entries that holds the entry sought, and the number of its first
        entry."""
        size = self._entry.size
        low, high = 0, written
        middle = self._guess(target, written)
        while high - low > SEARCH_BLOCK:
            # The last one known not to be above is `low`, the first known to be above is `high`.
            # Each step reads a block of SEARCH_BLOCK entries instead of one entry, so a good first
            # guess (`OffsetIndex._guess`) mostly ends the search with one read.
            start = min(max(middle - SEARCH_BLOCK // 2, low), high - SEARCH_BLOCK)
            block = self.open_file().read(SEARCH_BLOCK * size, start * size)
            if start > low and self._entry.unpack_from(block)[field] > target:
                high = start
            elif start + SEARCH_BLOCK == high or self._entry.unpack(block[-size:])[field] > target:
                return start, block
            else:
                low = start + SEARCH_BLOCK - 1
            middle = (low + high) // 2
        return low, self.open_file().read((high - low) * size, low * size) if high else b""

    def _guess(self, target: int, written: int) -> int:
        """Returns the number of the entry at which to begin the search."""
        return written // 2

    def _count_not_above(self, block: bytes, target: int, field: int) -> int:
        """By halves, as `bisect_right` would with a key; without its calls a third quicker."""
        unpack, size = self._entry.unpack_from, self._entry.size
        low, high = 0, len(block) // size
        while low < high:
            middle = (low + high) >> 1
            if unpack(block, middle * size)[field] > target:
                high = middle
            else:
                low = middle + 1
        return low

    def open_file(self) -> File:
        return self.file or self._open_files.open(self)

    def let_go(self) -> None:
        self._open_files.let_go(self)
