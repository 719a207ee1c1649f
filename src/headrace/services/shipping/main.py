"""A shipper as a process: until SIGINT or SIGTERM, with numbers for Prometheus beside it.

The first signal ends it in good order: what was read is written, positions are kept. A second one
ends it at once, which loses nothing either.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

SLOWEST_ASKER_S = 10
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
Address = tuple[str, int]


class Stops(Protocol):
    def stop(self) -> None: ...


@contextmanager
def stopped_by_signals(what: Stops) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        what.stop()

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def numbers_at(
    address: Address | None, metrics: Callable[[], str], note: Callable[[str], None]
) -> Iterator[None]:
    """`/metrics` and `/health` at an address; raises OSError if it is taken."""
    if address is None:
        yield
        return

    class Asked(BaseHTTPRequestHandler):
        timeout = SLOWEST_ASKER_S
        server_version = "headrace-ship"
        sys_version = ""

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    self._answer(200, PROMETHEUS_TEXT, metrics().encode())
                case "/health":
                    self._answer(200, "application/json", json.dumps({"ok": True}).encode())
                case _:
                    self._answer(404, "text/plain", b"there are /metrics and /health\n")

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """A look is not worth a line."""

    server = ThreadingHTTPServer(address, Asked)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="ship-metrics", daemon=True).start()
    note(f"Numbers at http://{address[0]}:{server.server_address[1]}/metrics.")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
