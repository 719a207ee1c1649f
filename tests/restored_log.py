"""The log of the test's own process after a command that set it up as its own.

A command such as `headrace outbox relay` sends the log of its process to standard error. Run inside
a test, it would take pytest's handlers away and leave one that writes into a stream which is closed
when the test goes on, while threads (a broker's, an app's) still log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.log_lines import ToStderr


@contextmanager
def log_as_before() -> Iterator[None]:
    """Inside, a command may set up the log; after it, handlers and level are those of before."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    last_resort = logging.lastResort
    try:
        yield
    finally:
        gone = [each for each in root.handlers if each not in handlers]
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.lastResort = last_resort
        for handler in gone:
            silence(handler)


def remove_command_logs() -> None:
    """Remove the handlers that a command has left."""
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, ToStderr)]:
        root.removeHandler(handler)
        root.setLevel(logging.WARNING)
        silence(handler)


def silence(handler: logging.Handler) -> None:
    """Returns when no thread is writing through it; a thread that comes later writes nothing."""
    handler.acquire()
    try:
        handler.emit = _nothing  # type: ignore[method-assign]
    finally:
        handler.release()


def _nothing(record: logging.LogRecord) -> None:
    pass
