"""Reads Prometheus endpoints beside each other, all of them within one time.

An endpoint that answers slowly, without end, or not at all costs the others nothing: each is read
on a thread of its own, and what is not there in time counts as failed. An endpoint whose last
reading has not ended is not read a second time, so there are no more threads than endpoints.
"""

from __future__ import annotations

import base64
import http.client
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

WITHIN_S = 5.0
MOST_BYTES = 4 * 1024 * 1024
PIECE = 64 * 1024


class ScrapeFailed(Exception):
    """Why an endpoint gave nothing, without passwords."""


class Scraper:
    """Scrapes endpoints. `fetch` returns the text of one endpoint; it may raise, and it may
    block."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        within_s: float = WITHIN_S,
        fetch: Callable[[str], str] | None = None,
    ) -> None:
        self.urls, self.within_s = urls, within_s
        self._fetch = fetch or (lambda url: fetched(url, within_s))
        self._readings: dict[str, Reading] = {}

    @property
    def is_reading(self) -> bool:
        return any(not one.is_over for one in self._readings.values())

    def all(self) -> Iterator[tuple[str, str | ScrapeFailed]]:
        """Reads each endpoint once. Returns, in their order, the text or why there is none."""
        deadline_s = time.monotonic() + self.within_s
        new = {url for url in self.urls if self._begin(url)}
        for url in self.urls:
            if url not in new:
                yield url, ScrapeFailed("it still has not answered what it was asked before")
            elif self._readings[url].wait(deadline_s - time.monotonic()):
                yield url, self._readings[url].answer
            else:
                yield url, ScrapeFailed(f"it did not answer within {self.within_s:g} s")

    def _begin(self, url: str) -> bool:
        last = self._readings.get(url)
        if last is not None and not last.is_over:
            return False
        self._readings[url] = Reading(url, self._fetch)
        return True


class Reading:
    """One endpoint being read."""

    def __init__(self, url: str, fetch: Callable[[str], str]) -> None:
        self.answer: str | ScrapeFailed = ScrapeFailed("it was not read")
        self._url, self._fetch = url, fetch
        self._done = threading.Event()
        threading.Thread(target=self._read, name="ship-scrape", daemon=True).start()

    @property
    def is_over(self) -> bool:
        return self._done.is_set()

    def wait(self, timeout_s: float) -> bool:
        return self._done.wait(max(0.0, timeout_s))

    def _read(self) -> None:
        try:
            self.answer = self._fetch(self._url)
        except (OSError, ValueError, http.client.HTTPException, ScrapeFailed) as failure:
            self.answer = ScrapeFailed(str(failure) or type(failure).__name__)
        finally:
            self._done.set()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def without_secrets(url: str) -> str:
    """The same URL without user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def fetched(url: str, within_s: float = WITHIN_S) -> str:
    """The text of an endpoint, bounded in time and bytes; redirects are not followed."""
    deadline_s = time.monotonic() + within_s
    opener = urllib.request.build_opener(_NoRedirect)
    asked = urllib.request.Request(without_secrets(url), headers=_login(url))
    with opener.open(asked, timeout=within_s) as answer:
        packed = answer.headers.get("Content-Encoding", "identity")
        if packed != "identity":
            raise ScrapeFailed(f"it answers packed ({packed}), which was not asked for")
        return _body(answer, deadline_s)


def _login(url: str) -> dict[str, str]:
    login, at, _ = urlsplit(url).netloc.rpartition("@")
    if not at:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(unquote(login).encode()).decode()}


def _body(answer: http.client.HTTPResponse, deadline_s: float) -> str:
    """Reads a body. A socket timeout starts again with each byte, so the clock is checked in
    between."""
    pieces, size = [], 0
    while piece := answer.read1(PIECE):
        size += len(piece)
        if size > MOST_BYTES:
            raise ScrapeFailed(f"it answers more than {MOST_BYTES:,} bytes")
        if time.monotonic() > deadline_s:
            raise ScrapeFailed("its answer did not end in time")
        pieces.append(piece)
    return b"".join(pieces).decode(errors="replace")
