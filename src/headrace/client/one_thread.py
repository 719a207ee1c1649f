"""A guard for objects of one thread: a call from a second thread raises instead of hanging.

librdkafka's consumer hangs or mixes up records when two threads use it; `consumer_group_metadata`
while another thread polls is the best known case. The same thread may enter again (callbacks do),
but not to close: the call that is still running would continue in a closed consumer.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType

from headrace.client.errors import Misuse

CLOSED = "This consumer is closed; make a new one."

# How long closing waits for a call on another thread; a poll ends within 0.2 s once it is stopped.
CLOSING_PATIENCE_S = 5.0

_TWO_THREADS = (
    "Two threads use one consumer at once: give each thread its own consumer, "
    "and call only stop() from outside."
)


class OneThread:
    def __init__(self) -> None:
        self._in_use = threading.RLock()
        self._depth = 0  # how often the thread that is inside has entered
        self.refusal: str | None = None  # why no call may enter any more

    def require_open(self) -> None:
        if self.refusal is not None:
            raise Misuse(self.refusal)

    @property
    def is_inside(self) -> bool:
        """Whether a call is in progress: on this thread, unless the object is misused."""
        return self._depth > 0

    def __enter__(self) -> None:
        self.require_open()
        if not self._in_use.acquire(blocking=False):
            raise Misuse(_TWO_THREADS)
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        self._in_use.release()

    @contextlib.contextmanager
    def for_the_last_time(self) -> Iterator[None]:
        """Let this call be the last one; waits a little for a call that another thread is in."""
        if not self._in_use.acquire(timeout=CLOSING_PATIENCE_S):
            raise Misuse(_TWO_THREADS)
        self._depth += 1
        try:
            yield
        finally:
            self.refusal = CLOSED
            self._depth -= 1
            self._in_use.release()

    def require_outside(self) -> None:
        """Raise if this very thread is inside a call."""
        if not self._in_use.acquire(blocking=False):
            return
        try:
            if self._depth:
                raise Misuse(
                    "close() was called inside a call of the same consumer, by a callback or a "
                    "signal handler: call stop() there, and close when the loop has ended."
                )
        finally:
            self._in_use.release()

    def abandon(self, why: str) -> None:
        """For a child process: the thread that was inside does not exist here."""
        self._in_use = threading.RLock()
        self.refusal = why
