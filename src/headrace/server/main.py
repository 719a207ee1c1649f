"""`headrace start`: a server in the foreground until SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable

from headrace.server.server import Server
from headrace.server.settings import Settings

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def run(settings: Settings, on_ready: Callable[[Server], None]) -> None:
    """Raises CannotStart with one sentence; returns after a clean stop."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=LOG_FORMAT)
    server = Server(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.open()
    server.start_services()
    on_ready(server)
    server.serve()
