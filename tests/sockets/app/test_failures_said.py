"""An app says in its log which attempts fail and why, and what it skips."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import App, Retry
from headrace.app.once.memory import OnceAttempt

pytestmark = pytest.mark.usefixtures("quick_producers")


@pytest.fixture
def lines(caplog: Any) -> Any:
    caplog.set_level(logging.INFO, logger="headrace.app")
    return lambda: [record.getMessage() for record in caplog.records]


class Order(BaseModel):
    number: int
    price: float


def test_an_app_says_each_attempt_and_what_becomes_of_the_record(cluster: Any, lines: Any) -> None:
    app = App(cluster.bootstrap, group="billing")
    retry = Retry(attempts=3, first="5ms", longest="5ms", jitter=0)

    @app.on("orders", retry=retry)
    def bill(order: Order) -> None:
        raise NameError("name 'total' is not defined")

    cluster.topic("orders")
    with app.running():
        app.send("orders", {"number": 1, "price": 2})
        cluster.until(lambda: app.subscriptions[0].stats.parked == 1)
        app.send("orders", {"number": "x"})
        cluster.until(lambda: app.subscriptions[0].stats.parked == 2)
    bill_lines = [line.partition("bill, ")[2] for line in lines() if "bill, " in line]
    failed = "failed: NameError: name 'total' is not defined (test_failures_said.py:"
    for number, line in enumerate(bill_lines[:2], 1):
        assert line.startswith(f"orders/0/0: attempt {number} of 3 {failed}")
        assert line.endswith("again in 5 ms")
    assert bill_lines[2].startswith(f"orders/0/0: attempt 3 of 3 {failed}")
    assert bill_lines[2].endswith("parked in orders.billing.dead")
    assert bill_lines[3] == (
        "orders/0/1: failed: Undecodable: This is no Order: number: Input should be a valid "
        "integer, unable to parse string as an integer; price: Field required, parked in "
        "orders.billing.dead"
    )
    joins = [line for line in lines() if line.startswith("joining group billing to handle orders")]
    assert len(joins) == 1
    assert "10 s" in joins[0]


def test_a_flood_of_duplicates_is_said_once(cluster: Any, lines: Any) -> None:
    class KnowsAll:
        def refusal(self, *, asynchronous: bool) -> None: ...

        def prepare(self, group: str) -> None: ...

        def close(self) -> None: ...

        def attempt(self, *asked: Any) -> Any:
            return nullcontext(OnceAttempt(duplicate=True))

        attempt_async = attempt

    app = App(cluster.bootstrap, group="billing")

    @app.on("orders", once=KnowsAll())
    def bill(order: str) -> None: ...

    cluster.topic("orders")
    with app.running():
        for number in range(40):
            app.send("orders", str(number))
        cluster.until(lambda: app.subscriptions[0].stats.duplicates == 40)
    said = [line for line in lines() if "handled before" in line]
    assert len(said) == 2
    assert "was handled before, skipped (once=)" in said[0]
    assert said[1].startswith("39 more records were handled before and skipped (once=)")
