"""Holds tests/unit to what it is: no test here reaches for the network or starts a process.

Python's own audit events tell. librdkafka opens its sockets unseen by them, so the threads that its
clients start are looked for as well. Pairs of connected sockets are free: every event loop of
asyncio has one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

NETWORK, PROCESS = "tests/sockets", "tests/processes"
HOME_OF = {
    "socket.bind": NETWORK,
    "socket.connect": NETWORK,
    "socket.getaddrinfo": NETWORK,
    "socket.gethostbyname": NETWORK,
    "socket.sendto": NETWORK,
    "subprocess.Popen": PROCESS,
    "os.exec": PROCESS,
    "os.fork": PROCESS,
    "os.forkpty": PROCESS,
    "os.posix_spawn": PROCESS,
    "os.spawn": PROCESS,
    "os.system": PROCESS,
}


def _threads_of_librdkafka() -> set[str]:
    """Empty where the system does not show the threads of a process."""
    found = set()
    for name in Path("/proc/self/task").glob("*/comm"):
        try:
            if name.read_text().startswith("rdk:"):
                found.add(name.parent.name)
        except OSError:
            continue  # it has just ended
    return found


class NotAUnitTest(Exception):
    """A test of this folder did what belongs in another."""


class Watch:
    """What the running test did that it may not; a hook of Python's cannot be taken back."""

    def __init__(self) -> None:
        self.test: str | None = None
        self.done: dict[str, str] = {}  # what was done: where such tests live
        self.threads: set[str] = set()

    def __call__(self, event: str, _: object) -> None:
        if self.test is not None and event in HOME_OF:
            self.done[event] = HOME_OF[event]
            raise NotAUnitTest(f"{event} in {self.test}")

    def begin(self, test: str) -> None:
        self.test, self.threads = test, _threads_of_librdkafka()

    def end(self) -> str | None:
        """A verdict also of what another thread did, or what an `except` has swallowed.

        A client that an earlier test of this process left behind begins threads when it likes, so
        threads tell only where there were none before.
        """
        if not self.threads and _threads_of_librdkafka():
            self.done["a client of librdkafka"] = NETWORK
        done, self.done, self.test = self.done, {}, None
        if not done:
            return None
        return f"{', '.join(sorted(done))}: the place of this test is {max(done.values())}"


WATCH = Watch()
sys.addaudithook(WATCH)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    WATCH.begin(item.nodeid)  # before its fixtures, also those that it shares
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown() -> Iterator[None]:
    try:
        return (yield)
    finally:
        if verdict := WATCH.end():
            pytest.fail(verdict, pytrace=False)
