"""A session's login by SASL: which requests are allowed at each step, and its result.

Until it is complete only ApiVersions, SaslHandshake and SaslAuthenticate are accepted, in small
frames. A login that fails is answered after `connection.failed.authentication.delay.ms`, during
which nothing more is read from that connection, and then the connection ends. After a login whose
session has a lifetime the client logs in again (KIP-368): by the same mechanism, as the same user,
at most once a second; a request after the end of the lifetime ends the connection.

A handshake of version 0 is followed by bare tokens without request headers.
Does not know mechanisms (`exchange.py`) and answers nothing itself (the handlers of SaslHandshake
and SaslAuthenticate do).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from headrace.environment import Now
from headrace.node.serving.api import ClosesConnection, Peer, WaitingRequest
from headrace.node.serving.authentication.exchange import Exchange, LoginFailed
from headrace.node.serving.authentication.mechanisms import LoginSeen, Mechanisms
from headrace.node.serving.principal import Principal

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
SHORTEST_BETWEEN_LOGINS_MS = 1_000


class Phase(Enum):
    HANDSHAKE = "no mechanism was chosen"
    TOKENS = "tokens in SaslAuthenticate requests"
    BARE_TOKENS = "tokens without request headers"
    DONE = "logged in, for as long as the session lasts"
    FAILED = "to be ended"


TAKEN: dict[Phase, frozenset[int]] = {
    Phase.HANDSHAKE: frozenset({API_VERSIONS, SASL_HANDSHAKE}),
    Phase.TOKENS: frozenset({SASL_AUTHENTICATE}),
    Phase.BARE_TOKENS: frozenset(),
    Phase.FAILED: frozenset(),
}


class Login:
    __slots__ = ("mechanisms", "phase", "_mechanism", "_exchange", "_ends_ms", "_begun_ms")

    def __init__(self, mechanisms: Mechanisms) -> None:
        self.mechanisms = mechanisms
        self.phase = Phase.HANDSHAKE
        self._mechanism: str | None = None  # of the last login that succeeded, or is under way
        self._exchange: Exchange | None = None
        self._ends_ms: int | None = None  # monotonic; None before the first login is complete
        self._begun_ms = 0  # time of the last re-authentication

    @property
    def is_open(self) -> bool:
        """Returns whether no login has succeeded yet."""
        return self._ends_ms is None

    @property
    def takes_bare_tokens(self) -> bool:
        return self.phase is Phase.BARE_TOKENS

    @property
    def takes_tokens(self) -> bool:
        return self.phase is Phase.TOKENS

    def admits(self, api_key: int, size: int, now: Now) -> bool:
        """Called as soon as a frame begins; raises Refused for what must not be sent now.

        Returns False if it must be answered with ILLEGAL_SASL_STATE; the login has failed then (as
        in Apache Kafka, if a client continues although a token was refused).
        """
        if self.phase is Phase.DONE:
            assert self._ends_ms is not None
            if api_key != SASL_HANDSHAKE and now.monotonic_ms >= self._ends_ms:
                self.mechanisms.logins.expired += 1
                raise ClosesConnection("its login has expired, and it did not log in again")
            return True
        if size > self.mechanisms.largest_bytes:
            raise ClosesConnection(
                f"a frame of {size} bytes before the login was done (at most "
                f"{self.mechanisms.largest_bytes} are taken)"
            )
        if api_key in TAKEN[self.phase]:
            return True
        if self.phase is not Phase.TOKENS:
            raise ClosesConnection(f"API {api_key} before the login was done")
        return False

    def takes_handshake(self, now: Now) -> bool:
        if self.phase is Phase.HANDSHAKE:
            return True
        if self.phase is not Phase.DONE:
            return False
        return not self._begun_ms or now.monotonic_ms - self._begun_ms >= SHORTEST_BETWEEN_LOGINS_MS

    def handshake(self, mechanism: str, *, bare_tokens: bool, now: Now) -> None:
        """Begin the login, by one of the mechanisms that are offered."""
        if self.phase is Phase.DONE:
            self._begun_ms = max(now.monotonic_ms, 1)
        if self._mechanism is not None and self._mechanism != mechanism:
            self._exchange = _Unchangeable(self._mechanism)
        else:
            self._exchange = self.mechanisms.begin[mechanism]()
            self._mechanism = mechanism
        self.phase = Phase.BARE_TOKENS if bare_tokens else Phase.TOKENS

    def refuse_request(self, session: Peer) -> None:
        """The client sends a request as if it had logged in: the login fails."""
        mechanism = self._mechanism or "unknown"
        self._failed(session, mechanism, LoginFailed("a request in the middle of the login"))

    def refuse_mechanism(self, session: Peer) -> None:
        """The client wants a mechanism that is not offered: the login fails."""
        self._failed(session, "unknown", LoginFailed("a mechanism that is not offered"))

    def token(self, session: Peer, token: bytes, now: Now) -> tuple[bytes, int]:
        """Returns the answer and, once the login is complete, the session's lifetime (0:
        unlimited)."""
        assert self._exchange is not None and self._mechanism is not None
        try:
            answer = self._exchange.step(token, now)
            if self._exchange.user is None:
                return answer, 0
            principal = Principal("User", self._exchange.user)
            if not self.is_open and principal != session.principal:
                raise LoginFailed(
                    "another user than before",
                    told="The user cannot be changed by a re-authentication.",
                )
        except LoginFailed as failure:
            raise self._failed(session, self._mechanism, failure) from None
        seen = LoginSeen(session, self._mechanism, principal.name, again=not self.is_open)
        lifetime_ms = self._lifetime_ms(self._exchange, now)
        self._exchange = None
        session.principal = principal
        if lifetime_ms is None:
            session.login = None
        else:
            self.phase = Phase.DONE
            self._ends_ms = now.monotonic_ms + lifetime_ms
        self.mechanisms.logins.note(seen)
        return answer, lifetime_ms or 0

    def _lifetime_ms(self, exchange: Exchange, now: Now) -> int | None:
        assert self._mechanism is not None
        bounds = []
        if exchange.ends_wall_ms is not None:
            bounds.append(exchange.ends_wall_ms - now.wall_ms)
        longest = self.mechanisms.max_reauth_ms.get(self._mechanism, 0)
        if longest > 0:
            bounds.append(longest)
        return max(min(bounds), 0) if bounds else None

    def _failed(self, session: Peer, mechanism: str, failure: LoginFailed) -> LoginFailed:
        again = not self.is_open
        self.phase = Phase.FAILED
        self._exchange = None
        self.mechanisms.logins.note(LoginSeen(session, mechanism, None, str(failure), again))
        return failure

    def told(self, failure: LoginFailed) -> str:
        """Returns the text for the client: it is the same for a wrong password and for a wrong
        name."""
        return failure.told or (
            f"Authentication failed due to invalid credentials with SASL mechanism "
            f"{self._mechanism}."
        )

    def answer_late(self, session: Peer, answer: Callable[[], Any], now: Now) -> WaitingRequest:
        """Returns the answer to a failed login, after the delay; then the connection ends."""

        def attempt(expired: bool) -> Any | None:
            if not expired:
                return None
            session.closing = True
            return answer()

        deadline_ms = now.monotonic_ms + self.mechanisms.failure_delay_ms
        return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[], mutes=True)


class _Unchangeable:
    """Replaces the exchange if a login uses another mechanism than the first one."""

    def __init__(self, first: str | None) -> None:
        self._first = first
        self.user: str | None = None
        self.ends_wall_ms: int | None = None

    def step(self, token: bytes, now: Now) -> bytes:
        raise LoginFailed(
            "another mechanism than before",
            told=f"A re-authentication must use the mechanism {self._first} again.",
        )
