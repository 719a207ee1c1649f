"""Runs inside a background process: its job, its rate limit, and its messages to the node.

Runs niced, keeps to the bytes per second it is given, and ends when the other side of the socket
is closed (`background_process.py`).
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
from contextlib import suppress
from time import monotonic
from typing import Any

NICENESS = 10
# Waits that are shorter cost more than they bring.
SHORTEST_WAIT_S = 0.02


class NobodyWaits(Exception):
    """The node has ended or given the job up."""


class Pace:
    """Call it with every byte read or written: it waits to keep the rate limit."""

    def __init__(self, door: socket.socket, bytes_per_second: float) -> None:
        self._door = selectors.DefaultSelector()
        self._door.register(door, selectors.EVENT_READ)
        self._bytes_per_second = bytes_per_second
        self._free_at = monotonic()

    def __call__(self, length: int) -> None:
        now = monotonic()
        self._free_at = max(self._free_at, now) + length / self._bytes_per_second
        wait = self._free_at - now
        # Nothing is ever sent this way: when it can be read, it was closed.
        if self._door.select(wait if wait > SHORTEST_WAIT_S else 0):
            raise NobodyWaits


class BackgroundJob:
    """The task of this process; `tell` raises BrokenPipeError if the parent has ended."""

    def __init__(self) -> None:
        with suppress(OSError):
            os.nice(NICENESS)
        self._door = socket.socket(fileno=os.dup(1))
        bytes_per_second, self.fields = json.load(sys.stdin)
        self.pace = Pace(self._door, max(bytes_per_second, 1.0))

    def tell(self, *words: Any) -> None:
        self._door.sendall(json.dumps(words).encode() + b"\n")
