"""The counters of each program, with known numbers: what the files in this folder tell of."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from headrace.app.observation.observer import Stats
from headrace.services.http.counters import Counters as DoorCounters
from headrace.services.outbox.metrics import ConfirmationCounters, ShardCounters, ShardState
from headrace.services.shipping.counters import Counters as ShipperCounters
from headrace.services.tracking.collector import CollectorLimits, Ledger
from headrace.services.tracking.collector import Counters as TrackCounters

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
DEAD_LETTERS = {"orders.g.dead": (2, 1_763_000_000.25), "a.g.dead": (0, None)}
GAUGES = {"files_open": ("Files that are followed.", 3), "streams": ("Streams.", 0.5)}


def an_app(*, runs: bool) -> Any:
    """With two handlers; while it runs, one of them has records that wait."""
    first = SimpleNamespace(
        name='orders "new"',
        stats=Stats(received=7, handled=4, failed=2, put_off=1, retried=1, parked=1, duplicates=3,
                    published=5, in_flight=2, busy_seconds=0.125),
    )  # fmt: skip
    second = SimpleNamespace(name="payments", stats=Stats(received=3_000_000))
    runner = SimpleNamespace(subscription=first, waiting=9, put_off_now=lambda: 4)
    worker = SimpleNamespace(runners=[runner]) if runs else None
    return SimpleNamespace(group="g", subscriptions=[first, second], worker=worker)


def a_door() -> DoorCounters:
    counters = DoorCounters(records_in=5, records_out=6, replayed=1, gaps=2, stalled=3)
    counters.requests.update({("produce", 200): 10, ("fetch", 404): 1, ("fetch", 200): 3})
    counters.seconds.update({"produce": 1.5, "fetch": 0.1 + 0.2})
    return counters


def a_collector() -> Any:
    ledger = Ledger()
    ledger.taken, ledger.written, ledger.lost, ledger.bytes = 12, 6, 1, 4_096
    counters = TrackCounters(
        Counter({200: 4, 415: 1}), Counter({"page-views": 2, "clicks": 9}), Counter({"visitor": 1})
    )
    return SimpleNamespace(counters=counters, ledger=ledger, limits=CollectorLimits(queue=500))


def a_pipeline() -> Any:
    """The folder of one, as it was at NOON."""
    progress = {"rows_total": 60, "dead": 2, "batch": 7, "behind": 11, "state_rows": None,
                "took_ms": 1_250, "rows_per_second": 48.5, "time": "2026-01-31T11:59:58.500Z",
                "event_time": "2026-01-31T11:00:00.000Z"}  # fmt: skip
    compaction = {"compactions": 1, "files_compacted": 24, "compaction_ms": 830.5}
    return SimpleNamespace(name="revenue", progress=lambda: progress, compaction=lambda: compaction)


def a_relay() -> tuple[str, ShardCounters, int, list[ShardState], ConfirmationCounters, int]:
    counters = ShardCounters()
    counters.sent(40, 0.5)
    counters.parked = 2
    shards = [
        ShardState(0, "a", 17, 3, 1_500, 0, None, 20.5),
        ShardState(1, None, None, 0, None, 2, "the cluster is away", 0.0),
    ]
    return "relay-1", counters, 1, shards, ConfirmationCounters(4, 1, 6, 2), 81_920


def a_shipper() -> ShipperCounters:
    return ShipperCounters(lines=5, bytes_read=1_234_567_890_123, written=4, bad=1, waits=2)
