"""Which sockets have something to read; unlike `select.select`, of whatever number they are."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterable


def readable(sockets: Iterable[socket.socket], within_s: float) -> list[socket.socket]:
    with selectors.DefaultSelector() as waiting:
        for each in sockets:
            waiting.register(each, selectors.EVENT_READ)
        return [key.fileobj for key, _ in waiting.select(within_s)]  # type: ignore[misc]
