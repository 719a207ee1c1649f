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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from headrace.edge.browser_guard import is_loopback_name

log = logging.getLogger("headrace.delay.admin")

DEFAULT_PORT = 9095
PORTS_TRIED = 100  # then any free one
PAGE = 100
LARGEST_PAGE = 1000
SLOWEST_ASKER_S = 10
LOOK_FOR_THE_END_S = 0.1
MOST_ASKERS = 16
# The HTTP status of a refused request (RFC 9110).
BAD_REQUEST, UNAUTHORIZED, MISDIRECTED, NOT_FOUND = 400, 401, 421, 404
NOT_ALLOWED, BUSY, FAILED = 405, 503, 500

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
JSON_TEXT = "application/json; charset=utf-8"


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
    def __init__(self, status: int, sentence: str) -> None:
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
        self._server = _bound(queries, host, port, former)
        bound_to = self._server.server_address
        self.host, self.port = str(bound_to[0]), int(bound_to[1])
        self._server.token = None if token_of is None else token_of(self.address)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(LOOK_FOR_THE_END_S,),
            name="headrace-delay-admin",
            daemon=True,
        )
        self._thread.start()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = False

    def __init__(self, address: tuple[str, int], queries: Queries) -> None:
        self.queries = queries
        self.token: str | None = None
        self.room = threading.BoundedSemaphore(MOST_ASKERS)
        super().__init__(address, _Asked)


def _bound(queries: Queries, host: str, port: int, former: int | None) -> _Server:
    """Binds to the port asked for, or to the next free one; 0 takes any."""
    tried = list(range(port, min(port + PORTS_TRIED, 65536)) if port else ())
    if former is not None and (former in tried or not port):
        tried.insert(0, former)
    for candidate in tried:
        try:
            return _Server((host, candidate), queries)
        except OSError as taken:
            if taken.errno != errno.EADDRINUSE:
                raise
    return _Server((host, 0), queries)


class _Asked(BaseHTTPRequestHandler):
    """One request; bad contents must not stop the service."""

    server: _Server
    timeout = SLOWEST_ASKER_S
    server_version = "headrace-delay"
    sys_version = ""

    def do_GET(self) -> None:
        if not self.server.room.acquire(blocking=False):
            self._answer(BUSY, JSON_TEXT, _error("Too many ask at once; ask again in a moment."))
            return
        try:
            status, kind, body = self._found()
        except _Refused as refused:
            status, kind, body = refused.status, JSON_TEXT, _error(str(refused))
        except Exception:  # the client gets an error and the log has it; the service goes on
            log.exception("a query failed: %s", self.path)
            status, kind, body = FAILED, JSON_TEXT, _error("The query failed; see the log.")
        finally:
            self.server.room.release()
        self._answer(status, kind, body)

    def _refuse_method(self) -> None:
        self._answer(NOT_ALLOWED, JSON_TEXT, _error("This window only shows: use GET."))

    do_POST = do_PUT = do_DELETE = do_PATCH = _refuse_method

    def _found(self) -> tuple[int, str, bytes]:
        if not is_loopback_name(self.headers.get("Host")):
            raise _Refused(MISDIRECTED, "Ask for 127.0.0.1 or localhost.")
        asked = urlsplit(self.path)
        queries = self.server.queries
        if asked.path.strip("/") in ("stats", "pending"):
            self._require_token()
        match [unquote(part) for part in asked.path.strip("/").split("/")]:
            case ["health"]:
                health = queries.health()
                return (200 if health.get("ok") else BUSY), JSON_TEXT, _json(health)
            case ["stats"]:
                return 200, JSON_TEXT, _json(queries.stats())
            case ["metrics"]:
                return 200, PROMETHEUS_TEXT, queries.metrics().encode()
            case ["pending"]:
                return 200, JSON_TEXT, _json(queries.pending(search_of(asked.query)))
        raise _Refused(NOT_FOUND, "There are /health, /stats, /metrics and /pending.")

    def _require_token(self) -> None:
        token = self.server.token
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token is not None and not hmac.compare_digest(given.encode(), token.encode()):
            raise _Refused(
                UNAUTHORIZED,
                "The cluster has logins, so this service shows messages only to the user of the "
                "machine who runs it. Ask as that user, or use the console.",
            )

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Queries are not logged."""


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
        raise _Refused(BAD_REQUEST, f"{text[:40]!r} is no number.")
    return int(text)


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _Refused(BAD_REQUEST, "key_base64 is no base64.") from None


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _error(sentence: str) -> bytes:
    return _json({"error": sentence})
