"""Bounds the files that the logs of one node keep open; the one opened first is closed first.

An owner (a segment, an index) keeps its open file in its own slot `file`, so that the hot path pays
nothing; when the limit is reached, the owner that opened first loses its file and opens it again
when it next needs it. The cache only drops its reference: another holder of the File (a slice on
its way to a socket, a flush on another thread) keeps it open until it is done. The system may grant
fewer descriptors than the limit says. Then half of the files are dropped, the needed one is opened
once more, and the limit stays below the granted number: short uses of files (checkpoints, flushes)
need descriptors as well.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from headrace.environment import Disk, File
from headrace.node.storage.recovery.damage import Findings

# Half of the 20,000 or more descriptors that RLIMIT_NOFILE usually allows: the rest is for sockets.
DEFAULT_LIMIT = 10_000
SMALLEST_LIMIT = 16

log = logging.getLogger(__name__)

Result = TypeVar("Result")


def is_full(problem: OSError) -> bool:
    """The disk has no room, or a quota is used up; both pass."""
    return problem.errno in (errno.ENOSPC, errno.EDQUOT)


def is_shortage(problem: OSError) -> bool:
    """Returns whether no descriptor is free: a temporary state that does not concern the disk."""
    return problem.errno in (errno.EMFILE, errno.ENFILE)


class Owner(Protocol):
    path: str
    file: File | None


class OpenFiles:
    """The files that are open now, oldest first."""

    __slots__ = ("disk", "limit", "shortages", "findings", "_owners")

    def __init__(self, disk: Disk, limit: int = DEFAULT_LIMIT) -> None:
        self.disk = disk
        self.limit = limit
        self.shortages = 0  # how often the system granted no descriptor
        self.findings = Findings()  # of the logs that share these files
        self._owners: dict[Owner, None] = {}  # a dict keeps the order of arrival

    def __len__(self) -> int:
        return len(self._owners)

    def open(self, owner: Owner, *, create: bool = False) -> File:
        file = self.with_descriptors(lambda: self.disk.open(owner.path, create=create))
        owner.file = file
        self._owners.pop(owner, None)
        self._owners[owner] = None
        if len(self._owners) > self.limit:
            self.let_go(next(iter(self._owners)))
        return file

    def with_descriptors(self, work: Callable[[], Result]) -> Result:
        """Do `work`, a second time if it finds no free descriptor the first time."""
        try:
            return work()
        except OSError as problem:
            if not is_shortage(problem):
                raise
        self._give_up_half()
        return work()

    def _give_up_half(self) -> None:
        """Oldest first."""
        self.shortages += 1
        self.limit = max(SMALLEST_LIMIT, len(self._owners) * 9 // 10)
        log.warning("no descriptor is free: at most %d files of logs stay open now", self.limit)
        for owner in list(self._owners)[: (len(self._owners) + 1) // 2]:
            self.let_go(owner)

    def let_go(self, owner: Owner) -> None:
        self._owners.pop(owner, None)
        owner.file = None
