"""Counts the failures of a subscription in its `Stats`."""

from __future__ import annotations

from headrace.app.observation.observer import Stats
from headrace.app.retries.failure_fate import Fate, Verdict


def count_failure(
    stats: Stats, fate: Fate, verdict: Verdict | None, records: int, now_ms: int
) -> None:
    """Count records with the same failure and the same fate. `verdict` is None if no attempt was
    made."""
    if verdict is not None and verdict.counts:
        stats.failed += records
    elif verdict is not None:
        stats.put_off += 1
    if fate is Fate.DEAD_LETTER:
        stats.parked += records
        stats.last_parked_at_ms = now_ms
    elif verdict is not None and verdict.wait_ms is not None:
        stats.retried += records
