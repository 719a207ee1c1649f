"""The form of a process's log: one message is one line, whatever text of others it contains.

Names of clients and their resources go into messages as they were sent. The node and the services
all log in this form, so a client can neither write its own lines into a log nor control the
terminal that shows it.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any, TextIO

from headrace.foreign_text import escaped, escaped_json

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class OneLine(logging.Formatter):
    """A message is one line; a traceback after it is indented, as no log line of our own is."""

    def __init__(self) -> None:
        super().__init__(LOG_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # its name in logging
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:
        lines = super().formatException(ei).splitlines()  # type: ignore[arg-type]
        return "\n".join(f"  {escaped(line)}" for line in lines)

    def formatStack(self, stack_info: str) -> str:
        return "\n".join(f"  {escaped(line)}" for line in stack_info.splitlines())


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the stack of an error."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        return escaped_json(json.dumps(line, ensure_ascii=False))


class ToStderr(logging.StreamHandler[TextIO]):
    """Writes to the present standard error, which may differ from the first one in a program that
    runs a command with a standard error of its own."""

    def __init__(self, level: int = logging.NOTSET) -> None:
        super().__init__()
        self.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class BareLine(OneLine):
    """The message alone, for a command that keeps no log."""

    def __init__(self) -> None:
        logging.Formatter.__init__(self, "%(message)s")


def print_warnings_escaped() -> None:
    """Let a process that configures no log print warnings as one line each.

    Python's own last resort prints a message unchanged, with text of other users in it.
    """
    handler = ToStderr(level=logging.WARNING)
    handler.setFormatter(BareLine())
    logging.lastResort = handler


def log_to_stderr(
    *, level: int | str = logging.INFO, as_json: bool = False, anew: bool = False
) -> None:
    """Send the log of this process to standard error; with `anew` replace an earlier
    configuration."""
    handler = ToStderr()
    handler.setFormatter(JsonLines() if as_json else OneLine())
    logging.basicConfig(level=level, handlers=[handler], force=anew)
