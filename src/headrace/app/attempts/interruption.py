"""A time limit for plain functions: an exception is raised inside the thread that is late.

Python can raise an exception in another thread between two of its steps; a call that waits in C,
such as a socket without a timeout, is interrupted only when it returns. Until then the attempt
counts as running, so that no second one begins beside it. The exception never leaves `within`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from headrace.app.retry import AttemptTimedOut

T = TypeVar("T")


class Interruption:
    """Interrupts one thread, which makes the object; another thread calls `look`."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._deadline: float | None = None
        self._raised = False

    def within(self, seconds: float, call: Callable[[], T], late: Callable[[], Exception]) -> T:
        """Call it; raises the exception made by `late` if it took longer."""
        try:
            with self._lock:
                self._raised = False
                self._deadline = monotonic() + seconds
            try:
                return call()
            finally:
                with self._lock:
                    self._deadline = None
                if self._raised:  # it may be raised and not delivered yet: wait for it here
                    for _ in range(1000):
                        pass
        except AttemptTimedOut:
            raise late() from None

    def look(self, now: float) -> None:
        with self._lock:
            if self._deadline is not None and now > self._deadline and not self._raised:
                self._raised = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(AttemptTimedOut)
                )
