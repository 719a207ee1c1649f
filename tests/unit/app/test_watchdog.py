"""Who is named for blocking the loop: whoever does, and nobody on a machine that is only busy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from headrace.app.attempts import watchdog as watchdog_module
from headrace.app.attempts.watchdog import BLOCKED_S, Watchdog

PATIENCE_S = 180


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Steps:
    """Steps of a loop, each of which goes on when the test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.inside = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)

    def add(self, count: int) -> None:
        for _ in range(count):
            self._loop.call_soon_threadsafe(self.stand_still)

    def stand_still(self) -> None:
        self.inside.release()
        assert self.go_on.acquire(timeout=PATIENCE_S)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loop(clock: Clock) -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def watched(loop: asyncio.AbstractEventLoop, clock: Clock) -> tuple[Watchdog, threading.Thread]:
    """A loop at work on a thread; its beat comes once, before the steps."""
    watchdog = Watchdog(loop, monotonic=clock)
    begun = threading.Event()

    def run() -> None:
        watchdog.begin()
        loop.call_soon(begun.set)
        loop.run_forever()

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(PATIENCE_S)
    return watchdog, thread


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the watchdog says, whatever other tests have done to the loggers of the process."""
    lines: list[str] = []

    class Log:
        def warning(self, words: str, *about: object) -> None:
            lines.append(words % about)

    monkeypatch.setattr(watchdog_module, "log", Log())
    return lines


def look_for(watchdog: Watchdog, clock: Clock, seconds: float, every: float = 0.1) -> None:
    for _ in range(round(seconds / every)):
        clock.now += every
        watchdog.look()


def test_a_step_that_does_not_end_is_named(
    loop: asyncio.AbstractEventLoop, clock: Clock, said: list[str]
) -> None:
    watchdog, thread = watched(loop, clock)
    steps = Steps(loop)
    steps.add(1)
    assert steps.inside.acquire(timeout=PATIENCE_S)
    look_for(watchdog, clock, BLOCKED_S + 3)
    look_for(watchdog, clock, 10)
    steps.go_on.release()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    [line] = said  # once, however long it lasts
    assert ": stand_still, in " in line


def test_many_steps_that_each_take_a_while_are_not(
    loop: asyncio.AbstractEventLoop, clock: Clock, said: list[str]
) -> None:
    watchdog, thread = watched(loop, clock)
    steps = Steps(loop)
    steps.add(6)
    for _ in range(6):
        assert steps.inside.acquire(timeout=PATIENCE_S)
        look_for(watchdog, clock, BLOCKED_S * 0.8)
        steps.go_on.release()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    assert said == []


def test_time_in_which_nobody_looked_does_not_count(
    loop: asyncio.AbstractEventLoop, clock: Clock, said: list[str]
) -> None:
    """The whole process stood still, or got no processor: the handler is not to blame."""
    watchdog, thread = watched(loop, clock)
    steps = Steps(loop)
    steps.add(1)
    assert steps.inside.acquire(timeout=PATIENCE_S)
    look_for(watchdog, clock, 40, every=8)
    steps.go_on.release()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    assert said == []
