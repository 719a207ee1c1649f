"""Connections that are not authenticated yet: bounds on their number and their time.

A connection that is slow in its handshake or login holds a place only for LONGEST_LOGIN_MS; when
all places are taken the oldest is closed. So many connections that never log in cost a bounded
number of places and keep out no client with a password.
"""

from __future__ import annotations

from headrace.node.process.listeners.connection import Connection
from headrace.node.process.loop import Loop

# A client takes some round trips; over a bad line and with a slow signature a few seconds.
LONGEST_LOGIN_MS = 30_000
LOOK_EVERY_MS = 1_000
MOST_NEWCOMERS = 2_000


class Newcomers:
    def __init__(self, loop: Loop, *, most: int = MOST_NEWCOMERS) -> None:
        self._loop = loop
        self._most = most
        self._since_ms: dict[Connection, int] = {}  # in order of arrival

    def __len__(self) -> int:
        return len(self._since_ms)

    def watch(self) -> None:
        self._loop.timers.every(LOOK_EVERY_MS, self._look, self._loop.now.monotonic_ms)

    def add(self, connection: Connection) -> None:
        if len(self._since_ms) >= self._most:
            self._forget_arrived()
        if len(self._since_ms) >= self._most:
            oldest = next(iter(self._since_ms))
            self._loop.close(oldest, f"{self._most} others are logging in too")
        self._since_ms[connection] = self._loop.now.monotonic_ms

    def left(self, connection: Connection) -> None:
        self._since_ms.pop(connection, None)

    def _forget_arrived(self) -> None:
        for connection in [found for found in self._since_ms if has_arrived(found)]:
            del self._since_ms[connection]

    def _look(self) -> None:
        self._forget_arrived()
        limit_ms = self._loop.now.monotonic_ms - LONGEST_LOGIN_MS
        late = [found for found, since_ms in self._since_ms.items() if since_ms <= limit_ms]
        for connection in late:
            self._loop.close(connection, f"not logged in within {LONGEST_LOGIN_MS // 1000} s")


def has_arrived(connection: Connection) -> bool:
    login = connection.session.login
    return connection.is_shaken and (login is None or not login.is_open)
