"""A connection whose admin client is made once and kept.

Commands make a client for each call and end; the console asks all day, and a client of librdkafka
costs threads here and connections at every broker.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from headrace.client.connection import Connection


@dataclass(slots=True)
class _Kept:
    lock: threading.Lock = field(default_factory=threading.Lock)
    admin: Any = None


@dataclass(slots=True)
class HeldConnection(Connection):
    """librdkafka's admin client may be used by many threads at once."""

    kept: _Kept = field(default_factory=_Kept, init=False, repr=False)

    def admin(self) -> Any:
        with self.kept.lock:
            if self.kept.admin is None:
                self.kept.admin = Connection.admin(self)
            return self.kept.admin

    def forget(self) -> None:
        """Let go of the client, and of the password with it."""
        with self.kept.lock:
            self.kept.admin = None
        self.settings.pop("sasl.password", None)

    def hasty(self, timeout_s: float) -> HeldConnection:
        """The same clients, and less patience: for a part that a page can do without."""
        other = HeldConnection(self.settings, timeout_s, self.callbacks, self.quiet)
        other.kept = self.kept
        return other


def held(connection: Connection) -> HeldConnection:
    return HeldConnection(
        {"client.id": "headrace-console", **connection.settings},
        connection.timeout_s,
        dict(connection.callbacks),
        connection.quiet,
    )
