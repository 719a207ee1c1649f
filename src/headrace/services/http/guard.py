"""The checks of every request before anything is done: Host and Origin. Pure.

On loopback the server answers under its own names only. A request that a page of another origin
makes is refused unless that origin is allowed; CORS is off until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.edge.browser_guard import (
    AllowedOrigins,
    is_answered,
    is_of_foreign_site,
    is_page_of,
)
from headrace.services.http.refusal import MISDIRECTED, Refusal

PREFLIGHT_HOLDS_S = 3600
ALLOWED_METHODS = "GET, POST, DELETE"
ALLOWED_HEADERS = "Authorization, Content-Type, Accept, Idempotency-Key, Last-Event-ID"
SHOWN_HEADERS = "Retry-After, Idempotency-Replayed"


class Guard:
    def __init__(self, names: frozenset[str] | None, origins: Iterable[str] = ()) -> None:
        self.names = names  # None: any, behind TLS and a login
        self._origins = AllowedOrigins(
            origins,
            methods=ALLOWED_METHODS,
            request_headers=ALLOWED_HEADERS,
            shown_headers=SHOWN_HEADERS,
            preflight_s=PREFLIGHT_HOLDS_S,
        )

    def check(self, headers: Mapping[str, str]) -> None:
        host = headers.get("Host")
        if not is_answered(host, self.names):
            raise Refusal(MISDIRECTED, "This host name is not allowed (--name adds one).")
        origin = headers.get("Origin")
        if origin is None:
            if is_of_foreign_site(headers):
                raise _foreign()
        elif not self._is_own(origin, host) and not self._origins.allow(origin):
            raise _foreign()

    def _is_own(self, origin: str, host: str | None) -> bool:
        """Whether the page is of the name that it asks. `names` would not do: beyond loopback they
        may be any."""
        return host is not None and is_page_of(origin, (host.lower(),))

    def cors(self, origin: str | None) -> dict[str, str]:
        """Returns the headers that let a page of an allowed origin read the answer."""
        return self._origins.headers_of(origin)

    def preflight(self, origin: str | None) -> dict[str, str]:
        return self._origins.preflight(origin)


def _foreign() -> Refusal:
    return Refusal(
        403, "Cross-origin request refused. Start with --allow-origin to allow this origin."
    )
