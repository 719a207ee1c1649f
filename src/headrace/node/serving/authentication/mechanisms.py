"""The SASL mechanisms of one listener, and the counters of its logins.

Replaced as a whole when the settings change: logins that have begun continue with the old ones.
`Logins` is one object per node; an observer of logins puts itself on its list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.node.serving.api import Peer
from headrace.node.serving.authentication.exchange import Exchange


@dataclass(slots=True)
class LoginSeen:
    """A login that succeeded or failed; `user` is known only if it succeeded."""

    session: Peer
    mechanism: str
    user: str | None
    failure: str | None = None
    again: bool = False  # a re-authentication


@dataclass(slots=True)
class Logins:
    succeeded: Counter[str] = field(default_factory=Counter)  # by mechanism
    failed: Counter[str] = field(default_factory=Counter)
    expired: int = 0  # connections that ended without a re-authentication
    watchers: list[Callable[[LoginSeen], None]] = field(default_factory=list)

    def note(self, seen: LoginSeen) -> None:
        counter = self.succeeded if seen.failure is None else self.failed
        counter[seen.mechanism] += 1
        for tell in self.watchers:
            tell(seen)


@dataclass(slots=True)
class Mechanisms:
    begin: Mapping[str, Callable[[], Exchange]]  # by name, in the operator's order
    logins: Logins
    largest_bytes: int = 512 * 1024  # sasl.server.max.receive.size
    failure_delay_ms: int = 100  # connection.failed.authentication.delay.ms
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)  # 0: no re-authentication

    @property
    def names(self) -> list[str]:
        return list(self.begin)
