"""Reads closed segments and ends; `scrubber.py` starts it.

`python -m headrace.node.process.background.scrubber_process`.

Reports: ["read", number of the segment in the job, its damaged ranges], ["skipped", number, why],
last ["finished"]. Bytes come from the disk, not from the page cache, whose copy may be right while
the disk's is not; pages that the cache had are there again afterwards, and no others. So a scrub
takes no cache from the readers of recent records.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from headrace.node.process.background.background_job import BackgroundJob, NobodyWaits
from headrace.node.process.folders.real_disk import RealFile
from headrace.node.storage.recovery.scrub import ClosedSegment, damage_in

# Linux only: elsewhere every range counts as cached, and the bytes read stay in the cache.
WITHOUT_WAITING = getattr(os, "RWF_NOWAIT", 0)


class FileOnDisk(RealFile):
    """A file that is read from the disk at the pace of the scrub."""

    __slots__ = ("_pace",)

    def __init__(self, path: str, pace: Callable[[int], None]) -> None:
        super().__init__(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        self._pace = pace
        if WITHOUT_WAITING:  # nothing is read ahead, or the next range would seem to be cached
            os.posix_fadvise(self.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

    def read(self, length: int, position: int) -> bytes:
        length = min(length, self.size - position)
        self._pace(max(length, 0))
        was_cached = self._is_cached(length, position)
        self._drop(length, position)
        data = super().read(length, position)
        if not was_cached:
            self._drop(length, position)
        return data

    def _is_cached(self, length: int, position: int) -> bool:
        """Returns whether the last page of the range is cached; all that is dropped comes back by
        reading."""
        if not WITHOUT_WAITING or length <= 0:
            return True
        try:
            last = bytearray(1)
            return os.preadv(self.fileno(), [last], position + length - 1, WITHOUT_WAITING) == 1
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system that cannot tell

    def _drop(self, length: int, position: int) -> None:
        if WITHOUT_WAITING and length > 0:
            os.posix_fadvise(self.fileno(), position, length, os.POSIX_FADV_DONTNEED)


def main() -> None:
    asked = BackgroundJob()
    try:
        for number, fields in enumerate(asked.fields):
            segment = ClosedSegment(*fields)
            try:
                found = damage_in(segment, lambda path: FileOnDisk(path, asked.pace))
            except BrokenPipeError:
                return
            except OSError as problem:
                gone = isinstance(problem, FileNotFoundError)
                asked.tell("skipped", number, "" if gone else f"{segment.path}: {problem.strerror}")
            else:
                asked.tell("read", number, found)
        asked.tell("finished")
    except (NobodyWaits, BrokenPipeError):
        return


if __name__ == "__main__":
    main()
