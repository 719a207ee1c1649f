"""Under which host names a server answers, and which web pages may ask it. Pure.

A page can make a name of its own lead to 127.0.0.1 (DNS rebinding) and then read answers from
there; the browser still sends that name in `Host`, so a foreign name is refused. Browsers say with
`Origin` and `Sec-Fetch-Site` which page asks; programs send neither. Each server says in its own
words, and with its own status, what is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.edge.host_names import LOOPBACK_NAMES

ANY_ORIGIN = "*"
# Of `Sec-Fetch-Site`: the page is ours, or the person typed the address.
OWN_SITE = frozenset({"same-origin", "none"})


def is_answered(said: str | None, names: frozenset[str] | None) -> bool:
    """Whether `Host` is one of our names; None stands for any."""
    return names is None or (said is not None and said.lower() in names)


def is_loopback_name(said: str | None) -> bool:
    """Whether the `Host` of a request, at any port, is a name of this machine for itself."""
    name = (said or "").lower()
    if ":" in name.rpartition("]")[2]:
        name = name.rpartition(":")[0]
    return name in LOOPBACK_NAMES


def is_page_of(origin: str, names: Iterable[str]) -> bool:
    """Whether a page of this origin came from a server with one of these names."""
    scheme, _, name = origin.lower().partition("://")
    return scheme in ("http", "https") and name in names


def is_of_foreign_site(headers: Mapping[str, str]) -> bool:
    """Whether the browser says that a page of another site asks."""
    return headers.get("Sec-Fetch-Site", "none") not in OWN_SITE


class AllowedOrigins:
    """Origins whose pages may ask and read the answers (CORS). Empty: none may."""

    def __init__(
        self,
        origins: Iterable[str],
        *,
        methods: str,
        request_headers: str,
        shown_headers: str | None = None,
        preflight_s: int,
    ) -> None:
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._shown = {} if shown_headers is None else _shows(shown_headers)
        self._preflight = {
            "Access-Control-Allow-Methods": methods,
            "Access-Control-Allow-Headers": request_headers,
            "Access-Control-Max-Age": str(preflight_s),
        }

    def __bool__(self) -> bool:
        return bool(self._origins)

    def allow(self, origin: str) -> bool:
        return ANY_ORIGIN in self._origins or origin.lower() in self._origins

    def headers_of(self, origin: str | None) -> dict[str, str]:
        """Returns the headers that let a page of an allowed origin read the answer."""
        if origin is None or not self.allow(origin):
            return {}
        return {"Access-Control-Allow-Origin": origin, **self._shown, "Vary": "Origin"}

    def preflight(self, origin: str | None) -> dict[str, str]:
        """Returns the headers of an answer to OPTIONS."""
        headers = self.headers_of(origin)
        return headers | self._preflight if headers else headers


def _shows(names: str) -> dict[str, str]:
    return {"Access-Control-Expose-Headers": names}
