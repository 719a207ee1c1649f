"""The locks on a node's data folders, and the sentences about folders that a start cannot use.

The metadata folder must be locked. Another data folder whose disk refuses is left out: the node
starts without it, if it has started before; it is never left out because another process uses it.
"""

from __future__ import annotations

import errno
import os

from headrace.node.process.folders.folder_rights import close_to_others
from headrace.node.process.folders.real_disk import FOLDER_MODE, FolderInUse, FolderLock
from headrace.node.process.folders.room_for_start import MEBIBYTE, room_for_start
from headrace.node.process.settings.settings import CannotStart
from headrace.node.storage.checkpoints import META_PROPERTIES
from headrace.wire.protocol.errors import KafkaError


class FolderLocks:
    """The locks of all usable data folders; `failed` has the reason why each of the others cannot
    be used."""

    def __init__(self, metadata_folder: str, log_dirs: tuple[str, ...]) -> None:
        self.failed: dict[str, str] = {}
        self._held: list[FolderLock] = [lock_folder(metadata_folder)]
        may_fail = os.path.exists(os.path.join(metadata_folder, META_PROPERTIES))
        try:
            for path in log_dirs:
                if path != metadata_folder:
                    self._lock(path, may_fail=may_fail)
        except CannotStart:
            self.release()
            raise

    def _lock(self, path: str, *, may_fail: bool) -> None:
        try:
            self._held.append(lock_folder(path))
        except CannotStart as refusal:
            cause = refusal.__cause__
            if not may_fail or not isinstance(cause, OSError):
                raise
            self.failed[path] = cause.strerror or str(cause)

    def release(self) -> None:
        for lock in self._held:
            lock.release()


def lock_folder(folder: str) -> FolderLock:
    try:
        os.makedirs(folder, mode=FOLDER_MODE, exist_ok=True)
        lock = FolderLock(folder)
    except FolderInUse:
        raise CannotStart(
            f"Another process uses {folder}; stop it, or name another folder with --data."
        ) from None
    except OSError as problem:
        raise CannotStart(
            f"The data folder {folder} cannot be used: {problem.strerror}."
        ) from problem
    close_to_others(folder)
    return lock


def space_of(folder: str) -> tuple[int, int]:
    """Bytes of the volume in all, and free for us."""
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def refused_start(folder: str, refusal: OSError | KafkaError) -> str:
    """The error for a node that was started on a disk that refuses the writes of a start."""
    free, needed = space_of(folder)[1], room_for_start(folder)
    cause = refusal if isinstance(refusal, OSError) else refusal.__cause__
    if not isinstance(cause, OSError) or cause.errno not in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk under {folder} refuses: {refusal}"
    return (
        f"The disk under {folder} is full: {free / MEBIBYTE:,.1f} MiB are free, and this start "
        f"needs about {needed / MEBIBYTE:,.1f} MiB. Make room (or raise a quota) and start again."
    )
