"""A relay as a process: `headrace outbox relay`. Runs until SIGTERM or SIGINT.

The first signal ends it in good order: transactions under way are ended, leases are given back. A
second one ends it at once, which loses nothing either.
"""

from __future__ import annotations

import gc
import json
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from headrace.client.connection import Connection
from headrace.services.outbox.relay import Relay, Settings

log = logging.getLogger("headrace.outbox")

SLOWEST_ASKER_S = 10
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def serve(
    engine: Engine, at: Connection, settings: Settings, metrics: tuple[str, int] | None = None
) -> Relay:
    """Raises OSError if the address of the metrics is taken."""
    relay = Relay(engine, at, settings)
    with _stopped_by_signals(relay):
        _collect_less()
        server = None if metrics is None else _served(relay, metrics)
        try:
            relay.run()
        finally:
            if server is not None:
                server.shutdown()
                server.server_close()
    return relay


def _collect_less() -> None:
    """A batch makes 20,000 objects in a moment, none of them in a cycle: to look for cycles after
    every 700 took a third of the time per row."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@contextmanager
def _stopped_by_signals(relay: Relay) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        relay.stop()

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _served(relay: Relay, address: tuple[str, int]) -> ThreadingHTTPServer:
    """`/metrics` for Prometheus, `/health` for orchestrators."""

    class Asked(BaseHTTPRequestHandler):
        timeout = SLOWEST_ASKER_S
        server_version = "headrace-outbox"
        sys_version = ""

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    try:
                        self._answer(200, PROMETHEUS_TEXT, relay.metrics().encode())
                    except (SQLAlchemyError, OSError):
                        self._answer(503, "text/plain", b"the database does not answer\n")
                case "/health":
                    wrong = [each.halted for each in relay.workers.values() if each.halted]
                    said = json.dumps({"ok": not wrong, "problems": wrong}).encode()
                    self._answer(503 if wrong else 200, "application/json", said)
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
    threading.Thread(target=server.serve_forever, name="outbox-metrics", daemon=True).start()
    log.info("numbers at http://%s:%d/metrics", address[0], server.server_address[1])
    return server
