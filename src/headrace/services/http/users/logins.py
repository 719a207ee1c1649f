"""Logins become the cluster's users: one `UserAccess` for each, made, kept and let go here.

Without logins every request uses the server's own user. With them, a login is tried at the cluster
itself, and tried again once a minute; the secret is kept in the settings of that user's clients
only. Bounded: users at once (the one unused for longest is dropped), and refused logins per
address, so that passwords cannot be guessed through this server.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import replace

from headrace.client.connection import ClientSettings, addresses
from headrace.client.errors import ClientError, LoginRefused
from headrace.client.wire import Wire
from headrace.edge.login_failures import LoginFailures
from headrace.services.http.limits import HttpLimits
from headrace.services.http.questions import Questions
from headrace.services.http.refusal import BAD_REQUEST, Refusal, busy
from headrace.services.http.users.credentials import (
    Bearer,
    Credentials,
    read_credentials,
    unauthorized,
)
from headrace.services.http.users.user_access import UserAccess

MOST_REFUSALS, REFUSALS_S = 10, 60.0
MOST_ADDRESSES = 4096
TOKEN_LASTS_S = 300.0  # one that does not say how long
ANONYMOUS = ""


class _Entry:
    __slots__ = ("access", "checked_s", "checking", "used_s")

    def __init__(self, access: UserAccess, now_s: float) -> None:
        self.access = access
        self.used_s = self.checked_s = now_s
        self.checking = asyncio.Lock()


class Logins:
    def __init__(
        self,
        connection: ClientSettings,
        limits: HttpLimits,
        questions: Questions,
        *,
        required: bool,
        mechanism: str = "SCRAM-SHA-512",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._connection, self._limits, self._questions = connection, limits, questions
        self.required = required
        self._mechanism = mechanism
        self._clock = clock
        self.wall = wall
        self._salt = secrets.token_bytes(32)
        self._users: OrderedDict[bytes, _Entry] = OrderedDict()
        self._refused = LoginFailures(window_s=REFUSALS_S, most_keys=MOST_ADDRESSES)
        self.own = UserAccess(ANONYMOUS, connection, limits, questions)
        self.refused_logins = 0
        self._trying: dict[bytes, asyncio.Future[None]] = {}
        self._under_way: Counter[str] = Counter()  # logins that are tried, by address
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def accesses(self) -> list[UserAccess]:
        return [self.own, *(entry.access for entry in self._users.values())]

    async def access_of(self, authorization: str | None, peer: str) -> UserAccess:
        if not self.required:
            if authorization is not None:
                raise Refusal(
                    BAD_REQUEST, "This server has no logins; leave the Authorization header out."
                )
            return self.own
        given = read_credentials(authorization)
        now_s = self._clock()
        self._require_unexpired(given)
        digest = self._digest(given)
        entry = self._users.get(digest)
        if entry is None:
            if digest not in self._trying:
                self._require_few_refusals(peer, now_s)
            # First the login, then the place: a client that guesses does not take the place of a
            # user.
            connection = self._logged_in(given)
            await self._try_once(digest, connection, peer)
            entry = self._users.get(digest) or self._admit(digest, given, connection)
        elif self._clock() - entry.checked_s > self._limits.login_s:
            await self._check_again(digest, entry, peer)
        entry.used_s = self._clock()
        self._users.move_to_end(digest)
        return entry.access

    def known(self, authorization: str | None) -> UserAccess | None:
        """Returns a user who was accepted not long ago, without asking the cluster. None:
        `access_of` must decide. Raises a refusal for an invalid login."""
        if not self.required:
            return self.own if authorization is None else None
        given = read_credentials(authorization)
        self._require_unexpired(given)
        digest = self._digest(given)
        entry = self._users.get(digest)
        if entry is None or self._clock() - entry.checked_s > self._limits.login_s:
            return None
        entry.used_s = self._clock()
        self._users.move_to_end(digest)
        return entry.access

    def _require_unexpired(self, given: Credentials) -> None:
        if isinstance(given, Bearer) and self.has_expired(given.expires_s):
            raise unauthorized("The token has expired.")

    def has_expired(self, expires_s: float | None) -> bool:
        return expires_s is not None and self.wall() >= expires_s

    def _digest(self, given: Credentials) -> bytes:
        if isinstance(given, Bearer):
            said = f"bearer\0{given.token}"
        else:
            said = f"basic\0{given.name}\0{given.password}"
        return hmac.new(self._salt, said.encode("utf-8", "replace"), hashlib.sha256).digest()

    def _admit(self, digest: bytes, given: Credentials, connection: ClientSettings) -> _Entry:
        while len(self._users) >= self._limits.users:
            idle = next((d for d, e in self._users.items() if e.access.in_use == 0), None)
            if idle is None:
                raise busy(f"{self._limits.users} users are served at once; try again.", 5)
            self._let_go(idle)
        access = UserAccess(
            given.name,
            connection,
            self._limits,
            self._questions,
            expires_s=given.expires_s if isinstance(given, Bearer) else None,
        )
        entry = self._users[digest] = _Entry(access, self._clock())
        return entry

    def _logged_in(self, given: Credentials) -> ClientSettings:
        """Returns the server's own connection, with this user's login in place of its own."""
        settings = {
            name: value
            for name, value in self._connection.settings.items()
            if not name.startswith("sasl.")
        }
        tls = "ssl" in settings.get("security.protocol", "").lower()
        settings["security.protocol"] = "sasl_ssl" if tls else "sasl_plaintext"
        callbacks = {k: v for k, v in self._connection.callbacks.items() if k != "oauth_cb"}
        if isinstance(given, Bearer):
            settings["sasl.mechanism"] = "OAUTHBEARER"
            expires_s = given.expires_s or self.wall() + TOKEN_LASTS_S
            callbacks["oauth_cb"] = lambda _: (given.token, expires_s)
        else:
            settings["sasl.mechanism"] = self._mechanism
            settings["sasl.username"], settings["sasl.password"] = given.name, given.password
        return replace(self._connection, settings=settings, callbacks=callbacks)

    async def _check_again(self, digest: bytes, entry: _Entry, peer: str) -> None:
        async with entry.checking:
            if self._clock() - entry.checked_s <= self._limits.login_s:
                return  # another request has just tried
            try:
                await self._try(entry.access.connection, peer)
            except Refusal as refusal:
                if refusal.status == 401:  # not 429 or 503, when the server is just busy
                    self._let_go(digest)
                raise
            entry.checked_s = self._clock()

    async def _try_once(self, digest: bytes, connection: ClientSettings, peer: str) -> None:
        """Tries a login. Requests that arrive together with the same login share one attempt;
        others count as refused until it is known, so that a client cannot guess many at once."""
        trying = self._trying.get(digest)
        if trying is None:
            trying = asyncio.ensure_future(self._try(connection, peer))
            self._trying[digest] = trying
            under_way = self._under_way
            under_way[peer] += 1

            def done(_: object) -> None:
                del self._trying[digest]
                under_way[peer] -= 1
                if not under_way[peer]:
                    del under_way[peer]

            trying.add_done_callback(done)
        await asyncio.shield(trying)

    async def _try(self, connection: ClientSettings, peer: str) -> None:
        try:
            await self._questions.ask(lambda: _log_in(connection))
        except LoginRefused:
            self._note_refusal(peer, self._clock())
            raise unauthorized("The cluster does not let this user in.") from None

    # ---- guessing

    def _require_few_refusals(self, peer: str, now_s: float) -> None:
        recent = self._refused.recent(peer, now_s)
        if len(recent) + self._under_way[peer] >= MOST_REFUSALS:
            raise busy("Too many logins from this address were refused.", int(REFUSALS_S))

    def _note_refusal(self, peer: str, now_s: float) -> None:
        self.refused_logins += 1
        self._refused.note(peer, now_s, most=MOST_REFUSALS)

    # ---- letting go

    def sweep(self) -> None:
        """Closes the connections of users who have sent no request for long."""
        oldest_s = self._clock() - self._limits.user_idle_s
        for digest, entry in list(self._users.items()):
            if entry.used_s < oldest_s and entry.access.in_use == 0:
                self._let_go(digest)

    def _let_go(self, digest: bytes) -> None:
        entry = self._users.pop(digest, None)
        if entry is None:
            return
        closing = asyncio.ensure_future(entry.access.close(self._limits.delivery_s))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self, grace_s: float) -> None:
        closing = [access.close(grace_s) for access in self.accesses]
        await asyncio.gather(*closing, *self._closing, return_exceptions=True)


def _log_in(connection: ClientSettings) -> None:
    """Logs in at the first broker that can be reached."""
    *others, last = addresses(connection.bootstrap)
    for address in others:
        try:
            Wire(connection, address).close()
            return
        except LoginRefused:
            raise
        except ClientError:
            continue
    Wire(connection, last).close()
