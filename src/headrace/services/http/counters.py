"""The counters of the server since its start: plain numbers, read for metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector as Source


@dataclass(slots=True)
class Counters:
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)  # by endpoint and status
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # summed
    records_in: int = 0
    records_out: int = 0
    replayed: int = 0  # requests whose idempotency key was known
    gaps: int = 0  # told to readers of streams
    stalled: int = 0  # streams cut because nobody read them
    connections_refused: int = 0


Gauges = Callable[[], dict[str, tuple[str, float]]]


class Numbers(Source):
    """For Prometheus."""

    def __init__(self, counters: Counters, gauges: Gauges) -> None:
        self._counters, self._gauges = counters, gauges

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        counters = self._counters
        family = CounterMetricFamily(
            "headrace_http_requests",
            "Requests, by endpoint and status.",
            labels=["endpoint", "status"],
        )
        for (endpoint, status), count in sorted(counters.requests.items()):
            family.add_metric([endpoint, str(status)], count)
        yield family
        spent = CounterMetricFamily(
            "headrace_http_request_seconds", "Time spent on requests.", labels=["endpoint"]
        )
        for endpoint, seconds in sorted(counters.seconds.items()):
            spent.add_metric([endpoint], seconds)
        yield spent
        for name, words in (
            ("records_in", "Records taken from requests."),
            ("records_out", "Records given to readers."),
            ("replayed", "Requests whose idempotency key was known."),
            ("gaps", "Times that a stream told its reader of records that are gone."),
            ("stalled", "Streams cut because nobody read them."),
            ("connections_refused", "Connections beyond the limit."),
        ):
            value = getattr(counters, name)
            yield CounterMetricFamily(f"headrace_http_{name}", words, value=value)
        for name, (words, number) in self._gauges().items():
            yield GaugeMetricFamily(f"headrace_http_{name}", words, value=number)
