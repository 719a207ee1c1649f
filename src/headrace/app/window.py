"""An app's window: `/health`, `/ready` and `/metrics` over HTTP, for orchestrators and Prometheus.

Healthy: the process works, and its polling thread polls. Ready: it is in its group and may be
given work. Only shows, never changes anything. Listens where it is told to, loopback by default.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from headrace.app.metrics import registry_of, rendered

if TYPE_CHECKING:
    from headrace.app.app import App

SLOWEST_ASKER_S = 10
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
JSON_TEXT = "application/json"


class Window:
    """Open from the moment it is made until `close`."""

    def __init__(self, app: App, *, host: str = "127.0.0.1", port: int = 0) -> None:
        registry = registry_of(app)
        one_at_a_time = threading.Lock()  # a scrape may ask the cluster

        class Asked(BaseHTTPRequestHandler):
            timeout = SLOWEST_ASKER_S
            server_version = "headrace-app"
            sys_version = ""

            def do_GET(self) -> None:
                match self.path.partition("?")[0]:
                    case "/health":
                        self._say_whether(healthy(app))
                    case "/ready":
                        self._say_whether(ready(app))
                    case "/metrics":
                        with one_at_a_time:
                            body = rendered(registry)
                        self._answer(200, PROMETHEUS_TEXT, body)
                    case _:
                        said = b'{"error": "there are /health, /ready and /metrics"}'
                        self._answer(404, JSON_TEXT, said)

            def _say_whether(self, problem: str | None) -> None:
                said = json.dumps({"ok": problem is None, "problem": problem}).encode()
                self._answer(200 if problem is None else 503, JSON_TEXT, said)

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """A look is not worth a line."""

        self._server = ThreadingHTTPServer((host, port), Asked)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="headrace-window", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def healthy(app: App) -> str | None:
    """None, or what is wrong."""
    worker = app.worker
    if worker is None:
        return "the app is not running"
    if worker.failure is not None:
        return f"the app has failed: {worker.failure}"
    return None


def ready(app: App) -> str | None:
    """None, or what it waits for."""
    problem = healthy(app)
    if problem is not None:
        return problem
    worker = app.worker
    if worker is None or not worker.started.is_set():
        return "the app has not joined its group yet"
    return None
