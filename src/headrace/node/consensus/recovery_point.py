"""`recovery-point`: the offset up to which the metadata log was flushed.

A batch at or above it may be incomplete after a power cut and was never acknowledged; a batch below
it was acknowledged, so damage there must never be cut away. Two lines `VERSION OFFSET CRC` in two
sectors: the first is flushed when the file is made and then left alone, the second is written in
place after each flush of the log, without a flush of its own (a few microseconds): a kill -9 cannot
take it back, and a power cut can only leave an older number, which is true as well, or a torn line,
in whose place the first one counts. Apache Kafka passes over the file, as it does over every name
in a log's folder that it does not know. A file of one line, of older versions, is understood.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress

from crc32c import crc32c

from headrace.environment import Disk, File

log = logging.getLogger(__name__)

FILE_NAME = "recovery-point"
LINE = 32  # bytes of one
SECTOR = 512  # what a disk writes as a whole, or not
_LINE = re.compile(rb"(0 (\d{20})) ([0-9a-f]{8})\n")


class BadRecoveryPoint(Exception):
    """The file exists, but its contents cannot be right."""


def encode_recovery_point(offset: int) -> bytes:
    """The whole file."""
    line = _encode_line(offset)
    return line.ljust(SECTOR, b"\n") + line


def _encode_line(offset: int) -> bytes:
    text = f"0 {offset:020d}".encode()
    return text + f" {crc32c(text):08x}\n".encode()


def read_recovery_point(disk: Disk, folder: str) -> int | None:
    """None if no such file was written: the folder is Apache Kafka's, or new."""
    path = f"{folder}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    data = disk.read_file(path)
    first, second = _decode_line(data[:LINE]), _decode_line(data[SECTOR : SECTOR + LINE])
    if first is None or (second is not None and second < first):
        raise BadRecoveryPoint(f"{path} fails its checksum")
    if second is None and len(data) > LINE:
        log.warning("the second line of %s is torn: its first one counts, %d", path, first)
    return first if second is None else second


def _decode_line(line: bytes) -> int | None:
    found = _LINE.fullmatch(line)
    if found is None or crc32c(found[1]) != int(found[3], 16):
        return None
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
            self._file.write_at(_encode_line(offset), SECTOR)
            self._written = offset
