"""The counters of the server since its start: plain numbers, read for metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headrace.prometheus_text import Family
from headrace.wire.contract.own_records import skipped_families


@dataclass(slots=True)
class Counters:
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)  # by endpoint and status
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # summed
    records_in: int = 0
    records_out: int = 0
    replayed: int = 0  # requests whose idempotency key was known
    gaps: int = 0  # reported to readers of streams
    stalled: int = 0  # streams closed because their client did not read
    connections_refused: int = 0


def door_families(counters: Counters, gauges: Mapping[str, tuple[str, float]]) -> Iterator[Family]:
    """Returns metrics for Prometheus; `gauges` are names with their descriptions and values."""
    yield Family(
        "headrace_http_requests_total",
        "counter",
        "Requests, by endpoint and status.",
        [
            ({"endpoint": endpoint, "status": status}, count)
            for (endpoint, status), count in sorted(counters.requests.items())
        ],
    )
    yield Family(
        "headrace_http_request_seconds_total",
        "counter",
        "Time spent on requests.",
        [({"endpoint": each}, seconds) for each, seconds in sorted(counters.seconds.items())],
    )
    for name, explanation, value in (
        ("records_in", "Records taken from requests.", counters.records_in),
        ("records_out", "Records given to readers.", counters.records_out),
        ("replayed", "Requests whose idempotency key was known.", counters.replayed),
        ("gaps", "Streams that reported a gap: records that retention had deleted.", counters.gaps),
        ("stalled", "Streams closed because the client did not read them.", counters.stalled),
        ("connections_refused", "Connections beyond the limit.", counters.connections_refused),
    ):
        yield Family(f"headrace_http_{name}_total", "counter", explanation, [({}, value)])
    for name, (explanation, number) in gauges.items():
        yield Family(f"headrace_http_{name}", "gauge", explanation, [({}, number)])
    yield from skipped_families()
