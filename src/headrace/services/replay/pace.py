"""How fast records are replayed: so many per second, or at their original pace times a factor.

Pure: it is told the time and says how long to wait. A replay that was held up does not make up for
more than a second of it at once.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_CAUGHT_UP_S = 1.0


@dataclass(slots=True)
class Pace:
    """At most one of the two; neither: as fast as it goes."""

    rate: float | None = None  # records per second
    speed: float | None = None  # 10: an hour of records in six minutes
    _began_s: float | None = None
    _first_ms: int | None = None
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
        if self.speed is None or timestamp_ms is None:
            return 0.0
        if self._first_ms is None:
            self._first_ms = timestamp_ms
        return max(0, timestamp_ms - self._first_ms) / 1000 / self.speed
