"""`headrace start`: a server in the foreground until SIGTERM or Ctrl-C.

What clients call themselves and their things goes into the log as they sent it, so the log's own
form keeps a message on its line: nobody writes lines of his own into it.
"""

from __future__ import annotations

import gc
import logging
import signal
import sys
from collections.abc import Callable

from headrace.server.server import GC_THRESHOLDS, Server
from headrace.server.settings import Settings

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
# Line ends and other characters that steer a terminal, also those of Unicode.
_ESCAPED = {
    code: code_point.encode("unicode_escape").decode()
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E)
    for code_point in [chr(code)]
}


class OneLine(logging.Formatter):
    """A message is one line; a traceback behind it is indented, as no line of the log's own is."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name in logging
        record.message = record.message.translate(_ESCAPED)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802
        lines = super().formatException(ei).splitlines()  # type: ignore[arg-type]
        return "\n".join(f"  {line}" for line in lines)


def run(settings: Settings, on_ready: Callable[[Server], None]) -> None:
    """Raises CannotStart with one sentence; returns after a clean stop."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(LOG_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # Before it loads: of a million committed offsets the collector would look at each many times.
    gc.set_threshold(*GC_THRESHOLDS)
    server = Server(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.open()
    server.start_services()
    on_ready(server)
    server.serve()
