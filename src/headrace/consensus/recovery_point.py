"""`recovery-point`: how far the metadata log was flushed, beside the log in its own folder.

A batch at or above it may be torn by a power cut and is nobody's yet; a batch below it was promised
to somebody, so damage there must never be cut away. One line, `VERSION OFFSET CRC`. Written in
place after each flush, without a flush of its own (a few microseconds): a kill -9 cannot take it
back, and a power cut can only leave an older number, which is true as well. Apache Kafka passes
over the file, as it does over every name in a log's folder that it does not know.
"""

from __future__ import annotations

import re
from contextlib import suppress

from crc32c import crc32c

from headrace.environment import Disk, File

FILE_NAME = "recovery-point"
_LINE = re.compile(rb"(0 (\d{20})) ([0-9a-f]{8})\n")


class BadRecoveryPoint(Exception):
    """The file is there, but what it says cannot be believed."""


def encode_recovery_point(offset: int) -> bytes:
    text = f"0 {offset:020d}".encode()
    return text + f" {crc32c(text):08x}\n".encode()


def read_recovery_point(disk: Disk, folder: str) -> int | None:
    """None if no such file was written: the folder is Apache Kafka's, or new."""
    path = f"{folder}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    found = _LINE.fullmatch(disk.read_file(path))
    if found is None or crc32c(found[1]) != int(found[3], 16):
        raise BadRecoveryPoint(f"{path} fails its checksum")
    return int(found[2])


class RecoveryPoint:
    """The file as a leader keeps it."""

    __slots__ = ("_path", "_disk", "_file", "_written")

    def __init__(self, disk: Disk, folder: str) -> None:
        self._path = f"{folder}/{FILE_NAME}"
        self._disk = disk
        self._file: File | None = None
        self._written = -1

    def begin(self, offset: int) -> None:
        """Put the file in place, durably: later numbers need no new name and no new room."""
        self._disk.write_file(self._path, [encode_recovery_point(offset)])
        self._file = self._disk.open(self._path)
        self._written = offset

    def advance(self, offset: int) -> None:
        if self._file is None or offset <= self._written:
            return
        # An older number is true as well, so a refusal of the disk does no harm.
        with suppress(OSError):
            self._file.write_at(encode_recovery_point(offset), 0)
            self._written = offset
