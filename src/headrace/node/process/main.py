"""`headrace start`: a server in the foreground until SIGTERM or Ctrl-C."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable

from headrace.log_lines import log_to_stderr
from headrace.node.process.garbage import THRESHOLDS
from headrace.node.process.server import Server
from headrace.node.process.settings.settings import Settings


def run(settings: Settings, on_ready: Callable[[Server], None]) -> None:
    """Raises CannotStart with one sentence; returns after a clean stop."""
    log_to_stderr()
    # Set before the node loads: otherwise the collector would visit a million committed offsets
    # many times.
    gc.set_threshold(*THRESHOLDS)
    server = Server(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.open()
    if not server.is_stopping:
        server.start_services()
        on_ready(server)
    server.serve()
