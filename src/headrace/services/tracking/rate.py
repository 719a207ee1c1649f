"""How many events a second are taken: a bucket that fills steadily. Pure: the time is given."""

from __future__ import annotations


class Rate:
    """`per_second` events on average, `burst` at once; 0 takes any number."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = max(per_second, float(burst))
        self._left = self._burst
        self._at_s = 0.0

    def take(self, events: int, now_s: float) -> float:
        """Returns 0 if they may come in, else in how many seconds they might."""
        if not self._per_second:
            return 0.0
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_second)
        self._at_s = now_s
        if events <= self._left:
            self._left -= events
            return 0.0
        return (events - self._left) / self._per_second
