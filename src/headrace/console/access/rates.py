"""Records per second into each topic, from samples of where topics end; taken while a page is open.

All open pages share the samples. The meter is pure: samples and their moments come in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

KEPT = 60  # samples of the whole cluster, for the line
MOST_TOPICS = 8


@dataclass(slots=True)
class Rates:
    total: float
    busiest: list[tuple[str, float]]  # of those above zero
    history: list[float]  # totals, oldest first


@dataclass(slots=True)
class RateMeter:
    _ends: Mapping[str, int] = field(default_factory=dict)
    _at_s: float | None = None
    _totals: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    rates: Rates | None = None  # None until there are two samples
    per_s: dict[str, float] = field(default_factory=dict)  # of each topic, by the last two samples

    def age_s(self, now_s: float) -> float:
        return float("inf") if self._at_s is None else now_s - self._at_s

    def note(self, ends: Mapping[str, int], now_s: float, *, longest_s: float = 30.0) -> None:
        """Adds a sample. After a long pause the rates start again: an average over the pause would
        mislead."""
        before, before_s = self._ends, self._at_s
        self._ends, self._at_s = ends, now_s
        if before_s is None or now_s <= before_s or now_s - before_s > longest_s:
            self._totals.clear()
            self.rates, self.per_s = None, {}
            return
        # A topic that was deleted and created again counts backwards: it has no rate this time.
        per_s = {
            name: max(end - before[name], 0) / (now_s - before_s)
            for name, end in ends.items()
            if name in before
        }
        self.per_s = per_s
        self._totals.append(sum(per_s.values()))
        busiest = sorted(
            ((name, rate) for name, rate in per_s.items() if rate > 0),
            key=lambda each: (-each[1], each[0]),
        )
        self.rates = Rates(self._totals[-1], busiest[:MOST_TOPICS], list(self._totals))
