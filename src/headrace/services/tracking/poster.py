"""Events to a collector, as programs send them: a few in one request, again when it is busy.

429 and 503 are tried again after the time that the answer names, a few times; every other refusal
is an error with the collector's own words.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

AGAIN = (429, 503)
TRIES = 10
LONGEST_WAIT_S = 30.0
ANSWER_WITHIN_S = 30.0


class NotTaken(Exception):
    """A collector did not take events; the text says why."""


class Poster:
    """One connection to a collector at `url`."""

    def __init__(self, url: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        asked = urlsplit(url)
        if asked.scheme not in ("http", "https") or not asked.hostname:
            raise NotTaken(
                f"{url} is not the address of a collector, such as http://127.0.0.1:8090."
            )
        kind = HTTPSConnection if asked.scheme == "https" else HTTPConnection
        self._url = url
        self._path = asked.path if asked.path.strip("/") else "/track"
        self._connection = kind(asked.hostname, asked.port, timeout=ANSWER_WITHIN_S)
        self._sleep = sleep

    def post(self, events: list[dict[str, Any]]) -> int:
        """Returns how many were accepted: all of them, or raises NotTaken."""
        body = json.dumps(events).encode()
        for _ in range(TRIES):
            status, wait_s, said = self._ask(body)
            if status == 202:
                return len(events)
            if status not in AGAIN:
                raise NotTaken(f"The collector answered {status}: {said[:500]}")
            self._sleep(min(wait_s, LONGEST_WAIT_S))
        raise NotTaken(f"The collector was busy {TRIES} times: {said[:500]}")

    def _ask(self, body: bytes) -> tuple[int, float, str]:
        try:
            headers = {"Content-Type": "application/json"}
            self._connection.request("POST", self._path, body, headers)
            response = self._connection.getresponse()
            said = response.read(65_536).decode("utf-8", "replace")
        except (OSError, HTTPException) as failure:
            raise NotTaken(f"No collector answers at {self._url}: {failure}.") from failure
        wait = response.headers.get("Retry-After", "1")
        return response.status, float(wait) if wait.isdecimal() else 1.0, said

    def close(self) -> None:
        self._connection.close()


def together(events: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of at most `size`."""
    iterator = iter(events)
    while some := list(islice(iterator, size)):
        yield some
