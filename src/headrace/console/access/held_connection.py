"""A connection whose admin client is made once and kept.

Commands make a client for each call and end; the console asks all day, and a client of librdkafka
costs threads here and connections at every broker.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from headrace.client.connection import ClientSettings
from headrace.console.access.shared_metadata import SharedMetadata, SharingAdmin

NEVER = float("inf")


@dataclass(slots=True)
class _Kept:
    lock: threading.Lock = field(default_factory=threading.Lock)
    admin: Any = None
    metadata: SharedMetadata = field(default_factory=SharedMetadata)


@dataclass(slots=True)
class HeldClientSettings(ClientSettings):
    """librdkafka's admin client may be used by many threads at once."""

    kept: _Kept = field(default_factory=_Kept, init=False, repr=False)
    # Metadata that another question asked for since this moment may be used; monotonic clock.
    since_s: float = NEVER

    def admin(self) -> Any:
        with self.kept.lock:
            if self.kept.admin is None:
                self.kept.admin = ClientSettings.admin(self)
            return SharingAdmin(self.kept.admin, self.kept.metadata, self.since_s)

    def forget(self) -> None:
        """Let go of the client, and of the password with it."""
        with self.kept.lock:
            self.kept.admin = None
        self.kept.metadata.forget()
        self.settings.pop("sasl.password", None)

    def hasty(self, timeout_s: float) -> HeldClientSettings:
        """The same clients, and less patience: for a part that a page can do without."""
        return self._like_this(timeout_s, self.since_s)

    def for_page(self, since_s: float) -> HeldClientSettings:
        """The same clients; metadata that was asked for since then will do."""
        return self._like_this(self.timeout_s, since_s)

    def _like_this(self, timeout_s: float, since_s: float) -> HeldClientSettings:
        other = HeldClientSettings(self.settings, timeout_s, self.callbacks, self.quiet)
        other.kept, other.since_s = self.kept, since_s
        return other


def held(connection: ClientSettings) -> HeldClientSettings:
    return HeldClientSettings(
        {"client.id": "headrace-console", **connection.settings},
        connection.timeout_s,
        dict(connection.callbacks),
        connection.quiet,
    )
