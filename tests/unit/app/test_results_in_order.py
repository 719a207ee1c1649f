"""What handlers return, in order: a record counts as done only after all before it in its run."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Message as NativeMessage

from headrace.app.attempts.handler import plan
from headrace.app.attempts.slots import ThreadSlots, _driven
from headrace.app.message import Message
from headrace.app.observation.observer import Stats
from headrace.app.retry import Retry
from headrace.app.subscription import Subscription
from headrace.app.worker.subscription_runner import SubscriptionRunner
from headrace.client.errors import ClientError
from headrace.client.records import Outgoing


class Outlet:
    """The test moves no clock and fails no copy: nothing of it is used."""

    def write(self, record: Outgoing[Any, Any], ended: Callable[..., None]) -> None:
        raise AssertionError("nothing is to be written")

    def after(self, due_ms: int, do: Callable[[], None]) -> None:
        pass

    def hurry(self) -> None:
        pass


def of_value(value: str) -> str | None:
    return value if value == "0" else None


def of_message(value: str, message: Message) -> str | None:
    return of_value(value)


class Writes:
    """Of results: the first fails."""

    def __init__(self) -> None:
        self.tried: list[Outgoing[Any, Any]] = []

    def __call__(self, record: Outgoing[Any, Any]) -> Future[Any]:
        self.tried.append(record)
        answer: Future[Any] = Future()
        if len(self.tried) == 1:
            answer.set_exception(ClientError("too large for now"))
        else:
            answer.set_result(None)
        return answer


class World:
    """One partition with three records of one key; the test is the slot."""

    def __init__(self, handler: Any) -> None:
        self.subscription = Subscription(
            ("orders",), plan(handler), Retry(jitter=0), order_by="key", publish="out"
        )
        self.runner = SubscriptionRunner(
            self.subscription,
            group="g",
            outlet=Outlet(),
            clock=lambda: 1_000,
            chance=random.Random(1),
        )
        self.slots = ThreadSlots(self.runner, write=Writes())
        self.runner.wake = lambda ready: None
        self.owned = self.runner.own("orders", 0, None)
        self.runner.read(self.owned, [_record(offset) for offset in range(3)])

    def handle(self) -> None:
        run = self.runner.take()
        assert run is not None
        _driven(self.slots.handle(run))


def _record(offset: int) -> NativeMessage:
    return NativeMessage("orders", 0, offset, b"a", b"%d" % offset)  # type: ignore[call-arg]


@pytest.mark.parametrize("handler", [of_value, of_message])
def test_a_result_that_is_not_written_takes_back_only_what_is_not_done(handler: Any) -> None:
    """The first of three has a result, whose write fails after the others were handled."""
    world = World(handler)
    stats, owned = world.subscription.stats, world.owned
    world.handle()
    assert (stats.handled, stats.in_flight, owned.running) == (0, 0, 0)
    assert owned.source.completion.position == 0

    world.runner.tick(1_000_000)  # the wait is over: all three again, in order
    world.handle()
    assert stats == Stats(
        received=3, handled=3, failed=1, retried=1, published=2, busy_seconds=stats.busy_seconds
    )
    assert owned.running == 0 and owned.source.completion.outstanding == 0
    assert owned.source.completion.position == 3


@pytest.mark.parametrize("with_message", [False, True])
def test_what_was_not_begun_is_given_back_once(with_message: bool) -> None:
    """The partition is taken away while the first is handled, and then its result fails."""

    def closing(value: str) -> str:
        world.runner.close(world.owned)
        return value

    def closing_with_message(value: str, message: Message) -> str:
        return closing(value)

    world = World(closing_with_message if with_message else closing)
    world.handle()
    assert (world.subscription.stats.in_flight, world.owned.running) == (0, 0)
    assert world.owned.source.completion.position == 0
    world.runner.tick(1_000_000)
    assert world.runner.take() is None
