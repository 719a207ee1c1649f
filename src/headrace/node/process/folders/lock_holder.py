"""Which process holds the lock of a data folder, as the system knows it.

A file with a process id may be old, and the number given to another process meanwhile; the lock is
held by exactly the process that uses the folder.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys

# struct flock: type, whence, start, length, pid; macOS has type and whence behind.
_FORMAT = "@qqihh" if sys.platform == "darwin" else "@hhqqi"


def lock_holder(folder: str, name: str = ".lock") -> int | None:
    """The id of the process; None if no process holds it, or there is no such file."""
    try:
        fd = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, _packed(fcntl.F_WRLCK))
    finally:
        os.close(fd)
    fields = struct.unpack_from(_FORMAT, answer)
    kind, pid = (fields[3], fields[2]) if sys.platform == "darwin" else (fields[0], fields[4])
    return None if kind == fcntl.F_UNLCK else pid


def _packed(kind: int) -> bytes:
    if sys.platform == "darwin":
        return struct.pack(_FORMAT, 0, 0, 0, kind, os.SEEK_SET)
    return struct.pack(_FORMAT, kind, os.SEEK_SET, 0, 0, 0)
