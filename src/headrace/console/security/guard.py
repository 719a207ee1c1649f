"""The checks of every request: Host, Origin, token, body limit; and the headers of every answer.

No inline script or style runs (CSP), nothing is loaded from elsewhere, no page may frame the
console, and browsers do not cache contents of messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from aiohttp import web

from headrace.console.renderer import CLUSTERS
from headrace.console.security.addresses import (
    refusal_of_embedding,
    refusal_of_host,
    refusal_of_origin,
)
from headrace.console.security.tokens import COOKIE, Tokens, is_session, new_session

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# A message is at most a megabyte by default, and a form escapes each byte with up to three.
LARGEST_BODY_BYTES = 4 << 20
# The longest form is a list of ticked letters. The limit is aiohttp's own, which gives no page when
# exceeded.
MOST_FIELDS = 1_000
LONGEST_BODY_S = 30.0  # from the first byte to the last
TOKEN_FIELD = "token"
# Forms that change nothing in the cluster.
OF_SESSIONS = frozenset({"/login", "/logout"})
CHANGES = frozenset({"POST"})
READS = frozenset({"GET", "HEAD"})

# The session of a request that came without one; it goes out with the answer.
_new: ContextVar[str | None] = ContextVar("new session", default=None)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class RequestRefused(Exception):
    """The request came from a foreign page or has the wrong form; `status` is HTTP's."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Guard:
    def __init__(
        self, names: frozenset[str], *, read_only: bool, tokens: Tokens, base: str = ""
    ) -> None:
        self.names = names  # the console's own, as `Host` has them; known once the port is
        self.cookie = COOKIE  # of the session; known once the port is
        self.read_only = read_only
        self._tokens = tokens
        self._base = base

    def path_of(self, request: web.Request) -> str:
        """Returns the path of a page, without what stands before the pages of its cluster."""
        return request.path.removeprefix(self._base)

    async def check(self, request: web.Request) -> None:
        """Runs first for every request. Raises `RequestRefused`."""
        _new.set(None)
        if refusal := refusal_of_host(request.headers.get("Host"), self.names):
            raise RequestRefused(421, refusal)
        if request.method in READS:
            if refusal := refusal_of_embedding(request.headers):
                raise RequestRefused(403, refusal)
            return
        if request.method not in CHANGES:
            raise RequestRefused(405, f"The console does not know {request.method}.")
        if refusal := refusal_of_origin(request.headers, self.names):
            raise RequestRefused(403, refusal)
        if self.read_only and self.path_of(request) not in OF_SESSIONS:
            raise RequestRefused(403, "This console is read-only (--read-only).")
        if request.content_type != "application/x-www-form-urlencoded":
            raise RequestRefused(415, "The console takes forms only.")
        await _read_body(request)
        form = await request.post()
        given, session = form.get(TOKEN_FIELD), request.cookies.get(self.cookie)
        if not (
            isinstance(given, str)
            and session is not None
            and is_session(session)
            and self._tokens.accepts(session, given)
        ):
            raise RequestRefused(
                403,
                "This form is out of date: the console was restarted since, or cookies are off. "
                "Go back, reload the page and try again. Nothing was changed.",
            )

    def session_of(self, request: web.Request) -> str:
        """Returns the browser's session, or a new one that is sent with the answer."""
        if (renewed := _new.get()) is not None:
            return renewed
        said = request.cookies.get(self.cookie)
        if said is not None and is_session(said):
            return said
        return self.renew_session()

    def renew_session(self) -> str:
        """Sends a new session with the answer; the old one is no longer valid."""
        renewed = new_session()
        _new.set(renewed)
        return renewed

    def token_for(self, request: web.Request) -> str:
        return self._tokens.token_of(self.session_of(request))

    def finish(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(HEADERS)
        to = response.headers.get("Location", "")
        if self._base and to.startswith("/") and not to.startswith(CLUSTERS):
            response.headers["Location"] = self._base + to
        response.headers["Server"] = "headrace"  # hides the versions of the libraries
        response.headers.setdefault("Cache-Control", "no-store")
        session = _new.get()
        if session is not None:
            response.set_cookie(
                self.cookie,
                session,
                httponly=True,
                samesite="Strict",
                secure=request.secure,
                path="/",
            )


async def _read_body(request: web.Request) -> None:
    """Reads the body, bounded in bytes, fields and time, before it is parsed."""
    try:
        body = await asyncio.wait_for(request.read(), LONGEST_BODY_S)
    except web.HTTPRequestEntityTooLarge:
        raise RequestRefused(413, "What was sent is larger than 4 MB.") from None
    except TimeoutError:
        raise RequestRefused(408, "The form did not arrive in time. Nothing was changed.") from None
    if body.count(b"&") >= MOST_FIELDS:
        raise RequestRefused(
            413, f"A form has at most {MOST_FIELDS:,} fields. Nothing was changed."
        )
