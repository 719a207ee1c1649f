"""Which data folders have failed, by the errors that their files raise.

Code that gets an OSError from a file reports it here (`met`); the node checks once per turn
(`take`). Only folders that may fail alone are watched. A node with one folder has none; the
metadata folder is never one, since the node cannot run without it. A full disk and a shortage of
descriptors are not failures: both pass. A failed flush always is one, since the kernel may have
dropped the pages.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headrace.environment import Disk
from headrace.node.storage.checkpoints import META_PROPERTIES

# The errors of a disk that is broken or missing.
FAILED = frozenset(
    {
        errno.EIO,
        errno.EROFS,
        errno.ENODEV,
        errno.ENXIO,
        errno.ESTALE,
        errno.ENOTCONN,
        errno.EACCES,
        errno.EPERM,
        getattr(errno, "EUCLEAN", errno.EIO),  # a file system that finds itself damaged; Linux only
    }
)
# A file does not exist: its topic was deleted in the meantime, or the whole folder is missing.
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})


@contextmanager
def raised_in(folder: str) -> Iterator[None]:
    """An OSError of a file that is read or written names no file: it is this folder's."""
    try:
        yield
    except OSError as problem:
        if problem.filename is None:
            problem.filename = folder
        raise


class FolderFailures:
    __slots__ = ("known", "untold", "_disk", "_folders")

    def __init__(self, disk: Disk, folders: Iterable[str] = ()) -> None:
        """`folders`: the data folders that may fail without ending the node."""
        self.known: dict[str, OSError] = {}  # what each failed folder has raised first
        self._disk = disk
        self._folders = sorted(folders, key=len, reverse=True)  # one may be inside another
        self.untold: list[str] = []  # those that `take` has not returned yet

    def met(self, path: str | None, problem: OSError, *, in_flush: bool = False) -> bool:
        """A file at `path` has raised this. True: its folder has failed, now or before."""
        folder = self.folder_of(path)
        if folder is None:
            return False
        if folder in self.known:
            return True
        if not in_flush and not self._is_failure(folder, problem):
            return False
        self.known[folder] = problem
        self.untold.append(folder)
        return True

    def has_failed(self, path: str | None) -> bool:
        return bool(self.known) and self.folder_of(path) in self.known

    def take(self) -> list[str]:
        """The folders that have failed since this was last called."""
        untold, self.untold = self.untold, []
        return untold

    def folder_of(self, path: str | None) -> str | None:
        """None: that folder may not fail alone."""
        if path is None:
            return None
        for folder in self._folders:
            if path == folder or path.startswith(folder + "/"):
                return folder
        return None

    def _is_failure(self, folder: str, problem: OSError) -> bool:
        if problem.errno in MISSING:
            return not self._disk.exists(f"{folder}/{META_PROPERTIES}")
        return problem.errno in FAILED
