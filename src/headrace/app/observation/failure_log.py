"""The log lines about failed attempts, dead letters, and records that were handled before.

One line per failed attempt, with the place in the handler's own code; a stack only where a record
is given up, and only the first of its kind. An undecodable record has one line and no stack.
"""

from __future__ import annotations

import logging
import os
import sysconfig

from headrace.app.decoding import Undecodable
from headrace.app.dispatch.record_in_hand import RecordInHand
from headrace.app.observation.bounded_log import BoundedLog, Kind, Trace
from headrace.app.retries.dead_letters import OURS, from_the_handler_on, said_by
from headrace.foreign_text import escaped

MOST_LINES = 10
PERIOD_MS = 10_000
LONGEST_TEXT = 300
FAILED = Kind("more attempts failed", MOST_LINES, PERIOD_MS)
GIVEN_UP = Kind("more records were given up", MOST_LINES, PERIOD_MS)
KNOWN = Kind("more records were handled before and skipped", 1, 6 * PERIOD_MS)

_PATHS = sysconfig.get_paths()
NOT_THE_HANDLERS = (
    OURS,
    *{_PATHS[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)


class FailureLog:
    """The failure log of one subscription."""

    def __init__(self, bounded: BoundedLog, *, name: str, attempts: int) -> None:
        self._bounded = bounded
        self._name = name
        self._attempts = attempts

    def failed(
        self, record: RecordInHand, error: BaseException, *, made: int, wait_ms: int, of: int = 1
    ) -> None:
        """Another attempt follows. `of` is how many records failed together, from this one on."""
        others = f" and {of - 1} more" if of > 1 else ""
        self._bounded.say(
            FAILED,
            type(error).__name__,
            logging.WARNING,
            f"{self._name}, {record.origin_text}{others}: "
            f"attempt {made} of {self._attempts} failed: "
            f"{in_a_line(error)}, again in {wait_text(wait_ms)}",
        )

    def given_up(self, record: RecordInHand, error: BaseException, *, made: int, then: str) -> None:
        """No other attempt follows; `then` is the fate of the record."""
        attempts = f"attempt {made} of {self._attempts} failed" if made > 1 else "failed"
        trace: Trace | None = None
        if not isinstance(error, Undecodable):
            trace = type(error), error, from_the_handler_on(error)
        self._bounded.say(
            GIVEN_UP,
            type(error).__name__,
            logging.ERROR,
            f"{self._name}, {record.origin_text}: {attempts}: {in_a_line(error)}, {then}",
            trace,
        )

    def known(self, record: RecordInHand) -> None:
        self._bounded.say(
            KNOWN,
            "once=",
            logging.INFO,
            f"{self._name}, {record.origin_text}: {escaped(record.message_id)} was handled before, "
            "skipped (once=)",
        )

    def close(self) -> None:
        self._bounded.close()


def in_a_line(error: BaseException) -> str:
    """`NameError: name 'total' is not defined (billing.py:12)`."""
    text = escaped(" ".join(said_by(error).split()))
    if len(text) > LONGEST_TEXT:
        text = text[: LONGEST_TEXT - 3] + "..."
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    where = None if isinstance(error, Undecodable) else _where(error)
    return said if where is None else f"{said} ({where})"


def _where(error: BaseException) -> str | None:
    """The last line of the program's own code; the last line of a library if there is none."""
    trace = from_the_handler_on(error)
    own = last = None
    while trace is not None:
        last = trace
        if not trace.tb_frame.f_code.co_filename.startswith(NOT_THE_HANDLERS):
            own = trace
        trace = trace.tb_next
    found = own or last
    if found is None:
        return None
    return f"{os.path.basename(found.tb_frame.f_code.co_filename)}:{found.tb_lineno}"


def wait_text(wait_ms: int) -> str:
    """A wait in words for people: 200 ms, 1 s, 2.5 s, 40 s, 10 min, 3 h."""
    if wait_ms < 950:
        return f"{wait_ms} ms"
    seconds = wait_ms / 1000
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
