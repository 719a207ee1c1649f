"""The collector's metrics for Prometheus, read from plain counters at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.prometheus_text import Family
from headrace.services.tracking.collector import Collector


def collector_families(collector: Collector) -> Iterator[Family]:
    counters, ledger = collector.counters, collector.ledger
    for name, explanation, label, counted in (
        ("requests", "Requests to /track, by the status answered.", "status", counters.requests),
        ("events_accepted", "Events given to the producer.", "topic", counters.events),
        ("events_refused", "Events with a fault, by its field.", "field", counters.faults),
    ):
        samples = [({label: each}, count) for each, count in sorted(counted.items(), key=str)]
        yield Family(f"headrace_track_{name}_total", "counter", explanation, samples)
    for name, kind, explanation, value in (
        (
            "events_written_total",
            "counter",
            "Events that the cluster has acknowledged.",
            ledger.written,
        ),
        (
            "events_lost_total",
            "counter",
            "Events that were accepted and could not be written.",
            ledger.lost,
        ),
        ("queue_events", "gauge", "Events accepted and not yet acknowledged.", ledger.waiting),
        ("queue_bytes", "gauge", "Their keys and values.", ledger.bytes),
        ("queue_limit", "gauge", "How many may wait.", collector.limits.queue),
    ):
        yield Family(f"headrace_track_{name}", kind, explanation, [({}, value)])
