"""Where partitions end is asked for; who cannot be asked holds nobody up."""

from __future__ import annotations

from headrace.client import Admin, Producer
from headrace.client.connection import ClientSettings
from headrace.services.delay.partitions.ends import Ends
from headrace.testing import Broker
from tests.sockets.fills import FILLS


def test_ends_are_told_as_they_are_now() -> None:
    with Broker() as broker:
        Admin(broker.bootstrap).topics.create("orders.delay", partitions=2)
        ends = Ends(ClientSettings({"bootstrap.servers": broker.bootstrap}))
        both = [("orders.delay", 0), ("orders.delay", 1)]
        assert ends.of(both) == {("orders.delay", 0): 0, ("orders.delay", 1): 0}
        with Producer(broker.bootstrap, settings=FILLS) as producer:
            producer.send("orders.delay", "x", partition=1)
        assert ends.of(both) == {("orders.delay", 0): 0, ("orders.delay", 1): 1}
        assert ends.of([*both, ("nowhere", 0)]) == {("orders.delay", 0): 0, ("orders.delay", 1): 1}
        assert ends.of([]) == {}
        ends.close()


def test_what_an_open_transaction_holds_back_is_not_the_end() -> None:
    with Broker() as broker:
        Admin(broker.bootstrap).topics.create("orders.delay", partitions=1)
        ends = Ends(ClientSettings({"bootstrap.servers": broker.bootstrap}))
        with Producer(broker.bootstrap, transactional_id="t") as producer, producer.transaction():
            producer.send("orders.delay", "x").result(60)
            assert ends.of([("orders.delay", 0)]) == {("orders.delay", 0): 0}
        assert ends.of([("orders.delay", 0)]) == {("orders.delay", 0): 2}  # and its marker
        ends.close()


def test_a_broker_that_is_away_is_left_alone_for_a_while() -> None:
    with Broker() as broker:
        Admin(broker.bootstrap).topics.create("orders.delay", partitions=1)
        ends = Ends(ClientSettings({"bootstrap.servers": broker.bootstrap}))
        assert ends.of([("orders.delay", 0)]) == {("orders.delay", 0): 0}
    assert ends.of([("orders.delay", 0)]) == {}
    assert ends.of([("orders.delay", 0)]) == {}  # without asking
