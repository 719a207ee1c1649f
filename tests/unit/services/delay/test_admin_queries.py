"""What a running instance tells of itself, from a real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client.delay.instances import together
from headrace.services.delay.admin.admin_http import Cursor, Search
from headrace.services.delay.admin.metrics import Counters
from headrace.services.delay.queries import (
    DELIVERING,
    REBUILDING,
    WAITING,
    DelayQueries,
    PartitionStatus,
    ServiceStatus,
)
from headrace.services.delay.timeline.pending import Changes
from headrace.services.delay.timeline.rows import Row
from headrace.services.delay.timeline.store import Store

NOW_MS = 1_000_000


class Instance:
    """A store with rows, and the queries on it."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.status = ServiceStatus("one", "group", NOW_MS - 5_000, NOW_MS, Counters())
        self.queries = DelayQueries(self.store, lambda: self.status)

    def hold(self, topic: str, partition: int, *rows: tuple[int, int, str | None, bytes]) -> None:
        """(due, offset, id, key) of each."""
        kept = self.store.partition(f"{topic}.delay", partition, "cluster")
        put: list[Row] = [
            (due_ms, offset, (key, b"value", [("trace", b"\xff")], None, 7, id, None))
            for due_ms, offset, id, key in rows
        ]
        ids = {id: (due_ms, offset) for due_ms, offset, id, _ in rows if id is not None}
        kept.apply(Changes(100, (0, 0), 0, [], len(put), put, ids=ids))
        self.status.partitions.append(
            PartitionStatus(f"{topic}.delay", partition, DELIVERING, 100, 90)
        )

    def places(self, **wanted: Any) -> list[tuple[str, int, int]]:
        rows = self.queries.pending(Search(**wanted))["rows"]
        return [(row["topic"], row["partition"], row["offset"]) for row in rows]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path / "store")
    yield made
    made.store.close()


def test_a_message_is_shown_with_all_that_people_ask_for(instance: Instance) -> None:
    instance.hold("orders", 2, (NOW_MS + 5, 17, "order-42", b"\xfe"))
    [row] = instance.queries.pending(Search(values=True))["rows"]
    assert row == {
        "topic": "orders",
        "partition": 2,
        "offset": 17,
        "due_ms": NOW_MS + 5,
        "accepted_ms": 7,
        "id": "order-42",
        "key_base64": "/g==",
        "size": 5,
        "target_partition": 2,
        "cron": None,
        "value": "value",
        "headers": [{"name": "trace", "value_base64": "/w=="}],
    }
    [row] = instance.queries.pending(Search())["rows"]
    assert "value" not in row


