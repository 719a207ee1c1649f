"""The delay service's admin endpoints: read-only JSON over HTTP for the command line, Prometheus,
people.

`/health`, `/stats`, `/metrics`, and
`/pending?topic=&partition=&id=&key=&from=&to=&values=&limit=&after=`. Nothing can be changed here:
cancelling and rescheduling are records like any other. It listens on loopback and answers only to
loopback names, so that a web page cannot read it through a name of its own (DNS rebinding). With a
token, `/pending` and `/stats` answer only to those who present it. When the port is taken the next
free one is used. Every answer is bounded; so are threads and waits.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hmac
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from headrace.edge.browser_guard import is_loopback_name
from headrace.edge.status_server import Page, PageServer, Question, metrics_page

log = logging.getLogger("headrace.delay.admin")

DEFAULT_PORT = 9095
PORTS_TRIED = 100  # then any free one
PAGE = 100
LARGEST_PAGE = 1000
MOST_ASKERS = 16
BAD_REQUEST, UNAUTHORIZED = HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED
MISDIRECTED, NOT_FOUND = HTTPStatus.MISDIRECTED_REQUEST, HTTPStatus.NOT_FOUND
NOT_ALLOWED, BUSY = HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.SERVICE_UNAVAILABLE
FAILED = HTTPStatus.INTERNAL_SERVER_ERROR
JSON_TEXT = "application/json; charset=utf-8"
ALWAYS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@dataclass(slots=True, frozen=True, order=True)
class Cursor:
    """A place in the order in which everything pending is listed: by due time, then by place."""

    due_ms: int
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.due_ms}/{self.topic}/{self.partition}/{self.offset}"

    @staticmethod
    def parse(text: str) -> Cursor:
        due, topic, partition, offset = text.split("/")
        return Cursor(int(due), topic, int(partition), int(offset))


@dataclass(slots=True)
class Search:
    """The filter of a list; None means any. `from_ms <= due < to_ms`."""

    topic: str | None = None
    partition: int | None = None
    id: str | None = None
    key: bytes | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    values: bool = False  # with values and headers
    limit: int = PAGE
    after: Cursor | None = None


class Queries(Protocol):
    """The public queries of the service. They run on this module's threads, not on the service's
    loop.

    Answers are plain JSON values; bytes that are not UTF-8 come as `NAME_base64`.
    """

    def health(self) -> Mapping[str, Any]:
        """`{"ok": bool, ...}`; not ok answers with 503."""
        ...

    def stats(self) -> Mapping[str, Any]: ...

    def pending(self, search: Search) -> Mapping[str, Any]:
        """`{"rows": [...], "next": cursor or null, "now_ms": ..., "complete": partitions}`.

        Rows are in the order of `Cursor`; `complete` counts the partitions that were looked at and
        are not being rebuilt.
        """
        ...

    def metrics(self) -> str:
        """In Prometheus' text format."""
        ...


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class AdminHttp:
    """Serves `queries` on threads of its own from the moment it is made; ends with `close`."""

    def __init__(
        self,
        queries: Queries,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        former: int | None = None,
        token_of: Callable[[str], str] | None = None,
    ):
        """`former` is the port of this instance's last run, tried before the others: the group
        keeps the address that a static member had when it first joined. `token_of` makes the token
        for an address; None: all clients may ask."""
        self._queries = queries
        self._room = threading.BoundedSemaphore(MOST_ASKERS)
        self._server = self._bound(host, port, former)
        self.host, self.port = self._server.host, self._server.port
        self._token = None if token_of is None else token_of(self.address)
        self._server.start()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def close(self) -> None:
        self._server.close()

    def _bound(self, host: str, port: int, former: int | None) -> PageServer:
        """Binds to the port asked for, or to the next free one; 0 takes any."""
        tried = list(range(port, min(port + PORTS_TRIED, 65536)) if port else ())
        if former is not None and (former in tried or not port):
            tried.insert(0, former)
        for candidate in tried:
            try:
                return self._server_at(host, candidate)
            except OSError as taken:
                if taken.errno != errno.EADDRINUSE:
                    raise
        return self._server_at(host, 0)

    def _server_at(self, host: str, port: int) -> PageServer:
        return PageServer(
            "headrace-delay",
            self._answer,
            host=host,
            port=port,
            headers=ALWAYS,
            not_allowed=_error(NOT_ALLOWED, "This address is read-only: use GET."),
        )

    def _answer(self, asked: Question) -> Page:
        """Answers one request; bad contents must not stop the service."""
        if not self._room.acquire(blocking=False):
            return _error(BUSY, "Too many requests at once; try again in a moment.")
        try:
            return self._found(asked)
        except _Refused as refused:
            return _error(refused.status, str(refused))
        except Exception:  # the client gets an error and the log has it; the service goes on
            log.exception("a query failed: %s", asked.target)
            return _error(FAILED, "The query failed; see the log.")
        finally:
            self._room.release()

    def _found(self, asked: Question) -> Page:
        if not is_loopback_name(asked.headers.get("Host")):
            raise _Refused(MISDIRECTED, "Ask for 127.0.0.1 or localhost.")
        address, queries = urlsplit(asked.target), self._queries
        path = address.path.strip("/")
        if path in ("stats", "pending"):
            self._require_token(asked)
        match [unquote(part) for part in path.split("/")]:
            case ["health"]:
                health = queries.health()
                return _shown(health, HTTPStatus.OK if health.get("ok") else BUSY)
            case ["stats"]:
                return _shown(queries.stats())
            case ["metrics"]:
                return metrics_page(queries.metrics())
            case ["pending"]:
                return _shown(queries.pending(search_of(address.query)))
        raise _Refused(NOT_FOUND, "There are /health, /stats, /metrics and /pending.")

    def _require_token(self, asked: Question) -> None:
        given = asked.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._token is None or hmac.compare_digest(given.encode(), self._token.encode()):
            return
        raise _Refused(
            UNAUTHORIZED,
            "The cluster has logins, so this service shows messages only to the user of the "
            "machine who runs it. Ask as that user, or use the console.",
        )


def search_of(query: str) -> Search:
    """The filter of a query string; an invalid one is refused with an error."""
    given = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    search = Search()
    for name, text in given.items():
        match name:
            case "topic" | "id":
                setattr(search, name, text)
            case "partition" | "limit":
                setattr(search, name, _number(text))
            case "from" | "to":
                setattr(search, f"{name}_ms", _number(text))
            case "values":
                search.values = text not in ("", "0", "false")
            case "key":
                search.key = text.encode()
            case "key_base64":
                search.key = _from_base64(text)
            case "after":
                search.after = _cursor(text)
            case _:
                raise _Refused(BAD_REQUEST, f"Unknown query parameter {name!r}.")
    search.limit = min(max(search.limit, 1), LARGEST_PAGE)
    return search


def _cursor(text: str) -> Cursor:
    try:
        return Cursor.parse(text)
    except ValueError:
        raise _Refused(BAD_REQUEST, "`after` is the `next` of an earlier answer.") from None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise _Refused(BAD_REQUEST, f"{text[:40]!r} is not a number.")
    return int(text)


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _Refused(BAD_REQUEST, "key_base64 is not base64.") from None


def _shown(value: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> Page:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Page(status, JSON_TEXT, text.encode())


def _error(status: HTTPStatus, sentence: str) -> Page:
    return _shown({"error": sentence}, status)
