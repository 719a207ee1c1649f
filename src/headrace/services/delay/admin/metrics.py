"""The counts of the service, and their metrics for Prometheus.

Counted in plain slots by the loop, read by other threads; one too old does no harm.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from headrace.prometheus_text import Family, Histogram

# Upper bounds in milliseconds; lateness is what the contract is judged by.
LATENESS_MS = (2, 5, 10, 15, 20, 30, 50, 75, 100, 150, 250, 500, 1_000, 5_000, 60_000)


class Counters:
    """Since the start of this process."""

    __slots__ = (
        "aborted",
        "cancelled",
        "delivered",
        "lateness_buckets",
        "lateness_ms_sum",
        "rejected",
        "taken",
        "took_ms_sum",
        "transactions",
    )

    def __init__(self) -> None:
        self.taken = 0  # records read from companions
        self.delivered = 0
        self.cancelled = 0  # outcomes written
        self.rejected = 0
        self.transactions = 0
        self.aborted = 0
        self.took_ms_sum = 0.0
        self.lateness_buckets = [0] * (len(LATENESS_MS) + 1)
        self.lateness_ms_sum = 0

    def late(self, lateness_ms: int, count: int = 1) -> None:
        """So late `count` records became visible."""
        self.lateness_buckets[bisect_left(LATENESS_MS, lateness_ms)] += count
        self.lateness_ms_sum += lateness_ms * count


def counter_families(counters: Counters) -> Iterator[Family]:
    for name, explanation, value in (
        ("taken", "Records read from companion topics.", counters.taken),
        ("delivered", "Records delivered to their targets.", counters.delivered),
        ("outcomes", "Outcomes of cancellations written.", counters.cancelled),
        ("rejected", "Records that could not be honoured.", counters.rejected),
        # The name of the metric is older than that of the plan it counts.
        ("settlements", "Transactions committed.", counters.transactions),
        ("aborted", "Transactions aborted.", counters.aborted),
    ):
        yield Family(f"headrace_delay_{name}_total", "counter", explanation, [({}, value)])
    yield Histogram(
        "headrace_delay_lateness_seconds",
        "From the due time until the record was visible in its target.",
        [bound_ms / 1000 for bound_ms in LATENESS_MS],
        [({}, counters.lateness_buckets, counters.lateness_ms_sum / 1000)],
    )
