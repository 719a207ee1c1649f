"""The queries of a running instance: pending messages, statistics, metrics for Prometheus.

Answers come from the store and from a snapshot that the service hands out, both from other threads
than its loop, so asking never delays a delivery. Topics are named by their target, as people do.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.prometheus_text import Family, render
from headrace.services.delay.admin.admin_http import Cursor, Search
from headrace.services.delay.admin.metrics import LATENESS_MS, Counters, counter_families
from headrace.services.delay.timeline.pending_search import PendingRow
from headrace.services.delay.timeline.store import Store
from headrace.wire.contract.delay_topics import companion_of, target_of
from headrace.wire.contract.own_records import skipped_families

SOON_MS = 60_000
# Counting stops here: an exact number of messages due within the minute is not needed beyond it.
COUNTED_AT_MOST = 20_000

REBUILDING, DELIVERING, WAITING = "rebuilding", "delivering", "waiting"


@dataclass(slots=True)
class PartitionStatus:
    """One partition that this instance owns."""

    companion: str
    partition: int
    state: str  # REBUILDING, DELIVERING, or WAITING (see `problem`)
    position: int = 0  # the next record of the companion to read
    ready_at: int = 0  # rebuilding ends when the position has reached this
    problem: str | None = None  # why it does not deliver: what to do, in one sentence


@dataclass(slots=True)
class ServiceStatus:
    """A snapshot, made by the loop and not changed afterwards."""

    instance: str
    group: str
    started_at_ms: int
    now_ms: int  # by the service's own clock, which decides what is due
    counters: Counters
    partitions: list[PartitionStatus] = field(default_factory=list)
    problem: str | None = None  # of the instance as a whole


class DelayQueries:
    """Answers for `admin_http`."""

    def __init__(
        self,
        store: Store,
        status: Callable[[], ServiceStatus],
        store_taken: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._status = status
        self._store_taken = store_taken

    def health(self) -> Mapping[str, Any]:
        now = self._status()
        return {
            "ok": now.problem is None,
            "instance": now.instance,
            "problem": now.problem,
            "partitions": len(now.partitions),
            "rebuilding": sum(one.state == REBUILDING for one in now.partitions),
        }

    def stats(self) -> Mapping[str, Any]:
        now = self._status()
        counters = now.counters
        return {
            "instance": now.instance,
            "group": now.group,
            "started_at_ms": now.started_at_ms,
            "now_ms": now.now_ms,
            "problem": now.problem,
            "topics": [self._topic(companion, now) for companion in _companions(now)],
            "taken": counters.taken,
            "delivered": counters.delivered,
            "outcomes": counters.cancelled,
            "rejected": counters.rejected,
            "transactions": counters.transactions,
            "aborted": counters.aborted,
            # Upper bound in ms (null: none) and how many were at most so late, as in a histogram.
            "lateness_ms": [
                [bound, count]
                for bound, count in zip(
                    [*LATENESS_MS, None], counters.lateness_buckets, strict=True
                )
            ],
        }

    def _topic(self, companion: str, now: ServiceStatus) -> dict[str, Any]:
        owned = [one for one in now.partitions if one.companion == companion]
        return {
            "topic": target_of(companion),
            "pending": self._store.count_pending(companion),
            "due_next_minute": self._store.count_due_before(
                now.now_ms + SOON_MS, companion, COUNTED_AT_MOST
            ),
            "partitions": [
                {
                    "partition": one.partition,
                    "state": one.state,
                    "position": one.position,
                    "ready_at": one.ready_at,
                    "problem": one.problem,
                }
                for one in sorted(owned, key=lambda one: one.partition)
            ],
        }

    # ---- what is pending

    def pending(self, search: Search) -> Mapping[str, Any]:
        """Returns one page, over all topics in question, by due time and place."""
        self._store_taken()
        now = self._status()
        asked = _companions(now) if search.topic is None else [companion_of(search.topic)]
        found = [self._page(companion, search) for companion in asked]
        rows = sorted((row for page, _ in found for row in page), key=_cursor_of)
        # A topic that has more was seen only up to there; what others have behind that comes later.
        ends = [end for _, end in found if end is not None]
        rows = [row for row in rows if not ends or _cursor_of(row) <= min(ends)]
        following = min(ends, default=None)
        if len(rows) > search.limit:
            rows = rows[: search.limit]
            following = _cursor_of(rows[-1])
        return {
            "rows": [_shown(row, values=search.values) for row in rows],
            "next": None if following is None else str(following),
            "now_ms": now.now_ms,
            "complete": sum(
                one.state != REBUILDING and one.companion in asked for one in now.partitions
            ),
        }

    def _page(self, companion: str, search: Search) -> tuple[list[PendingRow], Cursor | None]:
        """Returns a page of one topic, and how far it reaches if there is more."""
        topic, last = target_of(companion), search.after
        from_ms, after = search.from_ms or 0, None
        if last is not None and last.topic == topic:
            after = f"{last.due_ms}-{last.partition}-{last.offset}"
        elif last is not None:  # at the same due time topics come in the order of their names
            from_ms = max(from_ms, last.due_ms + (topic < last.topic))
        rows, more = self._store.find(
            companion,
            partition=search.partition,
            id=search.id,
            key=search.key,
            from_ms=from_ms,
            to_ms=search.to_ms,
            after=after,
            limit=search.limit,
        )
        if more is None:
            return rows, None
        due_ms, partition, offset = map(int, more.split("-"))
        return rows, Cursor(due_ms, topic, partition, offset)

    # ---- Prometheus

    def metrics(self) -> str:
        now = self._status()
        families = [*counter_families(now.counters), *self._gauges(now), *skipped_families()]
        return render(families)

    def _gauges(self, now: ServiceStatus) -> Iterator[Family]:
        topics = [self._topic(companion, now) for companion in _companions(now)]
        for name, field_name, words in (
            ("pending", "pending", "Messages that wait for their time."),
            ("due_next_minute", "due_next_minute", "Messages due within the next minute."),
        ):
            samples = [({"topic": one["topic"]}, one[field_name]) for one in topics]
            yield Family(f"headrace_delay_{name}", "gauge", words, samples)
        waiting = Counter(one.companion for one in now.partitions if one.state == WAITING)
        yield Family(
            "headrace_delay_waiting_partitions",
            "gauge",
            "Partitions whose target takes nothing now; `headrace delay stats` says why.",
            [({"topic": target_of(one)}, waiting[one]) for one in _companions(now)],
        )
        yield Family(
            "headrace_delay_rebuild_missing_records",
            "gauge",
            "Records to read before a partition delivers again.",
            [
                (
                    {"topic": target_of(one.companion), "partition": one.partition},
                    max(one.ready_at - one.position, 0),
                )
                for one in now.partitions
                if one.state == REBUILDING
            ],
        )


def _companions(now: ServiceStatus) -> list[str]:
    return sorted({one.companion for one in now.partitions})


def _cursor_of(row: PendingRow) -> Cursor:
    return Cursor(row.due_ms, target_of(row.topic), row.partition, row.offset)


def _shown(row: PendingRow, *, values: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "topic": target_of(row.topic),
        "partition": row.partition,
        "offset": row.offset,
        "due_ms": row.due_ms,
        "accepted_ms": row.appended_ms,
        "id": row.id,
        **_field("key", row.key),
        "size": len(row.value or b""),
        "target_partition": row.target_partition,
        "cron": None,
    }
    if row.cron is not None:
        expression, zone, until_ms, count = row.cron
        shown["cron"] = {
            "expression": expression,
            "zone": zone,
            "until_ms": until_ms,
            "count": count,
        }
    if values:
        shown |= _field("value", row.value)
        shown["headers"] = [{"name": name} | _field("value", value) for name, value in row.headers]
    return shown


def _field(name: str, value: bytes | None) -> dict[str, str | None]:
    """Returns bytes for JSON: as text if they are UTF-8."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