def test_one_asks_by_topic_partition_id_key_and_time(instance: Instance) -> None:
    instance.hold("orders", 0, (10, 0, "a", b"k"), (20, 1, None, b"l"))
    instance.hold("orders", 1, (15, 0, "a", b"k"))
    instance.hold("bills", 0, (12, 0, None, b"k"))
    everything = [("orders", 0, 0), ("bills", 0, 0), ("orders", 1, 0), ("orders", 0, 1)]
    assert instance.places() == everything
    assert instance.places(topic="bills") == [("bills", 0, 0)]
    assert instance.places(topic="nowhere") == []
    assert instance.places(topic="orders", partition=1) == [("orders", 1, 0)]
    assert instance.places(topic="orders", id="a") == [("orders", 0, 0), ("orders", 1, 0)]
    assert instance.places(key=b"l") == [("orders", 0, 1)]
    assert instance.places(from_ms=12, to_ms=20) == everything[1:3]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_follow_each_other_without_gap_or_double(instance: Instance, limit: int) -> None:
    for topic in ("a", "b", "c"):
        for partition in range(3):
            rows = [(n // 2, n, None, b"k") for n in range(8)]  # pairs of equal due times
            instance.hold(topic, partition, *rows)
    seen: list[Any] = []
    after: str | None = None
    while True:
        page = instance.queries.pending(
            Search(limit=limit, after=None if after is None else Cursor.parse(after), from_ms=1)
        )
        assert len(page["rows"]) <= limit
        seen += [(r["due_ms"], r["topic"], r["partition"], r["offset"]) for r in page["rows"]]
        after = page["next"]
        if after is None:
            break
    wanted = [(n // 2, t, p, n) for t in "abc" for p in range(3) for n in range(2, 8)]
    assert seen == sorted(wanted)


def test_statistics_count_what_waits_and_tell_who_has_what(instance: Instance) -> None:
    instance.hold("orders", 1, (NOW_MS + 59_000, 0, None, b"k"), (NOW_MS + 61_000, 1, None, b"k"))
    instance.status.partitions.append(PartitionStatus("orders.delay", 0, REBUILDING, 40, 100))
    instance.status.counters.late(4)
    told = instance.queries.stats()
    [topic] = told["topics"]
    assert (topic["topic"], topic["pending"], topic["due_next_minute"]) == ("orders", 2, 1)
    assert [(p["partition"], p["state"]) for p in topic["partitions"]] == [
        (0, "rebuilding"),
        (1, "delivering"),
    ]
    assert sum(count for _, count in told["lateness_ms"]) == 1
    assert instance.queries.pending(Search())["complete"] == 1
    assert instance.queries.pending(Search(topic="bills"))["complete"] == 0


def test_health_and_metrics(instance: Instance) -> None:
    instance.hold("orders", 1, (NOW_MS + 59_000, 0, None, b"k"))
    instance.status.partitions.append(PartitionStatus("orders.delay", 0, REBUILDING, 40, 100))
    instance.status.partitions.append(PartitionStatus("lost.delay", 0, WAITING, 0, 0, "no topic"))
    assert instance.queries.health()["ok"]
    lines = instance.queries.metrics().splitlines()
    assert 'headrace_delay_pending{topic="orders"} 1' in lines
    assert 'headrace_delay_due_next_minute{topic="orders"} 1' in lines
    assert 'headrace_delay_rebuild_missing_records{topic="orders",partition="0"} 60' in lines
    assert 'headrace_delay_waiting_partitions{topic="lost"} 1' in lines
    assert 'headrace_delay_waiting_partitions{topic="orders"} 0' in lines
    instance.status.problem = "no broker answers"
    assert not instance.queries.health()["ok"]


def test_pages_of_two_instances_become_one(tmp_path: Path) -> None:
    one, other = Instance(tmp_path / "one"), Instance(tmp_path / "other")
    one.hold("t", 0, *((n, n, None, b"k") for n in range(0, 20, 2)))
    other.hold("t", 1, *((n, n, None, b"k") for n in range(1, 8, 2)))
    seen: list[int] = []
    after = None
    while True:
        search = Search(limit=3, after=after)
        page = together([each.queries.pending(search) for each in (one, other)], 3, expected=5)
        assert page.missing == 3  # of five partitions two are here
        seen += [row["due_ms"] for row in page.rows]
        if page.next is None:
            break
        after = Cursor.parse(page.next)
    assert seen == sorted([*range(2, 20, 2), *range(1, 8, 2)])
    one.store.close()
    other.store.close()


def test_a_rare_key_is_found_over_pages_that_are_short(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.services.delay.timeline.pending_search.SCANNED_PER_PAGE", 3)
    often = [(n, n, None, b"often") for n in range(1, 20)]
    instance.hold("a", 0, *often, (20, 20, None, b"rare"))
    instance.hold("b", 0, (5, 1, None, b"rare"), (30, 2, None, b"rare"))
    seen: list[int] = []
    after: Cursor | None = None
    while True:
        page = instance.queries.pending(Search(key=b"rare", after=after))
        seen += [row["due_ms"] for row in page["rows"]]
        if page["next"] is None:
            break
        after = Cursor.parse(page["next"])
    assert seen == [5, 20, 30]


def test_an_instance_that_has_not_looked_further_holds_the_others_back() -> None:
    def page(dues: list[int], next: str | None) -> dict[str, Any]:
        rows = [{"due_ms": due, "topic": "t", "partition": 0, "offset": due} for due in dues]
        return {"rows": rows, "next": next, "now_ms": 0, "complete": 1}

    both = together([page([1], "5/t/0/5"), page([2, 9], None)], 10, expected=2)
    assert ([row["due_ms"] for row in both.rows], both.next) == ([1, 2], "5/t/0/5")
