"""The real clocks, and one that a test moves."""

from __future__ import annotations

from time import monotonic_ns, time_ns
from typing import Protocol

from headrace.environment import Now


class Clock(Protocol):
    def read(self, now: Now) -> None:
        """Set both times of `now`; called once per turn of the loop."""
        ...


class SystemClock:
    def read(self, now: Now) -> None:
        now.monotonic_ms = monotonic_ns() // 1_000_000
        now.wall_ms = time_ns() // 1_000_000


class MovableClock:
    """The wall clock of a test: real time plus what the test has moved it by.

    Monotonic time, and with it every session and connection deadline, does not jump.
    """

    def __init__(self) -> None:
        self.moved_by_ms = 0

    def wall_ms(self) -> int:
        return time_ns() // 1_000_000 + self.moved_by_ms

    def read(self, now: Now) -> None:
        now.monotonic_ms = monotonic_ns() // 1_000_000
        now.wall_ms = self.wall_ms()
