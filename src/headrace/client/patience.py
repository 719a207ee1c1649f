"""Calls without a time limit of their own, for callers that wait only for a limited time.

One call at a time, on a thread that ends when there is nothing to do. Ctrl-C wakes a waiting
caller, which may leave before the call ends; the next call begins when it has ended. The thread is
a daemon: a program may end while it waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")

LINGER_S = 1.0
# A signal that comes while a thread is about to wait is noticed when the wait ends, not before.
SIGNALS_S = 0.25


class Patience:
    def __init__(self) -> None:
        self._change = threading.Condition()
        self._next: tuple[Callable[[], Any], Future[Any]] | None = None
        self._thread_lives = False
        self._under_way: Future[Any] | None = None

    @property
    def is_tried(self) -> bool:
        """Whether a call is under way whose caller has stopped waiting."""
        return self._under_way is not None and not self._under_way.done()

    def run(self, call: Callable[[], T], timeout_s: float) -> T:
        """The result or exception of the call; raises TimeoutError if it has not ended in time."""
        if self._under_way is not None:
            _wait(self._under_way, timeout_s)  # an older call: its outcome is not wanted any more
        ended: Future[T] = Future()
        with self._change:
            self._next, self._under_way = (call, ended), ended
            if self._thread_lives:
                self._change.notify()
            else:
                self._thread_lives = True
                threading.Thread(target=self._run, name="headrace-commits", daemon=True).start()
        return _result(ended, timeout_s)

    def _run(self) -> None:
        while (given := self._given()) is not None:
            call, ended = given
            try:
                ended.set_result(call())
            except Exception as failure:  # noqa: BLE001 - raised in the thread that waits
                ended.set_exception(failure)
            del given, call, ended  # hold nothing while there is nothing to do

    def _given(self) -> tuple[Callable[[], Any], Future[Any]] | None:
        with self._change:
            if self._next is None:
                self._change.wait_for(lambda: self._next is not None, LINGER_S)
            given, self._next = self._next, None
            self._thread_lives = given is not None
            return given


def _result(ended: Future[T], timeout_s: float) -> T:
    _wait(ended, timeout_s)
    return ended.result(0)


def _wait(ended: Future[Any], timeout_s: float) -> None:
    """Wait; raises TimeoutError if it has not ended in time."""
    deadline_s = monotonic() + timeout_s
    while not ended.done():
        left_s = deadline_s - monotonic()
        if left_s <= 0:
            raise TimeoutError
        wait([ended], min(left_s, SIGNALS_S))
