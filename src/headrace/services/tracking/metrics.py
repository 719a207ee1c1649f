"""The collector's metrics for Prometheus, read from plain counters at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector as Source

from headrace.services.tracking.collector import Collector


class Numbers(Source):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        counters, ledger = self._collector.counters, self._collector.ledger
        for name, explanation, label, counted in (
            (
                "requests",
                "Requests to /track, by the status answered.",
                "status",
                counters.requests,
            ),
            ("events_accepted", "Events given to the producer.", "topic", counters.events),
            ("events_refused", "Events with a fault, by its field.", "field", counters.faults),
        ):
            family = CounterMetricFamily(f"headrace_track_{name}", explanation, labels=[label])
            for value, count in sorted(counted.items(), key=str):
                family.add_metric([str(value)], count)
            yield family
        for name, explanation, count in (
            ("written", "Events that the cluster has acknowledged.", ledger.written),
            ("lost", "Events that were accepted and could not be written.", ledger.lost),
        ):
            yield CounterMetricFamily(f"headrace_track_events_{name}", explanation, value=count)
        for name, explanation, value in (
            ("queue_events", "Events accepted and not yet acknowledged.", ledger.waiting),
            ("queue_bytes", "Their keys and values.", ledger.bytes),
            ("queue_limit", "How many may wait.", self._collector.limits.queue),
        ):
            yield GaugeMetricFamily(f"headrace_track_{name}", explanation, value=value)
