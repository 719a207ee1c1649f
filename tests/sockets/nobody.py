"""Addresses at which nobody listens."""

from __future__ import annotations

import socket

_held: list[socket.socket] = []


def nobody() -> str:
    """It stays bound while this process lives: else the system would give it to the next server
    of a test beside this one."""
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    return f"127.0.0.1:{holder.getsockname()[1]}"
