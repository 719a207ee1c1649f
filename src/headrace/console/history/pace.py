"""How fast a group reads, and when it will have caught up, from a few samples. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.console.history.lag_store import Sample

# Long enough to smooth the rate, short enough to be current.
LOOKED_AT_S = 300


@dataclass(slots=True)
class Pace:
    lag: int
    read_per_s: float
    written_per_s: float

    @property
    def left_s(self) -> float | None:
        """Seconds until it has caught up, if both rates stay the same; None if it does not catch
        up."""
        if self.lag == 0:
            return 0.0
        gain = self.read_per_s - self.written_per_s
        return self.lag / gain if gain > 0 else None


def pace(samples: Sequence[Sample]) -> Pace | None:
    """None until there are two samples of the last minutes."""
    if not samples:
        return None
    last = samples[-1]
    recent = [one for one in samples if one.at_s >= last.at_s - LOOKED_AT_S]
    first = recent[0]
    took_s = last.at_s - first.at_s
    if took_s <= 0:
        return None
    # After a reset, or if a topic was deleted and created again, offsets move backwards: then
    # nothing was read.
    read = max(last.committed - first.committed, 0)
    written = max(last.end - first.end, 0)
    return Pace(last.lag, read / took_s, written / took_s)
