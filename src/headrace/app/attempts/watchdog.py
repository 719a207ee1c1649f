"""Reports a handler that blocks the loop: a coroutine that makes a slow call without awaiting it.

Meanwhile no other handler on the loop can run. The log names the handler and its present line;
nothing is interrupted. A loop that is merely late, on a busy machine or with many quick handlers,
does not count as blocked: the same step of the loop must be seen over the whole time, and time in
which this watchdog could not run does not count. The check costs the polling thread a comparison
per turn and the loop a call per second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from asyncio import events
from collections.abc import Callable
from types import FrameType

log = logging.getLogger("headrace.app")

BEAT_S = 0.5
BLOCKED_S = 2.0
AGAIN_S = 30.0
# The time between two checks counts for at most this: in a longer gap this process stood still too.
LONGEST_GAP_S = 0.25

_STEP = events.Handle._run.__code__  # every callback and every step of a task runs in it
_NOT_HANDLERS = (
    os.path.dirname(asyncio.__file__) + os.sep,
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    os.path.join(os.path.dirname(os.__file__), "contextlib.py"),
)


class Watchdog:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._loop = loop
        self._monotonic = monotonic
        self._thread: int | None = None
        self._beat_at = self._looked_at = 0.0
        self._step: FrameType | None = None  # of the loop, at the last check
        self._in_step_s = 0.0
        self._said_at = float("-inf")

    def begin(self) -> None:
        """Called on the loop's thread, before it runs."""
        self._thread = threading.get_ident()
        self._beat_at = self._monotonic()
        self._loop.call_soon(self._beat)

    def _beat(self) -> None:
        self._beat_at = self._monotonic()
        self._loop.call_later(BEAT_S, self._beat)

    def look(self) -> None:
        """Check; called often, on another thread."""
        if self._thread is None:
            return
        now = self._monotonic()
        gap, self._looked_at = min(now - self._looked_at, LONGEST_GAP_S), now
        if now - self._beat_at < BEAT_S * 2:
            self._step = None
            return
        frame = sys._current_frames().get(self._thread)
        step, depth = _step_of(frame)
        if step is None or step is not self._step:
            self._step, self._in_step_s = step, 0.0
            return
        self._in_step_s += gap
        if self._in_step_s >= BLOCKED_S and now - self._said_at >= AGAIN_S:
            self._said_at = now
            assert frame is not None
            self._say(traceback.extract_stack(frame), depth)

    def _say(self, stack: traceback.StackSummary, depth: int) -> None:
        inside = stack[-depth:] if depth else stack
        handlers = [at for at in inside if not at.filename.startswith(_NOT_HANDLERS)]
        handler, at = (handlers or inside)[0], stack[-1]
        log.warning(
            "a handler has blocked the loop for %.1f seconds: %s, in %s at %s:%s; all others wait. "
            "Await what is slow, or make the handler a plain function.\n%s",
            self._in_step_s,
            handler.name,
            at.name,
            at.filename,
            at.lineno,
            "".join(traceback.format_list(stack[-6:])),
        )


def _step_of(frame: FrameType | None) -> tuple[FrameType | None, int]:
    """The step of the loop to which a frame belongs, and its depth; None if the loop waits."""
    depth = 0
    while frame is not None and frame.f_code is not _STEP:
        frame = frame.f_back
        depth += 1
    return frame, depth
