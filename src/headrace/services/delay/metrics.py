"""What the service counts, and how Prometheus reads it (text format 0.0.4).

Counted in plain slots by the loop, read by other threads; one too old does no harm.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# Upper bounds in milliseconds; lateness is what the contract is judged by.
LATENESS_MS = (2, 5, 10, 15, 20, 30, 50, 75, 100, 150, 250, 500, 1_000, 5_000, 60_000)

Sample = tuple[Mapping[str, Any], float]


class Counters:
    """Since the start of this process."""

    __slots__ = (
        "aborted",
        "cancelled",
        "delivered",
        "lateness_buckets",
        "lateness_ms_sum",
        "rejected",
        "settlements",
        "taken",
        "took_ms_sum",
    )

    def __init__(self) -> None:
        self.taken = 0  # records read from companions
        self.delivered = 0
        self.cancelled = 0  # outcomes written
        self.rejected = 0
        self.settlements = 0
        self.aborted = 0
        self.took_ms_sum = 0.0
        self.lateness_buckets = [0] * (len(LATENESS_MS) + 1)
        self.lateness_ms_sum = 0

    def late(self, lateness_ms: int, count: int = 1) -> None:
        """So late `count` records became visible."""
        self.lateness_buckets[bisect_left(LATENESS_MS, lateness_ms)] += count
        self.lateness_ms_sum += lateness_ms * count


def counter_families(counters: Counters) -> Iterator[str]:
    for name, explanation, value in (
        ("taken", "Records read from companion topics.", counters.taken),
        ("delivered", "Records delivered to their targets.", counters.delivered),
        ("outcomes", "Outcomes of cancellations written.", counters.cancelled),
        ("rejected", "Records that could not be honoured.", counters.rejected),
        ("settlements", "Transactions committed.", counters.settlements),
        ("aborted", "Transactions aborted.", counters.aborted),
    ):
        yield from family(f"headrace_delay_{name}_total", "counter", explanation, [({}, value)])
    yield from _lateness(counters)


def _lateness(counters: Counters) -> Iterator[str]:
    name = "headrace_delay_lateness_seconds"
    yield f"# HELP {name} From the due time until the record was visible in its target."
    yield f"# TYPE {name} histogram"
    total = 0
    for bound_ms, count in zip(LATENESS_MS, counters.lateness_buckets, strict=False):
        total += count
        yield f'{name}_bucket{{le="{bound_ms / 1000:g}"}} {total}'
    total += counters.lateness_buckets[-1]
    yield f'{name}_bucket{{le="+Inf"}} {total}'
    yield f"{name}_sum {counters.lateness_ms_sum / 1000:g}"
    yield f"{name}_count {total}"


def family(name: str, kind: str, explanation: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {explanation}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        yield (
            f"{name}{_labels(labels)} {value:g}"
            if value != int(value)
            else (f"{name}{_labels(labels)} {int(value)}")
        )


def _labels(labels: Mapping[str, Any]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escape(str(value))}"' for key, value in labels.items()) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
