"""The dead letter of a record: the whole record, with the error, its place and the attempts.

The record is in `<topic>.<group>.dead` with its own key, value and headers; `headrace-dead-`
headers describe the failure. A stack has at most 4 KiB: the end of it, where the error was raised.
"""

from __future__ import annotations

import os
import traceback
from types import TracebackType

from headrace.app import headers as names
from headrace.client.records import HeaderList

OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
LONGEST_STACK = 4096
LONGEST_MESSAGE = 1024


def why_headers(
    error: BaseException,
    *,
    attempts: int,
    first_at_ms: int,
    last_at_ms: int,
    origin: tuple[str, int, int],
    group: str,
) -> HeaderList:
    kind = type(error)
    return [
        (names.DEAD_ERROR, f"{kind.__module__}.{kind.__qualname__}".encode()),
        (names.DEAD_MESSAGE, cut_end(said_by(error), LONGEST_MESSAGE)),
        (names.DEAD_STACK, cut_start(_stack(error), LONGEST_STACK)),
        (names.DEAD_ATTEMPTS, b"%d" % attempts),
        (names.DEAD_FIRST_AT, b"%d" % first_at_ms),
        (names.DEAD_LAST_AT, b"%d" % last_at_ms),
        (names.DEAD_TOPIC, origin[0].encode()),
        (names.DEAD_PARTITION, b"%d" % origin[1]),
        (names.DEAD_OFFSET, b"%d" % origin[2]),
        (names.DEAD_GROUP, group.encode("utf-8", "surrogatepass")),
    ]


def said_by(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's exception whose __str__ fails
        return f"(its text cannot be had: {type(error).__name__}.__str__ fails)"


def _stack(error: BaseException) -> str:
    trace = from_the_handler_on(error)
    try:
        return "".join(traceback.format_exception(type(error), error, trace))
    except Exception:  # noqa: BLE001 - as above
        return "".join(traceback.format_tb(trace))


def from_the_handler_on(error: BaseException) -> TracebackType | None:
    """The traceback without the calls of the SDK that lead to the handler."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(OURS):
        trace = trace.tb_next
    return trace or error.__traceback__


def cut_end(text: str, most: int) -> bytes:
    """The first `most` bytes, without a cut character."""
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore").encode()


def cut_start(text: str, most: int) -> bytes:
    """The last `most` bytes, without a cut character."""
    raw = text.encode("utf-8", "replace")
    return raw[max(0, len(raw) - most) :].decode("utf-8", "ignore").encode()
