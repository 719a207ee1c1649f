"""A process's own small pages over HTTP, such as `/metrics` and `/health`, from their own threads.

They change nothing. A client that is slow or breaks off costs its own thread at most, and no line
in the log. Import it only where it is needed: Python's HTTP server takes long to load.
"""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple

log = logging.getLogger(__name__)

SLOWEST_ASKER_S = 10
LOOK_FOR_THE_END_S = 0.1
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
JSON_TEXT = "application/json"


class Page(NamedTuple):
    status: HTTPStatus
    kind: str
    body: bytes


def metrics_page(text: str) -> Page:
    return Page(HTTPStatus.OK, PROMETHEUS_TEXT, text.encode())


def verdict_page(ok: bool, **more: Any) -> Page:
    """A page for orchestrators: 200 if all is well, else 503."""
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Page(status, JSON_TEXT, json.dumps({"ok": ok, **more}).encode())


class Question(NamedTuple):
    """A GET."""

    target: str  # path and query, as they came
    headers: Message  # found in any case


class PageServer:
    """Answers questions on a thread per connection, from `start` until `close`.

    Raises OSError if the address is taken. With port 0 the system chooses one, which `port`
    returns. `headers` go with each page; `not_allowed` answers other methods than GET.
    """

    def __init__(
        self,
        who: str,
        answer: Callable[[Question], Page],
        *,
        host: str,
        port: int,
        headers: Mapping[str, str] = MappingProxyType({}),
        not_allowed: Page | None = None,
    ) -> None:
        class Asked(BaseHTTPRequestHandler):
            timeout = SLOWEST_ASKER_S
            server_version = who
            sys_version = ""

            def do_GET(self) -> None:
                self._send(answer(Question(self.path, self.headers)))

            def _send(self, page: Page) -> None:
                self.send_response(page.status)
                self.send_header("Content-Type", page.kind)
                self.send_header("Content-Length", str(len(page.body)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(page.body)

            if not_allowed is not None:

                def _refuse(self) -> None:
                    self._send(not_allowed)

                do_POST = do_PUT = do_DELETE = do_PATCH = _refuse

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing: requests for pages are not worth a line."""

        self._server = _Threads((host, port), Asked)
        self.host, self.port = str(self._server.server_address[0]), self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(LOOK_FOR_THE_END_S,), name=who, daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class StatusPages(PageServer):
    """Serves `pages` by their paths from its creation."""

    def __init__(
        self, who: str, pages: Mapping[str, Callable[[], Page]], *, host: str, port: int
    ) -> None:
        unknown = {"error": f"there are {', '.join(pages)}"}
        nothing_here = Page(HTTPStatus.NOT_FOUND, JSON_TEXT, json.dumps(unknown).encode())

        def answer(asked: Question) -> Page:
            return pages.get(asked.target.partition("?")[0], lambda: nothing_here)()

        super().__init__(who, answer, host=host, port=port)
        self.start()


class _Threads(ThreadingHTTPServer):
    """A thread for each client. A client that breaks off is not an error."""

    daemon_threads = True
    allow_reuse_port = False

    def __init__(self, address: tuple[str, int], asked: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, asked)

    def handle_error(self, request: Any, client_address: Any) -> None:
        problem = sys.exception()
        if not isinstance(problem, OSError):
            log.error("a look by %s failed", client_address[0], exc_info=problem)
