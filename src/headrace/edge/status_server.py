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
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


class StatusPages:
    """Serves `pages` by their paths from its creation until `close`.

    Raises OSError if the address is taken. With port 0 the system chooses one, which `port`
    returns.
    """

    def __init__(
        self, who: str, pages: Mapping[str, Callable[[], Page]], *, host: str, port: int
    ) -> None:
        known = ", ".join(pages)
        unknown = {"error": f"there are {known}"}
        nothing_here = Page(HTTPStatus.NOT_FOUND, JSON_TEXT, json.dumps(unknown).encode())

        class Asked(BaseHTTPRequestHandler):
            timeout = SLOWEST_ASKER_S
            server_version = who
            sys_version = ""

            def do_GET(self) -> None:
                page = pages.get(self.path.partition("?")[0], lambda: nothing_here)()
                self.send_response(page.status)
                self.send_header("Content-Type", page.kind)
                self.send_header("Content-Length", str(len(page.body)))
                self.end_headers()
                self.wfile.write(page.body)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing: requests for pages are not worth a line."""

        self._server = _Threads((host, port), Asked)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(LOOK_FOR_THE_END_S,), name=who, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Threads(ThreadingHTTPServer):
    """A thread for each client. A client that breaks off is not an error."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], asked: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, asked)

    def handle_error(self, request: Any, client_address: Any) -> None:
        problem = sys.exception()
        if not isinstance(problem, OSError):
            log.error("a look by %s failed", client_address[0], exc_info=problem)
