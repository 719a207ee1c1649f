"""A topic is deleted and created again under its name: everything in the new one is new work."""

from __future__ import annotations

import logging
from typing import Any, Literal

import pytest
from confluent_kafka import Consumer, TopicPartition
from sqlalchemy import create_engine

from headrace import App, Message, Retry
from headrace.app import Sql
from headrace.app.dispatch.completion import topic_id_in
from headrace.app.worker import topic_ids

pytestmark = pytest.mark.integration

LONGER_THAN_MEMORY = Retry(attempts=3, first="2s1ms", longest="3s", jitter=0)


def test_once_knows_the_records_of_the_new_topic_from_those_of_the_old_one(
    cluster: Any, tmp_path: Any
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    seen: list[str] = []

    def billing() -> App:
        app = App(cluster.bootstrap, group="billing")

        @app.on("orders", once=Sql(engine))
        def bill(order: str) -> None:
            seen.append(order)

        return app

    cluster.topic("orders")
    with (app := billing()).running():
        for number in range(40):
            app.send("orders", f"old {number}")
        cluster.until(lambda: len(seen) == 40)
    cluster.made_anew("orders")
    with (app := billing()).running():
        for number in range(40):
            app.send("orders", f"new {number}")
        cluster.until(lambda: len(seen) == 80, "the new records were skipped")
        assert app.subscriptions[0].stats.duplicates == 0
    assert sorted(seen[40:]) == sorted(f"new {number}" for number in range(40))
    engine.dispose()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("new", [3, 5, 8])
def test_a_running_app_reads_the_new_topic_from_its_beginning(
    cluster: Any, caplog: Any, new: int, protocol: str
) -> None:
    """Fewer records than the old topic had, as many, and more."""
    app = App(cluster.bootstrap, group="g", settings={"group.protocol": protocol})
    seen: list[str] = []

    @app.on("orders")
    def take(order: str) -> None:
        seen.append(order)

    cluster.topic("orders")
    with caplog.at_level(logging.INFO), app.running():
        for number in range(5):
            app.send("orders", f"old {number}")
        cluster.until(lambda: len(seen) == 5)
        cluster.made_anew("orders")
        wanted = {f"new {number}" for number in range(new)}
        for order in sorted(wanted):
            app.send("orders", order)
        cluster.until(lambda: wanted <= set(seen), "records of the new topic were left out")
    assert cluster.committed("g")["orders", 0] == new


def test_a_topic_made_anew_with_fewer_partitions_goes_on_with_those(cluster: Any) -> None:
    app = App(cluster.bootstrap, group="g")
    seen: list[str] = []

    @app.on("orders")
    def take(order: str) -> None:
        seen.append(order)

    cluster.topic("orders", partitions=3)
    with app.running():
        for partition in range(3):
            app.send("orders", f"old {partition}", partition=partition)
        cluster.until(lambda: len(seen) == 3)
        cluster.made_anew("orders", partitions=1)
        app.send("orders", "new", partition=0).result(60)
        cluster.until(lambda: "new" in seen)


def test_a_retry_keeps_the_id_of_the_topic_that_it_came_from(cluster: Any) -> None:
    app = App(cluster.bootstrap, group="g")
    ids: list[tuple[str, int]] = []

    @app.on("orders", order_by="key", retry=LONGER_THAN_MEMORY)
    def take(order: str, message: Message) -> None:
        ids.append((message.id, message.attempt))
        if message.attempt == 1:
            raise LookupError("not yet")

    cluster.topic("orders")
    expected = f"orders/0/0@{cluster.topic_id('orders')}"
    with app.running():
        app.send("orders", "a", key="k")
        cluster.until(lambda: len(ids) == 2)
    assert ids == [(expected, 1), (expected, 2)]
    [copy] = cluster.records("orders.g.retry")
    assert copy.header("headrace-retry-message-id") == expected.encode()


@pytest.fixture
def rarely_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look of every two seconds notices nothing: what is promised must not depend on it."""
    monkeypatch.setattr(topic_ids, "LOOK_EVERY_S", 3_600.0)


def handled_anew(cluster: Any, app: App, seen: list[str]) -> None:
    """Five records, then eight in another topic of the name, each of them seen once."""
    cluster.topic("orders")
    with app.running():
        for number in range(5):
            app.send("orders", f"old {number}")
        cluster.until(lambda: len(seen) == 5)
        cluster.made_anew("orders")
        wanted = [f"new {number}" for number in range(8)]
        for order in wanted:
            app.send("orders", order)
        cluster.until(lambda: set(wanted) <= set(seen), "records of the new topic were left out")
    assert sorted(seen[5:]) == wanted


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.usefixtures("rarely_looking")
def test_once_handles_no_record_under_the_id_of_the_topic_before(
    cluster: Any, tmp_path: Any, protocol: str
) -> None:
    """librdkafka goes on at offset 5 of the new topic: that record is not one of the old topic."""
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    app = App(cluster.bootstrap, group="g", settings={"group.protocol": protocol})
    seen: list[str] = []
    ids: list[str] = []

    @app.on("orders", once=Sql(engine))
    def take(order: str, message: Message) -> None:
        seen.append(order)
        ids.append(message.id)

    handled_anew(cluster, app, seen)
    of_new_topic = cluster.topic_id("orders")
    assert ids[5:] == [f"orders/0/{offset}@{of_new_topic}" for offset in range(8)]
    engine.dispose()


@pytest.mark.usefixtures("rarely_looking")
def test_exactly_once_writes_once_for_each_record_of_the_new_topic(cluster: Any) -> None:
    app = App(cluster.bootstrap, group="g")
    seen: list[str] = []

    @app.on("orders", exactly_once=True, publish="bills")
    def bill(order: str) -> str:
        seen.append(order)
        return order

    cluster.topic("bills")
    handled_anew(cluster, app, seen)
    assert len(cluster.records("bills")) == 5 + 8


def test_an_offset_committed_for_the_topic_before_does_not_count(cluster: Any, caplog: Any) -> None:
    """It was under way when the topic was deleted, and reached the group after that."""

    def reader(seen: list[str], start_from: Literal["earliest", "latest"]) -> App:
        app = App(cluster.bootstrap, group="g", start_from=start_from)

        @app.on("orders")
        def take(order: str) -> None:
            seen.append(order)

        return app

    cluster.topic("orders")
    old_id = cluster.topic_id("orders")
    with (app := reader(first := [], "earliest")).running():
        for number in range(5):
            app.send("orders", f"old {number}")
        cluster.until(lambda: len(first) == 5)
    late = committed(cluster, "g", "orders")
    assert late.offset == 5 and topic_id_in(late.metadata) == old_id
    cluster.made_anew("orders")
    commit(cluster, "g", late)
    with caplog.at_level(logging.INFO), (app := reader(then := [], "latest")).running():
        for number in range(8):
            app.send("orders", f"new {number}").result(60)
        cluster.until(lambda: len(then) == 8, "records of the new topic were left out")
    assert then == [f"new {number}" for number in range(8)]
    assert "offset 5 of orders-0 was committed for a topic that is deleted" in caplog.text


def committed(cluster: Any, group: str, topic: str) -> TopicPartition:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        return consumer.committed([TopicPartition(topic, 0)], 60)[0]
    finally:
        consumer.close()


def commit(cluster: Any, group: str, place: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=[place], asynchronous=False)
    finally:
        consumer.close()
