"""What Prometheus reads: counters that the loop keeps in slots, added up only when asked.

Text format 0.0.4. Does not keep history; `metrics_endpoint.py` serves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from headrace.broker.audit import AuditTrail
from headrace.broker.log_cleaner import LogCleaner
from headrace.broker.log_scrubber import LogScrubber
from headrace.replication.replica import PartitionLeader
from headrace.serving.auditing import Auditor
from headrace.serving.quotas import ClientQuotas
from headrace.serving.route import Route
from headrace.storage.damage import Findings

Sample = tuple[dict[str, Any], float]


class Family:
    """One metric with its samples, as the text format wants it."""

    def __init__(self, name: str, kind: str, explanation: str, samples: Iterable[Sample]) -> None:
        self.name = name
        self.kind = kind
        self.explanation = explanation
        self.samples = samples

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.explanation}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            yield f"{self.name}{_labels(labels)} {_number(value)}"


def _labels(labels: dict[str, Any]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escape(str(value))}"' for key, value in labels.items()) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def render(families: Iterable[Family]) -> str:
    return "\n".join(line for family in families for line in family.lines()) + "\n"


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
    yield LatencyFamily(buckets, sums)


def damage_families(
    findings: Findings, leaders: Iterable[tuple[dict[str, Any], PartitionLeader]]
) -> Iterator[Family]:
    """What logs found wrong on the disk since the start, and what is damaged now."""
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
        "Of partitions with damaged records.",
        [(labels, sum(each.size for each in found)) for labels, found in damaged if found],
    )


def cleaner_families(cleaner: LogCleaner | None) -> Iterator[Family]:
    """What compaction has done since the start; nothing if it is off."""
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
        ("max_dirty_ratio", "gauge", "Of the dirtiest log.", cleaner.dirtiest_ratio),
        ("uncleanable_partitions", "gauge", "Left alone as damaged.", len(cleaner.uncleanable)),
    ):
        yield Family(f"headrace_log_cleaner_{name}", kind, explanation, [({}, value)])


def scrub_families(scrubber: LogScrubber | None) -> Iterator[Family]:
    """What was read of closed segments since the start."""
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
    """Who was told to wait, and what the audit has seen."""
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
        ("throttle_seconds_total", "What clients were told to wait.", quotas.throttled_ms / 1000),
        ("audit_noted_total", "Admin changes, failed logins, denials.", auditor.noted),
        ("audit_dropped_total", "Not kept, there were too many.", auditor.dropped + trail.dropped),
    ):
        yield Family(f"headrace_{name}", "counter", explanation, [({}, value)])


class LatencyFamily(Family):
    """A histogram has three kinds of lines."""

    def __init__(self, buckets: dict[str, list[int]], sums: dict[str, int]) -> None:
        super().__init__(
            "headrace_request_seconds",
            "histogram",
            "From the arrival of a request to its reply, waiting included.",
            [],
        )
        self.buckets = buckets
        self.sums = sums

    def lines(self) -> Iterator[str]:
        yield from super().lines()
        for api, counts in self.buckets.items():
            total = 0
            for bits, count in enumerate(counts[:-1]):
                total += count
                limit = (1 << bits) / 1_000_000
                yield f'{self.name}_bucket{{api="{api}",le="{limit!r}"}} {total}'
            total += counts[-1]
            yield f'{self.name}_bucket{{api="{api}",le="+Inf"}} {total}'
            yield f'{self.name}_sum{{api="{api}"}} {self.sums[api] / 1_000_000!r}'
            yield f'{self.name}_count{{api="{api}"}} {total}'
