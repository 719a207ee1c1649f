"""`--metrics HOST:PORT`: `/metrics` over HTTP, from a thread of its own.

A slow scraper then never costs the loop more than the interpreter's attention. Loaded only when it
is asked for: Python's HTTP server takes as long to load as the rest of this package.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headrace.server.metrics import Family, render

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SLOWEST_SCRAPER_SECONDS = 10


class Threads(ThreadingHTTPServer):
    """A thread for each scraper. One that breaks off is nobody's trouble and not worth a line."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        problem = sys.exception()
        if not isinstance(problem, OSError):
            log.error("a scrape by %s failed", client_address[0], exc_info=problem)


class MetricsEndpoint:
    """Serves /metrics on a thread; ends with `close`."""

    def __init__(self, host: str, port: int, families: Callable[[], Iterable[Family]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = SLOWEST_SCRAPER_SECONDS

            def do_GET(self) -> None:
                if self.path.split("?")[0] != "/metrics":
                    self.send_error(404, "Ask for /metrics")
                    return
                body = render(families()).encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """A scrape is not worth a line."""

        self._server = Threads((host, port), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="headrace-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
