"""Batches of which a part fails: each record has its own attempts, and none is done by mistake."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message as NativeMessage

from headrace.app.attempts.handler import plan
from headrace.app.attempts.slots import ThreadSlots, _driven
from headrace.app.message import PartialFailure
from headrace.app.retry import Retry
from headrace.app.subscription import Subscription
from headrace.app.worker.subscription_runner import SubscriptionRunner
from headrace.client.records import Outgoing


class Outlet:
    """Every copy is safe at once."""

    def __init__(self) -> None:
        self.parked: list[bytes] = []

    def write(self, record: Outgoing[Any, Any], ended: Callable[..., None]) -> None:
        self.parked.append(record.value)
        ended(None)

    def after(self, due_ms: int, do: Callable[[], None]) -> None:
        pass

    def hurry(self) -> None:
        pass


class World:
    """One partition; the test is the slot."""

    def __init__(self, handler: Any, *, order_by: Any, attempts: int) -> None:
        self.now_ms = 1_000
        self.subscription = Subscription(
            ("orders",), plan(handler, batch=True), Retry(attempts), order_by=order_by, batch=10
        )
        self.outlet = Outlet()
        self.runner = SubscriptionRunner(
            self.subscription,
            group="g",
            outlet=self.outlet,
            clock=lambda: self.now_ms,
            chance=random.Random(1),
        )
        self.slots = ThreadSlots(self.runner, write=None)
        self.runner.wake = lambda ready: None
        self.owned = self.runner.own("orders", 0, None)
        self._sent = 0

    def send(self, *values: bytes) -> None:
        records = []
        for value in values:
            records.append(NativeMessage("orders", 0, self._sent, None, value))
            self._sent += 1
        self.runner.read(self.owned, records)

    def handle(self) -> None:
        """All that may be handled now; then the clock moves to what waits."""
        while (run := self.runner.take()) is not None:
            _driven(self.slots.handle(run))
        self.now_ms += 60_000
        self.runner.tick(self.now_ms)


@pytest.mark.parametrize("order_by", [None, "partition"])
def test_a_batch_that_names_a_record_it_does_not_have_has_failed_as_a_whole(order_by: Any) -> None:
    """Counting from 1, or the last by -1: nobody knows which of them is meant."""
    calls: list[list[str]] = []

    def handle(values: list[str]) -> None:
        calls.append(values)
        if len(calls) < 3:
            raise PartialFailure([len(values) if len(calls) == 1 else -1])

    world = World(handle, order_by=order_by, attempts=5)
    world.send(b"a", b"b")
    for _ in range(3):
        world.handle()
    stats = world.subscription.stats
    assert [sorted(call) for call in calls] == [["a", "b"]] * 3
    assert (stats.handled, stats.in_flight, world.owned.running) == (2, 0, 0)


@pytest.mark.parametrize("order_by", [None, "partition"])
def test_a_record_that_joins_a_batch_late_has_all_its_attempts(order_by: Any) -> None:
    def handle(values: list[str]) -> None:
        if "bad" in values:
            raise OSError("not with this one")

    world = World(handle, order_by=order_by, attempts=3)
    world.send(b"bad")
    world.handle()
    world.send(b"late")
    for _ in range(6):
        world.handle()
    assert world.outlet.parked == [b"bad"]
    assert world.subscription.stats.handled == 1
