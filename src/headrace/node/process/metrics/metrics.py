"""The metrics for Prometheus: counters that the loop keeps in slots, added up only when asked.

Does not keep history; `prometheus_text.py` writes it, `metrics_endpoint.py` serves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from headrace.node.broker.audit import AuditTrail
from headrace.node.broker.replicas.log_cleaner import LogCleaner
from headrace.node.broker.replicas.log_scrubber import LogScrubber
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.audit_lines import Auditor
from headrace.node.serving.quotas import ClientQuotas
from headrace.node.serving.route import Route
from headrace.node.storage.recovery.damage import Findings
from headrace.prometheus_text import Family, Histogram


def request_families(routes: Iterable[Route]) -> Iterator[Family]:
    """Per API: counts, refusals and the histogram of latencies (2^n microseconds)."""
    used = [route for route in routes if route.requests]
    yield Family(
        "headrace_requests_total",
        "counter",
        "Requests by API and version.",
        [({"api": r.name, "version": r.version}, r.requests) for r in used],
    )
    buckets: dict[str, list[int]] = {}
    sums: dict[str, int] = {}
    for route in used:
        total = buckets.setdefault(route.name, [0] * len(route.buckets))
        buckets[route.name] = [a + b for a, b in zip(total, route.buckets, strict=True)]
        sums[route.name] = sums.get(route.name, 0) + route.microseconds
    most = max(map(len, buckets.values()), default=1)
    bounds_s = [(1 << bits) / 1_000_000 for bits in range(most - 1)]
    yield Histogram(
        "headrace_request_seconds",
        "From the arrival of a request to its reply, waiting included.",
        bounds_s,
        [({"api": api}, counts, sums[api] / 1_000_000) for api, counts in buckets.items()],
    )


def damage_families(
    findings: Findings, leaders: Iterable[tuple[dict[str, Any], PartitionLeader]]
) -> Iterator[Family]:
    """The damage that logs found on the disk since the start, and the present damage."""
    for name, explanation, value in (
        ("cuts_total", "Ends of logs that a start cut.", findings.cuts),
        ("cut_bytes_total", "What was cut.", findings.cut_bytes),
        ("damaged_ranges_total", "Damaged ranges that were found.", findings.damaged_ranges),
        ("skipped_ranges_total", "Reads that went on behind damage.", findings.ranges_skipped),
        ("indexes_rebuilt_total", "Wrong indexes.", findings.indexes_rebuilt),
    ):
        yield Family(f"headrace_log_{name}", "counter", explanation, [({}, value)])
    damaged = ((labels, leader.log.segments.damage()) for labels, leader in leaders)
    yield Family(
        "headrace_log_damaged_bytes",
        "gauge",
        "Damaged bytes, by partition with damaged records.",
        [(labels, sum(each.size for each in found)) for labels, found in damaged if found],
    )


def cleaner_families(cleaner: LogCleaner | None) -> Iterator[Family]:
    """The work of compaction since the start; nothing if it is off."""
    if cleaner is None:
        return
    for name, kind, explanation, value in (
        ("rounds_total", "counter", "Rounds of compaction.", cleaner.rounds),
        ("failures_total", "counter", "Rounds that failed.", cleaner.failures),
        ("read_bytes_total", "counter", "Segments that were compacted.", cleaner.bytes_read),
        ("written_bytes_total", "counter", "What is left of them.", cleaner.bytes_written),
        ("seconds_total", "counter", "Time of all rounds.", cleaner.milliseconds / 1000),
        (
            "unreadable_batches_total",
            "counter",
            "Batches kept whole, in each round, because their records cannot be read.",
            cleaner.unreadable_batches,
        ),
        ("max_dirty_ratio", "gauge", "Dirty ratio of the dirtiest log.", cleaner.dirtiest_ratio),
        ("uncleanable_partitions", "gauge", "Left alone as damaged.", len(cleaner.uncleanable)),
    ):
        yield Family(f"headrace_log_cleaner_{name}", kind, explanation, [({}, value)])


def scrub_families(scrubber: LogScrubber | None) -> Iterator[Family]:
    """The scrubbing of closed segments since the start."""
    if scrubber is None:
        return
    for name, kind, explanation, value in (
        ("passes_total", "counter", "Passes over all closed segments.", scrubber.passes),
        ("segments_total", "counter", "Segments that were read.", scrubber.segments_read),
        ("read_bytes_total", "counter", "Their bytes.", scrubber.bytes_read),
        ("damaged_ranges_total", "counter", "Damage that was news.", scrubber.damaged_ranges),
        ("failures_total", "counter", "Segments or jobs that failed.", scrubber.failures),
        (
            "last_pass_timestamp_seconds",
            "gauge",
            "When the last pass ended; 0: none since the start.",
            scrubber.last_pass_ms / 1000,
        ),
    ):
        yield Family(f"headrace_scrub_{name}", kind, explanation, [({}, value)])


def limit_families(quotas: ClientQuotas, auditor: Auditor, trail: AuditTrail) -> Iterator[Family]:
    """Throttled clients, and counts of the audit."""
    throttled = {
        "produce": quotas.produce.throttled,
        "fetch": quotas.fetch.throttled,
        "request": quotas.request.throttled,
        "controller_mutation": quotas.mutation.throttled,
    }
    yield Family(
        "headrace_throttled_requests_total",
        "counter",
        "Answers that came with a wait, by quota.",
        [({"quota": name}, count) for name, count in throttled.items()],
    )
    for name, explanation, value in (
        (
            "throttle_seconds_total",
            "Throttle time that clients were given.",
            quotas.throttled_ms / 1000,
        ),
        ("audit_noted_total", "Admin changes, failed logins, denials.", auditor.noted),
        ("audit_dropped_total", "Not kept, there were too many.", auditor.dropped + trail.dropped),
    ):
        yield Family(f"headrace_{name}", "counter", explanation, [({}, value)])
