"""A topic is deleted and made anew under its name: everything in the new one is new work."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from sqlalchemy import create_engine

from headrace import App, Message, Retry
from headrace.app import Sql

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
