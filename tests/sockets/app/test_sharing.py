"""Workers share a group: partitions come and go, the broker restarts, topics grow."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import App, Message, Retry
from headrace.client import Admin
from headrace.testing import Broker
from tests.interop.brokers import free_port
from tests.sockets.app.conftest import Cluster

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """At a port that no other program takes while the broker restarts."""
    with Broker(port=free_port()) as broker:
        yield Cluster(broker)


def make(cluster: Any, seen: list[tuple[int, str]], number: int, **options: Any) -> App:
    app = App(cluster.bootstrap, group="g")

    @app.on("orders", **options)
    def handle(value: str) -> None:
        seen.append((number, value))

    return app


def test_a_second_worker_takes_its_share_and_nothing_is_handled_twice(cluster: Any) -> None:
    cluster.topic("orders", partitions=4)
    seen: list[tuple[int, str]] = []
    first, second = (make(cluster, seen, n, concurrency=4, order_by="key") for n in (1, 2))
    with first.running():
        for number in range(200):
            first.send("orders", str(number), key=str(number))
        cluster.until(lambda: len(seen) == 200)
        with second.running():
            worker, other = first.worker, second.worker
            assert worker is not None and other is not None
            cluster.until(lambda: len(worker.intake.owned) == 2 and len(other.intake.owned) == 2)
            for number in range(200, 400):
                first.send("orders", str(number), key=str(number))
            cluster.until(lambda: len(seen) == 400)
        cluster.until(lambda: len(worker.intake.owned) == 4)
        first.send("orders", "last")
        cluster.until(lambda: len(seen) == 401)
    counts = Counter(value for _, value in seen)
    assert set(counts.values()) == {1}


def test_a_partition_that_goes_waits_for_its_handler(cluster: Any) -> None:
    cluster.topic("orders", partitions=2)
    release, begun = threading.Event(), threading.Event()
    done: list[str] = []
    first = App(cluster.bootstrap, group="g")

    @first.on("orders", concurrency=4)
    def slow(value: str) -> None:
        begun.set()
        release.wait(90)
        done.append(value)

    second = App(cluster.bootstrap, group="g")

    @second.on("orders", concurrency=4)
    def quick(value: str) -> None:
        done.append(f"again {value}")

    with first.running():
        for partition in (0, 1):
            first.send("orders", str(partition), partition=partition).result()
        assert begun.wait(60)
        with second.running():
            threading.Timer(0.5, release.set).start()
            cluster.until(lambda: len(done) == 2)
            other = second.worker
            assert other is not None
            cluster.until(lambda: len(other.intake.owned) == 1)
    assert sorted(done) == ["0", "1"]


def test_a_broker_that_restarts_is_found_again(cluster: Any) -> None:
    cluster.topic("orders")
    seen: list[tuple[int, str]] = []
    app = make(cluster, seen, 1, order_by="key", retry=Retry(attempts=2, first="5s", longest="5s"))
    with app.running():
        app.send("orders", "before").result()
        cluster.until(lambda: len(seen) == 1)
        cluster.broker.restart()
        app.send("orders", "after").result()
        cluster.until(lambda: {value for _, value in seen} == {"before", "after"})
    assert cluster.committed("g")["orders", 0] == 2


def test_partitions_are_taken_over_soon_after_the_broker_started_anew(cluster: Any) -> None:
    """It has new epochs then; a worker that asked with the old ones began nothing for minutes."""
    cluster.topic("orders", partitions=4)
    seen: list[tuple[int, str]] = []
    first, second = (make(cluster, seen, n, concurrency=4, order_by="key") for n in (1, 2))
    with first.running():
        worker = first.worker
        assert worker is not None
        with second.running():
            other = second.worker
            assert other is not None
            cluster.until(lambda: len(worker.intake.owned) == 2 and len(other.intake.owned) == 2)
            cluster.broker.restart()
            first.send("orders", "after the restart").result()
            cluster.until(lambda: len(seen) == 1)
        cluster.until(lambda: len(worker.intake.owned) == 4)


def test_a_topic_that_grows_and_one_that_comes_later_are_handled_with_their_retries(
    cluster: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("headrace.app.worker.worker.LOOK_FOR_TOPICS_S", 0.2)
    cluster.topic("shop.orders")
    app = App(
        cluster.bootstrap,
        group="g",
        clock=cluster.broker.clock.wall_ms,
        settings={"topic.metadata.refresh.interval.ms": 200},
    )
    seen: list[tuple[str, str, int]] = []

    @app.on(r"^shop\..*", order_by="key", retry=Retry(attempts=2, first="1m", longest="1m"))
    async def handle(value: str, message: Message) -> None:
        seen.append((message.topic, value, message.attempt))
        if value.startswith("bad") and message.attempt == 1:
            raise OSError

    with app.running():
        worker = app.worker
        assert worker is not None
        Admin(cluster.bootstrap).topics.grow("shop.orders", partitions=2)
        cluster.topic("shop.bills")
        cluster.until(lambda: len(worker.intake.owned) == 3)
        app.send("shop.orders", "bad 1", key="a", partition=1)
        app.send("shop.bills", "bad 2", key="b")
        cluster.until(lambda: len(cluster.records("shop.orders.g.retry")) == 1)
        cluster.until(lambda: len(cluster.records("shop.bills.g.retry")) == 1)
        cluster.broker.advance(minutes=2)
        cluster.until(lambda: len(seen) == 4)
    assert sorted(seen) == [
        ("shop.bills", "bad 2", 1),
        ("shop.bills", "bad 2", 2),
        ("shop.orders", "bad 1", 1),
        ("shop.orders", "bad 1", 2),
    ]


def test_a_partition_that_was_paused_when_it_went_is_read_when_it_comes_back(
    cluster: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("headrace.app.worker.intake.MOST_PER_PARTITION", 20)
    cluster.topic("orders", partitions=2)
    release = threading.Event()
    seen: set[str] = set()

    def worker_of() -> App:
        app = App(cluster.bootstrap, group="g")

        @app.on("orders")
        def handle(value: str) -> None:
            release.wait(90)
            seen.add(value)

        return app

    first, second = worker_of(), worker_of()
    with first.running():
        worker = first.worker
        assert worker is not None
        for number in range(100):
            first.send("orders", str(number), partition=number % 2)
        owned = worker.intake.owned
        cluster.until(lambda: [one.paused for one in list(owned.values())] == [True, True])
        with second.running():
            cluster.until(
                lambda: len(owned) == 1 or any(one.closing for one in list(owned.values()))
            )
            release.set()
            cluster.until(lambda: second.worker and len(second.worker.intake.owned) == 1)
        cluster.until(lambda: len(owned) == 2)
        for partition in (0, 1):
            first.send("orders", f"last of {partition}", partition=partition)
        cluster.until(lambda: {"last of 0", "last of 1"} <= seen)
    assert len(seen) == 102
