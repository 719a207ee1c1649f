"""TestApp: an app's life over minutes and days, in a moment of the test's."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from headrace import App, Message, Publish, Retry
from headrace.node.replication.replica import Replica
from headrace.testing import TestApp

pytestmark = pytest.mark.integration


def make(**options: Any) -> tuple[App, list[tuple[str, int, int]]]:
    app = App("nowhere:9092", group="billing", seed=7)
    calls: list[tuple[str, int, int]] = []

    @app.on("orders", retry=Retry(attempts=8, first="1s", longest="10m"), **options)
    async def bill(order: str, message: Message) -> None:
        calls.append((order, message.attempt, app.clock()))
        if order.startswith("bad"):
            raise OSError("the bank is away")

    return app, calls


def test_eight_attempts_over_minutes_and_then_the_dead_letters() -> None:
    app, calls = make()
    with TestApp(app) as running:
        running.send("orders", "bad", key="a")
        running.send("orders", "good", key="a")
        running.advance(minutes=10)
        assert [call[:2] for call in calls if call[0] == "bad"] == [
            ("bad", attempt) for attempt in range(1, 9)
        ]
        [dead] = running.dead_letters("orders")
        assert dead.value == b"bad"
        times = [at for order, _, at in calls if order == "bad"]
        waits = [(later - at) / 1000 for at, later in itertools.pairwise(times)]
        # Each at its moment: 1, 2, 4 ... 64 s, within the jitter of ten per cent and a little.
        for wait, asked in zip(waits, (1, 2, 4, 8, 16, 32, 64), strict=True):
            assert 0.9 * asked <= wait <= 1.1 * asked + 5


def test_the_same_in_the_order_of_keys_needs_no_delay_service() -> None:
    app, calls = make(order_by="key", concurrency=4)
    with TestApp(app, partitions=2) as running:
        for order, key in (("bad", "a"), ("good", "a"), ("other", "b")):
            running.send("orders", order, key=key)
        running.settle()  # the older name of until_idle
        assert [call[:2] for call in calls] == [("bad", 1), ("other", 1)] or [
            call[:2] for call in calls
        ] == [("other", 1), ("bad", 1)]
        running.advance(minutes=10)
        assert [call[:2] for call in calls[-2:]] == [("bad", 8), ("good", 1)]


def test_what_the_app_publishes_can_be_read() -> None:
    app = App("nowhere:9092", group="g")

    @app.on("orders", publish="invoices")
    async def bill(order: dict) -> Any:  # type: ignore[type-arg]
        yield {"total": order["total"]}
        yield Publish("notes", "done")

    with TestApp(app, topics=["notes"]) as running:
        running.send("orders", {"total": 3})
        running.until_idle()
        assert [r.value for r in running.records("invoices")] == [b'{"total":3}']
        assert [r.value for r in running.records("notes")] == [b"done"]
        assert running.dead_letters("orders") == []
    assert app.connection.bootstrap == "nowhere:9092"


def test_records_that_come_slowly_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("nowhere:9092", group="g")

    @app.on("orders", publish="invoices")
    async def bill(order: str) -> str:
        return f"bill of {order}"

    read, slow = Replica.read, [0.6]

    def slowly(leader: Replica[Any], *given: Any, **more: Any) -> Any:
        """As from a disk that is busy with something else."""
        if leader.topic == "invoices" and slow:
            time.sleep(slow.pop())
        return read(leader, *given, **more)

    with TestApp(app) as running:
        running.send("orders", "tea")
        running.until_idle()
        monkeypatch.setattr(Replica, "read", slowly)
        assert [record.value for record in running.records("invoices")] == [b"bill of tea"]
    assert not slow
