"""A pytest plugin: a file of tests that leaves a task, an event loop or a thread behind fails.

A task that is pending when its loop closes never ends. Python logs "Task was destroyed but it is
pending!" when a garbage collection finds it, which is often in another file: a test there that
looks at the log is red by chance. A thread that outlives its file logs, and uses the processor,
during other tests. Both rings are looked at: tests/unit, tests/sockets, tests/processes and
tests/simulation.

Looks at a loop when it is closed, so nothing has to be collected to find out.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import pytest

RINGS = ("tests/unit/", "tests/sockets/", "tests/processes/", "tests/simulation/")
PATIENCE_S = 60.0
# They end by themselves: the first after a second without a call, the second is what is tested in
# tests/sockets/client/test_commits.py (a close that no broker answers). The third hangs inside
# librdkafka, which is what is tested in tests/processes/client/test_hanging_offsets.py.
END_ALONE = ("headrace-commits", "headrace-closing", "headrace-offsets")


class LeftBehind:
    """Event loops that were made, and what was pending when one of them was closed."""

    def __init__(self) -> None:
        self.test = "no test"
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, str] = WeakKeyDictionary()
        self._pending: list[str] = []

    def made(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loops[loop] = self.test

    def closes(self, loop: asyncio.AbstractEventLoop) -> None:
        for task in asyncio.all_tasks(loop):  # those that are not done
            if getattr(task, "_log_destroy_pending", True):  # else it is given up on purpose
                self._pending.append(f"{self.test} closed a loop with {task!r}")

    def take(self) -> list[str]:
        """What was left since the last call, a sentence each."""
        found, self._pending = self._pending, []
        for loop, test in list(self._loops.items()):
            if not loop.is_closed():
                found.append(f"{test} did not close {loop!r}")
        self._loops.clear()
        return found


LEFT = LeftBehind()
_make, _close = asyncio.BaseEventLoop.__init__, asyncio.BaseEventLoop.close


def _made(loop: asyncio.BaseEventLoop, *args: Any, **options: Any) -> None:
    _make(loop, *args, **options)
    LEFT.made(loop)


def _closed(loop: asyncio.BaseEventLoop) -> None:
    if not loop.is_closed() and not loop.is_running():
        LEFT.closes(loop)
    _close(loop)


asyncio.BaseEventLoop.__init__ = _made  # type: ignore[method-assign, assignment]
asyncio.BaseEventLoop.close = _closed  # type: ignore[method-assign, assignment]


def still_alive(threads: Iterable[threading.Thread], patience_s: float = PATIENCE_S) -> list[str]:
    """Sentences about those that do not end within `patience_s`, each."""
    left = []
    for thread in threads:
        if not thread.name.startswith(END_ALONE):
            thread.join(patience_s)
            if thread.is_alive():
                left.append(f"{thread!r} goes on")
    return left


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    LEFT.test = item.nodeid
    return (yield)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set up before the other fixtures of a file, so it looks when they have ended."""
    file: str = request.node.nodeid
    if not file.startswith(RINGS):
        yield
        LEFT.take()
        return
    before = set(threading.enumerate())
    yield
    left = LEFT.take() + still_alive(set(threading.enumerate()) - before)
    assert not left, "left behind:\n" + "\n".join(sorted(left))
