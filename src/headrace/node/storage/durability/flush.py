"""The part of a log that is not on the disk yet, and the flush that another thread runs for it.

The loop asks a log for a flush (`PartitionLog.flush_target`), another thread calls `run`, then the
loop reports it to the log (`PartitionLog.flushed`). Files that are open are held by the flush
itself: a segment may be rolled, deleted, or lose its file in the cache during the flush, but the
descriptors stay open until the flush releases them. Files that are not open are opened one at a
time while it runs (`FileByPath`), so that thousands of new logs do not need thousands of
descriptors at once. A log that was truncated in the meantime ignores the flush. If `run` raises
OSError nothing was made durable, and the kernel may have dropped the pages: the disk cannot be
trusted with this log any more, and a second try proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.environment import Disk

CHUNK = 1 << 20


class Flushable(Protocol):
    """A file, as a flush sees it."""

    path: str

    def flush(self) -> None: ...


class FileByPath:
    """A file that is opened for its flush alone and closed at once."""

    __slots__ = ("path", "_disk")

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk

    def flush(self) -> None:
        """Does nothing if the file was deleted in the meantime, with its segment or its topic."""
        with suppress(FileNotFoundError):
            file = self._disk.open(self.path)
            try:
                file.flush()
            finally:
                file.close()


@dataclass(slots=True)
class Flush:
    files: list[Flushable]
    folders: list[str]  # whose new names must survive a power cut
    offset: int  # everything before it is on the disk when `run` has returned
    generation: int  # of the log's truncations

    def run(self, disk: Disk) -> None:
        """On any thread. Data before names, so that no name appears without its data."""
        for file in self.files:
            file.flush()
        for folder in self.folders:
            # The topic may have been deleted in the meantime: the folder has another name or is
            # gone.
            with suppress(FileNotFoundError):
                disk.flush_folder(folder)


# Runs works that do not depend on each other, in any order or at once, and returns when all are
# done; raises what one of them raised.
Together = Callable[[Sequence[Callable[[], None]]], None]


def one_by_one(works: Sequence[Callable[[], None]]) -> None:
    for work in works:
        work()


class FlushOfEverything:
    """A log, as one asks it for a flush, whose active segment is to be flushed too."""

    def __init__(self, log: Any) -> None:
        self.log = log
        self.flushed: Callable[[Flush], bool] = log.flushed

    def flush_target(self) -> Flush | None:
        target: Flush | None = self.log.flush_target(everything=True)
        return target


def write_and_flush_again(log: Any, disk: Disk) -> None:
    """Bytes that were written and not flushed before a kill are on the disk when this returns.

    A flush of it may have failed, which is what ended the node: the system then counts bytes as
    written that it has in memory only, and a flush alone would do nothing. So they are written once
    more.
    """
    if log.recovery_point >= log.end_offset:
        return
    for segment in log.segments.items[log.segments.number_at(log.recovery_point) :]:
        begin = segment.position_before(log.recovery_point)  # of the batch, or of damage there
        file = segment.open_file()
        for position in range(begin, file.size, CHUNK):
            file.write_at(file.read(CHUNK, position), position)
    flush = log.flush_target(everything=True)
    if flush is not None:
        flush.run(disk)
        log.flushed(flush)


@dataclass(slots=True)
class Unflushed:
    """The files that a log's next flush includes besides its segments."""

    log: Any
    wants_flush: list[Any]  # of the node; the log is on it once when it asks
    asked: bool = False  # the log is on the list of logs that want a flush
    active_too: bool = False  # `flush.messages` is reached
    new_names: bool = False  # in the log's folder, or the folder itself is new
    small_files: list[str] = field(default_factory=list)  # snapshots, epochs, topic id
    generation: int = 0  # counts truncations: a flush that began before one proves nothing

    def ask(self) -> None:
        if not self.asked:
            self.asked = True
            self.wants_flush.append(self.log)

    def names_are_new(self) -> None:
        self.new_names = True
        self.ask()

    def with_small_files(self, files: list[Flushable], disk: Disk) -> list[Flushable]:
        """Returns `files` and the small files that still exist; the next flush need not include
        them again."""
        paths, self.small_files = self.small_files, []
        known = {file.path for file in files}
        return files + [
            FileByPath(disk, path) for path in paths if path not in known and disk.exists(path)
        ]

    def take_folders(self, folder: str) -> list[str]:
        if not self.new_names:
            return []
        self.new_names = False
        return [folder, folder.rpartition("/")[0]]
