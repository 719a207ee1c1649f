"""File systems of their own for the folder of one node: a small one, and one that dies.

Mounting needs root, as the networks of `tests/soak/private_network.py` do: without it the test is
skipped. Both are taken away when the block ends; nothing of them is left on the machine.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SMALL_MB = 24
EXT4_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN of linux/fs/ext4/ext4.h
WITHOUT_LOG = 2  # what is not in the journal is lost, as with a disk that is pulled out


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """`folder` is a file system of `SMALL_MB`."""
    require_root()
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={SMALL_MB}m", "headrace-test", str(folder))
    try:
        yield
    finally:
        run("umount", "--lazy", str(folder))


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Files of others take all room on the disk of `folder`, also what is freed meanwhile, until
    the block ends."""
    path = folder / "of-others"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as problem:
                if problem.errno != errno.ENOSPC:
                    raise
        yield
    path.unlink()


class DyingDisk:
    """`folder` is an ext4 in a file; after `die` every read, write and flush there answers EIO."""

    def __init__(self, folder: Path, *, size_mb: int = 256) -> None:
        self._folder = folder
        self._image = folder.with_name(f"{folder.name}.img")
        self._size_mb = size_mb

    def die(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, EXT4_SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(folder)

    def repair(self) -> None:
        """Mount it again, with what had reached the disk; no process may have files there."""
        run("umount", str(self._folder))
        self._mount()

    def _mount(self) -> None:
        run("mount", "-o", "loop", str(self._image), str(self._folder))

    def __enter__(self) -> DyingDisk:
        require_root()
        with self._image.open("wb") as image:
            image.truncate(self._size_mb << 20)
        run("mkfs.ext4", "-q", "-F", str(self._image))
        self._folder.mkdir()
        self._mount()
        (self._folder / "lost+found").rmdir()  # it is no partition
        return self

    def __exit__(self, *_: object) -> None:
        run("umount", "--lazy", str(self._folder))


def require_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("a file system can be mounted by root only")


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)} (as root): {done.stderr.strip()}"


@contextmanager
def no_file_beyond(size: int, pid: int) -> Iterator[None]:
    """Writes of the process beyond this size of a file are refused (EFBIG); what is smaller, reads
    and flushes are not. Needs no root."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
