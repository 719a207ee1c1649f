"""The machine's own disk behind the `Disk` Protocol; the lock on a data folder; open files.

A descriptor belongs to its `RealFile` and is closed with the last reference: a segment may be
deleted, or dropped from the cache of open files, while a slow socket still reads from it or another
thread still flushes it. A user of a file simply drops it; CPython's reference counts close the
descriptor at once. `close()` is for an owner that holds the last reference. Only `flush`,
`flush_folder` and `write_file` may run on another thread than the loop's. Not done: direct I/O,
io_uring, any retry of a failed write.
"""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import ClassVar

from headrace.environment import Buffer
from headrace.node.storage.durability.folder_failures import raised_in
from headrace.private_files import FILE_MODE as FILE_MODE
from headrace.private_files import FOLDER_MODE as FOLDER_MODE

# macOS has no fdatasync; fsync does more than is asked for.
_flush_data = getattr(os, "fdatasync", os.fsync)

# Several pieces that are larger in all go to the file without being joined; at most 1,024 at once.
JOIN_BELOW = 16 * 1024
MOST_PIECES = 1024


class RealFile:
    """One open file; see `environment.File`. Every write names its position: no seek position
    matters."""

    __slots__ = ("path", "size", "_fd")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self.size = os.fstat(fd).st_size

    def fileno(self) -> int:
        return self._fd

    def append(self, data: Buffer) -> None:
        written = os.pwrite(self._fd, data, self.size)
        if written != len(data):
            self._append_rest(data, written)
        self.size += len(data)

    def append_all(self, pieces: Sequence[Buffer]) -> None:
        size = sum(map(len, pieces))
        if len(pieces) == 1 or size < JOIN_BELOW or len(pieces) > MOST_PIECES:
            self.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            return
        written = os.pwritev(self._fd, pieces, self.size)
        if written != size:
            self._append_rest(b"".join(pieces), written)
        self.size += size

    def _append_rest(self, data: Buffer, written: int) -> None:
        """Complete a write that stopped half way (a disk nearly full, a signal), or remove its
        bytes."""
        rest = memoryview(data)
        try:
            while written < len(rest):
                written += os.pwrite(self._fd, rest[written:], self.size + written)
        except OSError:
            os.ftruncate(self._fd, self.size)
            raise

    def read(self, length: int, position: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length or position + len(data) >= self.size:
            return data
        return self._read_rest(data, length, position)

    def _read_rest(self, data: bytes, length: int, position: int) -> bytes:
        """Read the rest: Linux returns at most 2 GiB at once and may return less; only the end of
        the file is short."""
        pieces = [data]
        had = len(data)
        while had < length:
            more = os.pread(self._fd, length - had, position + had)
            if not more:
                break
            pieces.append(more)
            had += len(more)
        return b"".join(pieces)

    def write_at(self, data: Buffer, position: int) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._fd, rest, position)
            position += written
            rest = rest[written:]
        self.size = max(self.size, position)

    def resize(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self.size = size

    def flush(self) -> None:
        _flush_data(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # An object whose __init__ failed has no descriptor of its own yet.
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)


class RealDisk:
    """Folders and files by path; see `environment.Disk`."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, FILE_MODE))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_folder(self, path: str) -> None:
        try:
            os.mkdir(path, FOLDER_MODE)  # mostly the folder around it is there
        except (FileNotFoundError, FileExistsError):
            os.makedirs(path, mode=FOLDER_MODE, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def remove_folder(self, path: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(path)

    def read_file(self, path: str) -> bytes:
        with raised_in(path), open(path, "rb", buffering=0) as file:
            return file.readall()

    def write_file(self, path: str, pieces: Iterable[bytes], *, flush: bool = True) -> None:
        temporary = path + ".tmp"
        with raised_in(path), open(temporary, "wb", buffering=0, opener=_private) as file:
            # Checkpoints are small: one write, without a buffer between.
            rest = memoryview(b"".join(pieces))
            while rest:
                rest = rest[file.write(rest) :]
            if flush:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if flush:
            self.flush_folder(os.path.dirname(path) or ".")

    def flush_folder(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with raised_in(path):
                os.fsync(fd)
        finally:
            os.close(fd)


def _private(path: str, flags: int) -> int:
    """An opener for `open`: only the owner can read and write a new file."""
    return os.open(path, flags, FILE_MODE)


class FolderInUse(Exception):
    """Another process holds the lock of this data folder."""


class FolderLock:
    """The `.lock` file of a data folder, held until the process ends or `release` is called.

    POSIX record locks are what Java's FileChannel.tryLock takes, so ours and Apache Kafka's nodes
    keep each other out. Such a lock is lost when *any* descriptor of the file is closed by this
    process, and does not keep this process itself out: hence the list of what it holds.
    """

    __slots__ = ("_fd", "_held")

    held_here: ClassVar[set[str]] = set()

    def __init__(self, folder: str, name: str = ".lock") -> None:
        path = os.path.join(folder, name)
        self._held = os.path.realpath(path)
        if self._held in self.held_here:
            raise FolderInUse(f"{folder} is in use by this process")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as taken:
            os.close(self._fd)
            raise FolderInUse(f"{folder} is in use by another process") from taken
        self.held_here.add(self._held)

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
            self.held_here.discard(self._held)


def raise_open_files_limit() -> int:
    """Lift the soft limit of open files to the hard one; returns the limit that now holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # macOS names an unlimited hard limit that it does not grant
            return soft
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
