"""What can be asked about a running instance: what is pending, how it fares, what Prometheus reads.

Answers come from the store and from a snapshot that the service hands out, both from other threads
than its loop, so asking never delays a delivery. Topics are named by their target, as people do.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Any

from headrace.contract.delay_topics import companion_of, target_of
from headrace.services.delay.admin_http import Cursor, Search
from headrace.services.delay.metrics import LATENESS_MS, Counters, counter_families, family
from headrace.services.delay.store import PendingRow, Store

ROWS_PER_LOOK = 200
# A filter that hardly ever fits would scan everything: then a page is short and has a `next`.
MOST_LOOKS = 50
SOON_MS = 60_000
# Counting stops here: "100,000 or more due within the minute" is all that anybody needs to know.
COUNTED_AT_MOST = 100_000

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

    def __init__(self, store: Store, status: Callable[[], ServiceStatus]) -> None:
        self._store = store
        self._status = status

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
            "transactions": counters.settlements,
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
        """One page, over all topics in question, by due time and place."""
        if search.topic is None:
            companions = _companions(self._status())
        else:
            companions = [companion_of(search.topic)]
        looks = [_Look(self._store, companion, search) for companion in companions]
        rows = list(islice(merge(*looks, key=_place), search.limit))
        cut_short = [look.reached for look in looks if look.reached is not None]
        if cut_short:  # a topic was not scanned to the end: what lies behind that is not sure
            rows = [row for row in rows if _place(row) <= min(cut_short)]
            last: Cursor | None = min(cut_short)
        else:
            last = _place(rows[-1]) if len(rows) == search.limit else None
        shown = [_shown(row, values=search.values) for row in rows]
        return {"rows": shown, "next": None if last is None else str(last)}

    # ---- Prometheus

    def metrics(self) -> str:
        now = self._status()
        lines = [*counter_families(now.counters), *self._gauges(now)]
        return "\n".join(lines) + "\n"

    def _gauges(self, now: ServiceStatus) -> Iterator[str]:
        topics = [self._topic(companion, now) for companion in _companions(now)]
        for name, field_name, words in (
            ("pending", "pending", "Messages that wait for their time."),
            ("due_next_minute", "due_next_minute", "Messages due within the next minute."),
        ):
            samples = [({"topic": one["topic"]}, one[field_name]) for one in topics]
            yield from family(f"headrace_delay_{name}", "gauge", words, samples)
        yield from family(
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


class _Look:
    """The rows of one topic that a search asks for, in their order, a few at a time.

    `reached` is set when it gave up before the end: rows up to there were seen.
    """

    def __init__(self, store: Store, companion: str, search: Search) -> None:
        self._store = store
        self._companion = companion
        self._search = search
        self.reached: Cursor | None = None

    def __iter__(self) -> Iterator[PendingRow]:
        search, after = self._search, None
        from_ms = search.from_ms
        if search.after is not None:
            from_ms = max(from_ms or 0, search.after.due_ms)
        for _ in range(MOST_LOOKS):
            rows, after = self._store.find(
                self._companion,
                partition=search.partition,
                id=search.id,
                key=search.key,
                from_ms=from_ms,
                to_ms=search.to_ms,
                after=after,
                limit=ROWS_PER_LOOK,
            )
            for row in rows:
                if search.after is None or _place(row) > search.after:
                    yield row
            if after is None:
                return


def _companions(now: ServiceStatus) -> list[str]:
    return sorted({one.companion for one in now.partitions})


def _place(row: PendingRow) -> Cursor:
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
    """Bytes in JSON: as text if they are text."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
