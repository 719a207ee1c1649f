"""When a failed attempt is made again: how often, after how long, and for which errors.

Waits grow by `factor` from `first` to `longest`; `jitter` spreads them so that records that failed
together do not come back together. Nothing here reads a clock or uses randomness: the caller gives
the chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headrace.wire.contract import durations

Duration = str | int | timedelta  # "1m30s", milliseconds, or a timedelta


def milliseconds(given: Duration, what: str) -> int:
    """A duration as a number; `what` names it in the error."""
    if isinstance(given, timedelta):
        found = round(given.total_seconds() * 1000)
    elif isinstance(given, str):
        try:
            found = durations.parse(given)
        except ValueError as wrong:
            raise ValueError(f"{what}: {wrong}.") from wrong
    else:
        found = given
    if not 0 <= found <= durations.LONGEST_DELAY_MS:
        raise ValueError(f"{what} is between 0 and 10 years, not {given!r}.")
    return found


class AttemptTimedOut(Exception):
    """The handler did not end within the time limit of one attempt."""


class DeliveriesUsedUp(Exception):
    """A queue delivered a record as often as it may, and it was never acknowledged."""


class TryLater(Exception):
    """Try again after a while, without counting an attempt: the record is not the cause.

    A handler may raise it when something that it needs is away; so does `once=` when its store is.
    """

    def __init__(self, why: str = "", *, after: Duration = "1s") -> None:
        super().__init__(why)
        self.after_ms = milliseconds(after, "after")


@dataclass(frozen=True, slots=True)
class Retry:
    """`Retry(attempts=8, first="1s", longest="10m")`: at most eight attempts, then dead letters.

    `retriable` and `fatal` are classes of exceptions: a fatal one is parked at once, and so is one
    that is not retriable. `time_limit` ends an attempt that takes too long, as a failure.
    """

    attempts: int = 3
    first: Duration = "200ms"
    longest: Duration = "2s"
    factor: float = 2.0
    jitter: float = 0.1  # a wait is spread over +-10 %
    retriable: tuple[type[BaseException], ...] = (BaseException,)
    fatal: tuple[type[BaseException], ...] = ()
    time_limit: Duration | None = None

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts is at least 1, not {self.attempts}.")
        if self.factor < 1:
            raise ValueError(f"factor is at least 1, not {self.factor}.")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter is between 0 and 1, not {self.jitter}.")
        if milliseconds(self.longest, "longest") < milliseconds(self.first, "first"):
            raise ValueError("longest is not shorter than first.")
        if self.time_limit is not None and not milliseconds(self.time_limit, "time_limit"):
            raise ValueError("time_limit is longer than nothing.")

    @property
    def time_limit_ms(self) -> int | None:
        given = self.time_limit
        return None if given is None else milliseconds(given, "time_limit")

    @property
    def longest_wait_ms(self) -> int:
        """The longest that any record may have to wait for its next attempt."""
        if self.attempts == 1:
            return 0
        return self.wait_ms(self.attempts - 1, chance=1.0)

    def again(self, error: BaseException, attempts_made: int) -> bool:
        """Whether there is to be another attempt after this error."""
        if attempts_made >= self.attempts or isinstance(error, self.fatal):
            return False
        return isinstance(error, self.retriable)

    def wait_ms(self, attempts_made: int, chance: float) -> int:
        """How long to wait after this many attempts; `chance` in [0, 1] places it in the spread."""
        first = milliseconds(self.first, "first")
        longest = milliseconds(self.longest, "longest")
        try:
            grown = first * self.factor ** (attempts_made - 1)
        except OverflowError:
            grown = longest
        wait = min(grown, longest)
        return max(0, round(wait * (1 + self.jitter * (2 * chance - 1))))
