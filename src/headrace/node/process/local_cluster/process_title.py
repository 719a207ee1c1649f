"""The name of this process in `ps` and `top`: on Linux any text, elsewhere it stays as it is."""

from __future__ import annotations

import ctypes
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
LONGEST_NAME = 15
# Fields of /proc/self/stat behind the name in parentheses: where the arguments begin and end.
ARG_START, ARG_END = 45, 46


def set_title(title: str, name: str) -> None:
    """`name` is what shows where there is little room, at most 15 characters.

    The arguments of the process are overwritten, which Python has read long before.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, ValueError, IndexError):
        ctypes.CDLL(None).prctl(PR_SET_NAME, name[:LONGEST_NAME].encode(), 0, 0, 0)
        with open("/proc/self/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        start, end = int(fields[ARG_START]), int(fields[ARG_END])
        room = end - start
        if start and room > 1:
            text = title.encode()[: room - 1]
            ctypes.memmove(start, text + bytes(room - len(text)), room)


def end_with_parent() -> None:
    """The system asks this process to stop when its parent has died, whatever it died of."""
    if sys.platform.startswith("linux"):
        with suppress(OSError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
