"""One line per request: user, request, status. No bodies, no query strings, no secrets."""

from __future__ import annotations

import logging

from headrace.foreign_text import escaped

log = logging.getLogger("headrace.http.access")
LONGEST_PATH = 200


def note(peer: str, user: str, method: str, path: str, status: int, seconds: float) -> None:
    """Logs one request. `path` ends before the query string, which may contain keys of records."""
    log.info(
        "%s %s %s %s %d %.1f ms",
        peer,
        escaped(user) or "-",
        escaped(method[:16]),
        escaped(path[:LONGEST_PATH]),
        status,
        seconds * 1000,
    )
