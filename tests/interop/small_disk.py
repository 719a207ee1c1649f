"""A file system of its own that a test can fill to the last byte, and empty again."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own, in memory; only root may make one."""
    folder.mkdir()
    size = f"size={megabytes}m"
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "headrace-test", str(folder)], capture_output=True
    )
    if made.returncode != 0:
        pytest.skip("a small file system can be made by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all that is left, to the last byte."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(64))
    return ballast
