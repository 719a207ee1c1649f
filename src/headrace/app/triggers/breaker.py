"""A circuit breaker: an endpoint that is down gets no calls for a while, then one trial call.

Closed: calls pass; `failures_to_open` failures in a row open it. Open: no call passes for
`rest_ms`, each further trial that fails doubles the rest up to `longest_rest_ms`. Half open: one
trial call passes; its success closes the breaker, its failure opens it again. Pure: the clock is
passed in (`now_ms` is monotonic).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class BreakerState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(slots=True)
class CircuitBreaker:
    failures_to_open: int = 5
    rest_ms: int = 5_000
    longest_rest_ms: int = 60_000

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0  # in a row, while closed
    openings: int = 0  # in a row without a success in between; drives the length of the rest
    closes_at_ms: int = 0  # when the next trial may run, while open

    def wait_ms(self, now_ms: int) -> int:
        """How long to wait before the next call; 0 means that the caller may call now."""
        if self.state is BreakerState.CLOSED:
            return 0
        if self.state is BreakerState.HALF_OPEN:  # the trial is under way
            return self.rest_ms
        if now_ms < self.closes_at_ms:
            return self.closes_at_ms - now_ms
        self.state = BreakerState.HALF_OPEN
        return 0

    def succeeded(self) -> None:
        self.state = BreakerState.CLOSED
        self.failures = self.openings = 0

    def failed(self, now_ms: int) -> None:
        self.failures += 1
        if self.state is BreakerState.HALF_OPEN or self.failures >= self.failures_to_open:
            self._open(now_ms)

    def abandoned(self) -> None:
        """A call ended without showing whether the endpoint works: the next call may be the
        trial."""
        if self.state is BreakerState.HALF_OPEN:
            self.state = BreakerState.OPEN

    def _open(self, now_ms: int) -> None:
        self.state = BreakerState.OPEN
        self.failures = 0
        rest_ms = min(self.rest_ms << min(self.openings, 20), self.longest_rest_ms)
        self.openings += 1
        self.closes_at_ms = now_ms + rest_ms
