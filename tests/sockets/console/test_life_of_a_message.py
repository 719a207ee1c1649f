"""One message on its way: delayed, delivered, tried, given up, sent again, handled; on one page."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

from headrace import App, Retry
from headrace.client.admin.admin import Admin
from headrace.client.connection import connection
from headrace.client.producer.producer import Producer
from headrace.testing import Broker, TestApp
from tests.console.full_cluster import HOSTILE, wait_until_listed
from tests.console.served import Served, Visitor

DELAYED = "orders.delay"
SLOWLY = Retry(attempts=3, first="1m", longest="10m", jitter=0)


class Bank:
    """Answers only when it is told to."""

    is_open = False

    def charge(self, value: str) -> None:
        if value == "pay" and not self.is_open:
            raise OSError(f"the bank is closed {HOSTILE}")


@pytest.fixture(scope="module")
def story() -> Iterator[tuple[Visitor, TestApp, Bank]]:
    bank, app = Bank(), App("localhost:1", group="billing")
    app.on("orders", retry=SLOWLY, order_by=None)(bank.charge)
    with (
        Broker(delay=True, settings={"group.initial.rebalance.delay.ms": 0}) as broker,
        TestApp(app, broker=broker) as running,
        Served(broker.bootstrap) as served,
    ):
        at = connection(bootstrap=broker.bootstrap)
        Admin(at).delayed.enable("orders")
        with Producer(at) as producer:
            producer.send("orders", "pay", key="ann", delay="5m", id="bill-7").result(60)
            producer.send("orders", "other", key="bob").result(60)
        wait_until_listed(broker.bootstrap, "orders", 1)
        running.advance(minutes=5)
        running.until(lambda: len(running.records("orders")) == 2)
        running.advance(minutes=10)
        assert len(running.dead_letters("orders")) == 1
        yield served.visitor(), running, bank


def steps(answer: Any) -> list[str]:
    """The titles, in order."""
    return [unescape(found) for found in re.findall(r'step-head"><b>(.*?)</b>', answer.text)]


@pytest.mark.integration
def test_a_message_is_followed_from_its_delay_to_its_second_handling(
    story: tuple[Visitor, TestApp, Bank],
) -> None:
    visitor, running, bank = story
    before = visitor.get("/life?topic=orders&id=bill-7")
    assert before.status == 200, before.said()
    told = steps(before)
    # The worker stamps a dead letter by the machine's clock, which the test does not move.
    told.remove("Dead letter after 3 attempts")
    assert told == [
        "Sent, to be delivered later",
        "Delivered when it was due",
        "Attempt 1 failed",
        "Given to the group again, for attempt 2",
        "Attempt 2 failed",
        "Given to the group again, for attempt 3",
    ]
    assert "builtins.OSError: the bank is closed" in before.said() and "<script>" in before.said()
    assert f"worker {socket.gethostname()}/" in before.said()
    assert "Nothing before" in before.said() and "its companions were searched" in before.said()

    bank.is_open = True
    sent = {"action": "redrive", "at": "0/0", "reason": "the bank is open"}
    visitor.post("/dead-letters/orders.billing.dead", sent)
    running.until_idle()
    running.until(
        lambda: "Handled by group billing after retries" in _life(visitor, 0, 0, DELAYED).said()
    )
    after = _life(visitor, 0, 0, DELAYED)
    assert {"Sent again from the dead letters", "Given to the group again"} <= set(steps(after))
    assert "because: the bank is open" in after.said()


def test_every_record_of_it_leads_to_the_same_life(story: tuple[Visitor, TestApp, Bank]) -> None:
    visitor, running, _ = story
    whole = steps(_life(visitor, 0, 0, DELAYED))
    assert len(whole) > 6
    for topic in ("orders.billing.retry", "orders.billing.dead"):
        assert steps(_life(visitor, 0, 0, topic)) == whole


def test_another_message_has_a_life_of_its_own(story: tuple[Visitor, TestApp, Bank]) -> None:
    visitor, _, _ = story
    offset = (
        0 if "other" in visitor.get("/topics/orders/message?partition=0&offset=0").said() else 1
    )
    assert steps(_life(visitor, 0, offset)) == ["Produced", "Handled by group billing"]
    by_key = visitor.get("/life?topic=orders&key=bob")
    assert steps(by_key) == ["Produced", "Handled by group billing"]


def test_what_is_not_there_is_said(story: tuple[Visitor, TestApp, Bank]) -> None:
    visitor, _, _ = story
    assert "No message found" in visitor.get("/life?topic=orders&id=never").said()
    assert "No message found" in _life(visitor, 0, 9_999).said()
    assert "No message found" in _life(visitor, 77, 0).said()
    assert visitor.get("/life?topic=not-there&id=x").status == 404
    assert visitor.get("/life?id=x").status == 400
    assert "Trace a message" in visitor.get("/life").said()


def _life(visitor: Visitor, partition: int, offset: int, topic: str = "orders") -> Any:
    return visitor.get(f"/life?topic={topic}&partition={partition}&offset={offset}")
