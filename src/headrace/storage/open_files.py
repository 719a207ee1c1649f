"""How many files the logs of one node keep open, and who gives one up when there are too many.

An owner (a segment, an index) keeps its open file in its own slot `file`, so that the hot path pays
nothing; when the limit is reached, the owner that opened first loses its file and opens it again
when it next needs it. Letting go is all that is done: whoever else holds the File (a slice on its
way to a socket, a flush on another thread) keeps it alive until it is done with it.
"""

from __future__ import annotations

from typing import Protocol

from headrace.environment import Disk, File

# Half of the 20,000 or more descriptors that RLIMIT_NOFILE usually allows: the rest is for sockets.
DEFAULT_LIMIT = 10_000


class Owner(Protocol):
    path: str
    file: File | None


class OpenFiles:
    """The files that are open now, oldest first."""

    __slots__ = ("disk", "limit", "_owners")

    def __init__(self, disk: Disk, limit: int = DEFAULT_LIMIT) -> None:
        self.disk = disk
        self.limit = limit
        self._owners: dict[Owner, None] = {}  # a dict keeps the order of arrival

    def __len__(self) -> int:
        return len(self._owners)

    def open(self, owner: Owner, *, create: bool = False) -> File:
        file = self.disk.open(owner.path, create=create)
        owner.file = file
        self._owners.pop(owner, None)
        self._owners[owner] = None
        if len(self._owners) > self.limit:
            self.let_go(next(iter(self._owners)))
        return file

    def let_go(self, owner: Owner) -> None:
        self._owners.pop(owner, None)
        owner.file = None
