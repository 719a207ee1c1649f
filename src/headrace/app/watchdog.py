"""Notices a handler that blocks the loop: a coroutine that calls something slow without awaiting
it.

While it does, no other handler on the loop gets on. The log names the function and the line;
nothing is interrupted. Looking costs the polling thread a comparison per turn and the loop a call
per second.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
import sys
import threading
import time
import traceback

log = logging.getLogger("headrace.app")

BEAT_S = 0.5
BLOCKED_S = 2.0
AGAIN_S = 30.0


class Watchdog:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread: int | None = None
        self._beat_at = 0.0
        self._said_at = 0.0

    def begin(self) -> None:
        """On the loop's thread, before it runs."""
        self._thread = threading.get_ident()
        self._beat_at = time.monotonic()
        self._loop.call_soon(self._beat)

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        self._loop.call_later(BEAT_S, self._beat)

    def look(self) -> None:
        if self._thread is None:
            return
        now = time.monotonic()
        silent_s = now - self._beat_at
        if silent_s < BLOCKED_S or now - self._said_at < AGAIN_S:
            return
        frame = sys._current_frames().get(self._thread)
        if frame is None or frame.f_code.co_filename == selectors.__file__:
            return  # it waits for events: the machine is slow, not a handler
        self._said_at = now
        where = traceback.extract_stack(frame)
        log.warning(
            "a handler has blocked the loop for %.1f seconds, in %s at %s:%s; all others wait. "
            "Await what is slow, or make the handler a plain function.\n%s",
            silent_s,
            where[-1].name,
            where[-1].filename,
            where[-1].lineno,
            "".join(traceback.format_list(where[-6:])),
        )
