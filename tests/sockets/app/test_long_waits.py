"""Waits longer than memory keeps them: through the retry topic, by the order that was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace import App, Message, Retry
from headrace.app.dispatch import owned_partition
from headrace.app.dispatch.blocked_keys import BlockedKeys
from headrace.testing import Broker
from tests.sockets.app.conftest import Cluster

pytestmark = pytest.mark.integration

SLOWLY = Retry(attempts=4, first="1m", longest="10m", jitter=0)


@pytest.fixture
def delayed() -> Iterator[Cluster]:
    with Broker(delay=True) as broker:
        yield Cluster(broker)


def app_on(cluster: Any, **more: Any) -> App:
    return App(cluster.bootstrap, group="billing", clock=cluster.broker.clock.wall_ms, **more)


class Log:
    """A handler that fails as it is told, and remembers what it was given."""

    def __init__(self, fails: dict[str, int]) -> None:
        self.fails = fails  # value -> so many attempts fail
        self.seen: list[tuple[str, int]] = []

    def __call__(self, value: str, message: Message) -> None:
        self.seen.append((value, message.attempt))
        if message.attempt <= self.fails.get(value, 0):
            raise OSError(f"{value} not yet")


def test_a_failed_record_keeps_its_key_waiting_and_no_other(cluster: Any) -> None:
    cluster.topic("orders")
    app = app_on(cluster)
    log = Log({"a1": 2})
    app.on("orders", retry=SLOWLY, order_by="key", concurrency=8)(log)
    stats = app.subscriptions[0].stats
    with app.running():
        for value in ("a1", "b1", "a2", "c1", "a3", "b2"):
            app.send("orders", value, key=value[0])
        cluster.until(lambda: len(log.seen) == 4)
        assert sorted(log.seen) == [("a1", 1), ("b1", 1), ("b2", 1), ("c1", 1)]
        cluster.until(lambda: len(cluster.records("orders.billing.retry")) == 3)
        # Their source offsets are committed with them: nothing is read twice.
        cluster.until(lambda: cluster.committed("billing")["orders", 0] == 6)

        cluster.broker.advance(seconds=20)
        app.send("orders", "a4", key="a")
        cluster.until(lambda: len(cluster.records("orders.billing.retry")) == 4)
        assert len(log.seen) == 4
        cluster.broker.advance(seconds=50)
        cluster.until(lambda: ("a1", 2) in log.seen)
        cluster.until(lambda: stats.retried == 2)
        cluster.broker.advance(minutes=2)
        cluster.until(lambda: stats.handled == 7)
        app.send("orders", "a5", key="a")
        cluster.until(lambda: stats.handled == 8)
    of_a = [one for one in log.seen if one[0][0] == "a"]
    assert of_a == [
        ("a1", 1), ("a1", 2), ("a1", 3), ("a2", 1), ("a3", 1), ("a4", 1), ("a5", 1),
    ]  # fmt: skip
    retry_end = cluster.committed("billing")["orders.billing.retry", 0]
    assert retry_end is not None and retry_end > 4  # copies and the markers of transactions


def test_blocked_keys_are_found_again_by_the_next_owner(cluster: Any) -> None:
    cluster.topic("orders", partitions=2)
    log = Log({"a1": 2, "b1": 1})
    app = app_on(cluster)
    app.on("orders", retry=SLOWLY, order_by="key", concurrency=8)(log)
    with app.running():
        for value in ("a1", "b1", "a2", "b2", "c1"):
            app.send("orders", value, key=value[0])
        cluster.until(lambda: len(cluster.records("orders.billing.retry")) == 4)
        cluster.until(lambda: len(log.seen) == 3)

    later = app_on(cluster)
    later.on("orders", retry=SLOWLY, order_by="key", concurrency=8)(log)
    with later.running():
        for value in ("a3", "b3", "c2"):
            later.send("orders", value, key=value[0])
        cluster.until(lambda: ("c2", 1) in log.seen)
        cluster.broker.advance(minutes=1, seconds=1)
        cluster.until(lambda: ("b3", 1) in log.seen and ("a1", 2) in log.seen)
        cluster.until(lambda: later.subscriptions[0].stats.retried == 1)

    last = app_on(cluster)
    last.on("orders", retry=SLOWLY, order_by="key", concurrency=8)(log)
    with last.running():
        cluster.broker.advance(minutes=2, seconds=1)
        cluster.until(lambda: ("a3", 1) in log.seen)
    for key, expected in {
        "a": [("a1", 1), ("a1", 2), ("a1", 3), ("a2", 1), ("a3", 1)],
        "b": [("b1", 1), ("b1", 2), ("b2", 1), ("b3", 1)],
        "c": [("c1", 1), ("c2", 1)],
    }.items():
        assert [one for one in log.seen if one[0][0] == key] == expected


def test_a_hot_key_that_fails_fills_its_partition_to_the_bound_and_no_further(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned_partition, "BlockedKeys", lambda: BlockedKeys(20))
    cluster.topic("orders")
    log = Log({"a0": 1})
    app = app_on(cluster)
    app.on("orders", retry=SLOWLY, order_by="key", concurrency=8)(log)
    with app.running():
        for number in range(25):
            app.send("orders", f"a{number}", key="a")
        assert app.worker is not None
        owned = app.worker.intake.owned
        cluster.until(lambda: ("orders", 0) in owned and owned["orders", 0].paused)
        for number in range(5):
            app.send("orders", f"b{number}", key="b")
        app.sender.producer.flush(60)
        assert log.seen == [("a0", 1)]
        cluster.broker.advance(minutes=1, seconds=1)
        cluster.until(lambda: app.subscriptions[0].stats.handled == 30)
        cluster.until(lambda: not owned["orders", 0].paused)
    assert [one for one in log.seen if one[0][0] == "a"] == [
        *[("a0", 1), ("a0", 2)],
        *[(f"a{number}", 1) for number in range(1, 25)],
    ]
    assert cluster.committed("billing")["orders", 0] == 30


def test_in_order_of_a_key_a_record_that_is_parked_lets_the_others_go(cluster: Any) -> None:
    cluster.topic("orders")
    app = app_on(cluster)
    log = Log({"a1": 9})
    app.on("orders", retry=Retry(attempts=2, first="1m", longest="1m"), order_by="key")(log)
    with app.running():
        for value in ("a1", "a2"):
            app.send("orders", value, key="a")
        cluster.until(lambda: len(cluster.records("orders.billing.retry")) == 2)
        cluster.broker.advance(minutes=2)
        cluster.until(lambda: ("a2", 1) in log.seen)
    [dead] = cluster.records("orders.billing.dead")
    assert dead.value == b"a1"
    assert dead.header("headrace-dead-attempts") == b"2"
    assert dead.header("headrace-dead-offset") == b"0"
    first, last = dead.header("headrace-dead-first-at"), dead.header("headrace-dead-last-at")
    assert first and last and int(last) - int(first) >= 60_000


def test_in_order_of_a_partition_everything_waits_in_its_place(cluster: Any) -> None:
    cluster.topic("orders")
    app = app_on(cluster)
    log = Log({"a1": 2})
    app.on("orders", retry=SLOWLY, order_by="partition", concurrency=8)(log)
    stats = app.subscriptions[0].stats
    with app.running():
        for value in ("a1", "b1", "a2"):
            app.send("orders", value, key=value[0])
        cluster.until(lambda: stats.retried == 1)  # its wait has begun, by the clock as it was
        assert log.seen == [("a1", 1)]
        cluster.broker.advance(minutes=1, seconds=1)
        cluster.until(lambda: stats.retried == 2)
        cluster.broker.advance(minutes=2, seconds=1)
        cluster.until(lambda: len(log.seen) == 5)
    assert log.seen == [("a1", 1), ("a1", 2), ("a1", 3), ("b1", 1), ("a2", 1)]
    assert cluster.records("orders.billing.retry") == []


def test_without_order_it_comes_back_through_the_delay_service(delayed: Any) -> None:
    delayed.topic("orders", partitions=2)
    app = app_on(delayed)
    log = Log({"a1": 3})
    app.on("orders", retry=SLOWLY)(log)
    stats = app.subscriptions[0].stats
    with app.running():
        app.send("orders", "a1", key="a", headers={"headrace-message-id": "order-1"})
        app.send("orders", "a2", key="a")
        delayed.until(lambda: ("a2", 1) in log.seen)
        for made in (1, 2, 3):
            delayed.until(
                lambda made=made: len(delayed.records("orders.billing.retry.delay")) == made
            )
            delayed.broker.advance(minutes=2 ** (made - 1), seconds=1)
            delayed.until(lambda made=made: ("a1", made + 1) in log.seen)
        delayed.until(lambda: stats.handled == 2)
    assert [one for one in log.seen if one[0] == "a1"] == [("a1", n) for n in (1, 2, 3, 4)]
    ids = {r.header("headrace-retry-message-id") for r in delayed.records("orders.billing.retry")}
    assert ids == {b"order-1"}


def test_without_order_and_without_a_delay_service_its_owner_waits(cluster: Any) -> None:
    cluster.topic("orders")
    log = Log({"a1": 1, "b1": 1})
    app = app_on(cluster, delay="off")
    app.on("orders", retry=SLOWLY)(log)
    with app.running():
        for value in ("a1", "a2", "b1"):
            app.send("orders", value)
        cluster.until(lambda: len(cluster.records("orders.billing.retry")) == 2)
        cluster.until(lambda: len(log.seen) == 3)
        assert sorted(log.seen) == [("a1", 1), ("a2", 1), ("b1", 1)]
        cluster.broker.advance(minutes=1, seconds=1)
        cluster.until(lambda: len(log.seen) == 5)
        cluster.until(lambda: app.subscriptions[0].stats.in_flight == 0)
    assert sorted(log.seen[3:]) == [("a1", 2), ("b1", 2)]
