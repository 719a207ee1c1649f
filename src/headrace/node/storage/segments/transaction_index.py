"""The `.txnindex` file of a segment: the transactions that were aborted by a marker in it.

An entry is 34 bytes, big-endian: version (int16, 0), producer id, first offset of the transaction,
offset of its marker, and the last stable offset as of the marker (int64 each). Entries are in the
order of their markers. Without entries there is no file, as in Apache Kafka. Unlike the other
indexes, the file does not show whether an entry is missing, so it is flushed with the log;
recovered segments rebuild theirs from the markers, and an index that is read from a file is
compared with the log before it is used (`transaction_check.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from headrace.environment import Disk, File
from headrace.node.storage.durability.open_files import OpenFiles

ENTRY = Struct(">hqqqq")
VERSION = 0


class Aborted(NamedTuple):
    """One aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    last_stable_offset: int  # everything before it was decided when the marker was written


class TransactionIndex:
    __slots__ = ("path", "file", "is_checked", "is_whole", "_open_files", "_entries")

    def __init__(self, open_files: OpenFiles, path: str) -> None:
        self.path = path
        self.file: File | None = None
        self.is_checked = False  # the entries were compared with the log, or come from it
        self.is_whole = True  # every byte of the file belonged to an entry of this version
        self._open_files = open_files
        self._entries: list[Aborted] | None = None  # None: not read yet

    @property
    def disk(self) -> Disk:
        return self._open_files.disk

    def entries(self) -> list[Aborted]:
        """All of them; read from the file once, as far as they can be."""
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def _read(self) -> list[Aborted]:
        disk = self._open_files.disk
        if not disk.exists(self.path):
            return []
        data = disk.read_file(self.path)
        whole = data[: len(data) - len(data) % ENTRY.size]
        found = [Aborted(*fields) for version, *fields in ENTRY.iter_unpack(whole) if not version]
        self.is_whole = len(found) * ENTRY.size == len(data)
        return found

    def add(self, aborted: Aborted) -> None:
        entries = self.entries()
        assert not entries or aborted.last_offset > entries[-1].last_offset, "markers ascend"
        file = self.file or self._open_files.open(self, create=True)
        entry, position = ENTRY.pack(VERSION, *aborted), len(entries) * ENTRY.size
        if file.size == position:
            file.append(entry)
        elif file.read(ENTRY.size, position) != entry:
            file.resize(position)
            file.append(entry)
        entries.append(aborted)

    def begin_anew(self) -> None:
        """The segment is read from its start: `add` what is found, then `cut_to_entries`.

        Right contents of the file stay in it: a log that is read again because the disk is full
        could not write them a second time.
        """
        self._entries, self.is_checked = [], True

    def replace(self, entries: list[Aborted]) -> None:
        """The file was wrong: put another in its place, durably. On a full disk it stays, and the
        next start finds it wrong again."""
        self.let_go()
        self._entries = list(entries)
        with suppress(OSError):
            if entries:
                data = [ENTRY.pack(VERSION, *entry) for entry in entries]
                self.disk.write_file(self.path, data)
            else:
                self.disk.remove(self.path)

    def cut_to_entries(self) -> None:
        """Remove what the file has behind them."""
        if not self._entries:
            self.clear()
            return
        file = self.file or self._open_files.open(self)
        if file.size != len(self._entries) * ENTRY.size:
            file.resize(len(self._entries) * ENTRY.size)

    def clear(self) -> None:
        """No entry, no file."""
        self.let_go()
        self._open_files.disk.remove(self.path)
        self._entries = []

    def truncate(self, to_offset: int) -> None:
        """Drop the transactions whose markers are at or after `to_offset`."""
        entries = self.entries()
        keep = bisect_left(entries, to_offset, key=_marker_of)
        if keep == len(entries):
            return
        del entries[keep:]
        if not entries:
            self.clear()
        else:
            self._open_files.open(self).resize(keep * ENTRY.size)

    def collect(self, from_offset: int, up_to: int, found: list[Aborted]) -> bool:
        """Add what a reader of these offsets must know; True if later segments have nothing of it.

        They do not if everything before `up_to` was decided when a marker here was written.
        """
        entries = self.entries()
        for number in range(bisect_left(entries, from_offset, key=_marker_of), len(entries)):
            aborted = entries[number]
            if aborted.first_offset < up_to:
                found.append(aborted)
            if aborted.last_stable_offset >= up_to:
                return True
        return False

    def open_if_there(self) -> list[File]:
        """Returns the file for a flush; an empty list if there is none."""
        if not self._entries and not self._open_files.disk.exists(self.path):
            return []
        return [self.file or self._open_files.open(self)]

    def let_go(self) -> None:
        self._open_files.let_go(self)


def _marker_of(aborted: Aborted) -> int:
    return aborted.last_offset
