"""The checks of every request before anything is done: Host and Origin. Pure.

On loopback the server answers under its own names only (`edge/host_names.py`). A request that a
page of another origin makes is refused unless that origin is allowed; CORS is off until then.
Programs send neither `Origin` nor `Sec-Fetch-Site`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.services.http.refusal import MISDIRECTED, Refusal

PREFLIGHT_HOLDS_S = 3600
ANY = "*"
ALLOWED_METHODS = "GET, POST, DELETE"
ALLOWED_HEADERS = "Authorization, Content-Type, Accept, Idempotency-Key, Last-Event-ID"
SHOWN_HEADERS = "Retry-After, Idempotency-Replayed"
OWN = ("same-origin", "none")


class Guard:
    def __init__(self, names: frozenset[str] | None, origins: Iterable[str] = ()) -> None:
        self.names = names  # None: any, behind TLS and a login
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def check(self, headers: Mapping[str, str]) -> None:
        host = headers.get("Host")
        if self.names is not None and (host is None or host.lower() not in self.names):
            raise Refusal(MISDIRECTED, "This host name is not allowed (--name adds one).")
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site")
        if origin is None:
            if site is not None and site not in OWN:
                raise _foreign()
        elif not self._is_own(origin, host) and not self.allows(origin):
            raise _foreign()

    def _is_own(self, origin: str, host: str | None) -> bool:
        scheme, _, name = origin.lower().partition("://")
        return scheme in ("http", "https") and host is not None and name == host.lower()

    def allows(self, origin: str) -> bool:
        return ANY in self._origins or origin.lower() in self._origins

    def cors(self, origin: str | None) -> dict[str, str]:
        """The headers that let a page of an allowed origin read the answer."""
        if origin is None or not self.allows(origin):
            return {}
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": SHOWN_HEADERS,
            "Vary": "Origin",
        }

    def preflight(self, origin: str | None) -> dict[str, str]:
        headers = self.cors(origin)
        if headers:
            headers["Access-Control-Allow-Methods"] = ALLOWED_METHODS
            headers["Access-Control-Allow-Headers"] = ALLOWED_HEADERS
            headers["Access-Control-Max-Age"] = str(PREFLIGHT_HOLDS_S)
        return headers


def _foreign() -> Refusal:
    return Refusal(
        403, "A page of another origin asks; --allow-origin lets it (CORS is off otherwise)."
    )
