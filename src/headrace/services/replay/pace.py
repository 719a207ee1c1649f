"""How fast records are replayed: a number per second, or their original pace times a factor.

Pure: it gets the time and returns how long to wait. A replay that was held up does not make up for
more than a second of it at once. At their own pace, the wait between two records has a limit: a
clock that was wrong by years once must not hold a replay up for years.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_CAUGHT_UP_S = 1.0
LONGEST_WAIT_S = 3_600.0


@dataclass(slots=True)
class Pace:
    """At most one of the two is set; with neither, as fast as possible."""

    rate: float | None = None  # records per second
    speed: float | None = None  # 10: an hour of records in six minutes
    longest_wait_s: float = LONGEST_WAIT_S  # between two records, by `speed`
    shortened: int = 0  # waits that would have been longer
    _began_s: float | None = None
    _last_ms: int | None = None
    _elapsed_s: float = 0.0  # from the first record to this one
    _count: int = 0

    def wait_s(self, timestamp_ms: int | None, now_s: float) -> float:
        """Before the next record, which has this time. Call it once for each."""
        if self._began_s is None:
            self._began_s = now_s
        due_s = self._began_s + self._since_beginning_s(timestamp_ms)
        self._count += 1
        if now_s - due_s > MOST_CAUGHT_UP_S:
            self._began_s += now_s - due_s - MOST_CAUGHT_UP_S
        return max(0.0, due_s - now_s)

    def _since_beginning_s(self, timestamp_ms: int | None) -> float:
        if self.rate is not None:
            return self._count / self.rate
        if self.speed is not None and timestamp_ms is not None:
            self._elapsed_s += self._gap_s(timestamp_ms, self.speed)
        return self._elapsed_s

    def _gap_s(self, timestamp_ms: int, speed: float) -> float:
        """To the latest record so far; one that is a little older comes at once."""
        latest_ms = timestamp_ms if self._last_ms is None else self._last_ms
        gap_s = (timestamp_ms - latest_ms) / 1000 / speed
        if abs(gap_s) > self.longest_wait_s:  # a leap of the clock: go on from there
            self.shortened += gap_s > 0
            self._last_ms = timestamp_ms
        else:
            self._last_ms = max(timestamp_ms, latest_ms)
        return min(max(0.0, gap_s), self.longest_wait_s)
