"""A disk that knows what was flushed, and can show what a power cut would leave of its files.

Of pages that were written since a file's last flush each is kept, lost or torn; the size is the old
or the new one. So pages are lost in any order, as a disk may write them. Names are kept as they
are: file systems with a journal write them in order. `power_cut` writes one such state to a folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from random import Random

from headrace.server.real_disk import RealDisk, RealFile

PAGE = 512  # of the disk: the smallest unit that is written as a whole


class LossyFile(RealFile):
    """Tells its disk when it is flushed."""

    disk: LossyDisk

    def flush(self) -> None:
        super().flush()
        self.disk.note_flushed(self.path)


class LossyDisk(RealDisk):
    __slots__ = ("flushed",)

    def __init__(self) -> None:
        self.flushed: dict[int, bytes] = {}  # by inode: what is surely there

    def open(self, path: str, *, create: bool = False) -> LossyFile:
        plain = super().open(path, create=create)
        file = LossyFile(path, plain._fd)
        plain._fd = -1
        file.disk = self
        return file

    def write_file(self, path: str, pieces: Iterable[bytes], *, flush: bool = True) -> None:
        super().write_file(path, pieces, flush=flush)
        if flush:
            self.note_flushed(path)

    def note_flushed(self, path: str) -> None:
        if os.path.exists(path):  # or it was renamed meanwhile, and nothing is lost by not knowing
            self.flushed[os.stat(path).st_ino] = Path(path).read_bytes()

    def power_cut(self, folder: str, into: str, random: Random) -> None:
        for at, _, names in os.walk(folder):
            target = Path(into) / Path(at).relative_to(folder)
            target.mkdir(parents=True, exist_ok=True)
            for name in names:
                path = Path(at) / name
                safe = self.flushed.get(path.stat().st_ino, b"")
                (target / name).write_bytes(left_of(safe, path.read_bytes(), random))


def left_of(safe: bytes, written: bytes, random: Random) -> bytes:
    """What may be there of `written`, if only `safe` was flushed."""
    if safe == written:
        return written
    size = random.choice((len(safe), len(written)))
    left = bytearray()
    for at in range(0, size, PAGE):
        old = safe[at : at + PAGE].ljust(PAGE, b"\0")
        new = written[at : at + PAGE].ljust(PAGE, b"\0")
        torn = random.randrange(PAGE)
        left += random.choice((old, new, new, new[:torn] + old[torn:]))
    return bytes(left[:size])
