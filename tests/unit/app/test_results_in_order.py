"""What handlers return, in order: a record counts as done only after all before it in its run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Message as NativeMessage

from headrace.app.attempts import runs
from headrace.app.attempts.handler import plan
from headrace.app.attempts.slots import ThreadSlots, _driven
from headrace.app.message import Message
from headrace.app.observation.observer import Observer, Stats
from headrace.app.once.memory import OnceAttempt
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


class Refuses(Writes):
    """The first result is not even taken, as with a full buffer or a key of the wrong type."""

    def __call__(self, record: Outgoing[Any, Any]) -> Future[Any]:
        if not self.tried:
            self.tried.append(record)
            raise ClientError("no room")
        return super().__call__(record)


class World:
    """One partition with three records of one key; the test is the slot."""

    def __init__(
        self, handler: Any, write: Any = None, observers: Sequence[Observer] = (), **options: Any
    ) -> None:
        chosen: dict[str, Any] = {"retry": Retry(jitter=0), "order_by": "key"} | options
        self.subscription = Subscription(("orders",), plan(handler), publish="out", **chosen)
        self.runner = SubscriptionRunner(
            self.subscription,
            group="g",
            outlet=Outlet(),
            clock=lambda: 1_000,
            chance=random.Random(1),
            observers=observers,
        )
        self.slots = ThreadSlots(self.runner, write=write or Writes())
        self.runner.wake = lambda ready: None
        self.owned = self.runner.own("orders", 0, None)
        self.runner.read(self.owned, [_record(offset) for offset in range(3)])

    def handle(self) -> None:
        run = self.runner.take()
        assert run is not None
        _driven(self.slots.handle(run))


def _record(offset: int) -> NativeMessage:
    return NativeMessage("orders", 0, offset, b"a", b"%d" % offset)


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


@pytest.mark.parametrize("order_by", [None, "key"])
@pytest.mark.parametrize("handler", [of_value, of_message])
def test_a_result_that_is_not_even_taken_is_a_failed_attempt(handler: Any, order_by: Any) -> None:
    """It must not end the slot: nobody would handle the rest."""
    world = World(handler, Refuses(), order_by=order_by)
    stats = world.subscription.stats
    world.handle()
    assert stats.failed == 1
    world.runner.tick(1_000_000)
    world.handle()
    assert (stats.handled, stats.in_flight, world.owned.running) == (3, 0, 0)
    assert world.owned.source.completion.position == 3


@pytest.mark.parametrize("handler", [of_value, of_message])
def test_without_dead_letters_a_result_that_is_not_written_holds_up_nothing(handler: Any) -> None:
    world = World(handler, retry=Retry(attempts=1), dead_letters=False)
    stats = world.subscription.stats
    world.handle()
    assert (stats.handled, stats.in_flight, world.owned.running) == (2, 0, 0)
    assert world.owned.source.completion.position == 3
    world.runner.read(world.owned, [_record(3)])  # of the same key
    world.handle()
    assert world.owned.source.completion.position == 4


@pytest.mark.parametrize("with_message", [False, True])
def test_what_is_written_counts_before_the_run_has_ended(
    with_message: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of slow handlers takes minutes, and a crash would repeat all of it."""
    monkeypatch.setattr(runs, "REPORT_S", -1)
    positions: list[int] = []

    def result(value: str) -> str:
        positions.append(world.owned.source.completion.position)
        return value

    def result_with_message(value: str, message: Message) -> str:
        return result(value)

    write = Writes()
    write.tried.append(None)  # none fails
    world = World(result_with_message if with_message else result, write, order_by="partition")
    world.handle()
    assert positions == [0, 1, 2]


class Remembers:
    """The memory of `once=`, in a set."""

    def __init__(self) -> None:
        self.known: set[str] = set()

    @contextmanager
    def attempt(self, group: str, message_id: str, written_at_ms: int | None) -> Iterator[Any]:
        yield OnceAttempt(message_id in self.known)
        self.known.add(message_id)


@pytest.mark.parametrize("order_by", [None, "key"])
def test_a_message_whose_result_is_not_written_is_not_remembered_as_handled(order_by: Any) -> None:
    """The next attempt would be a duplicate, and nobody would publish the result."""
    write = Writes()
    world = World(of_value, write, order_by=order_by, once=Remembers())
    stats = world.subscription.stats
    world.handle()
    assert (stats.failed, stats.in_flight) == (1, 0)
    world.runner.tick(1_000_000)
    world.handle()
    assert [record.value for record in write.tried] == [b"0", b"0"]
    assert (stats.handled, stats.duplicates, stats.in_flight) == (3, 0, 0)


class Careless(Observer):
    """Its block raises where it should be quiet, or keeps what it should let through."""

    def __init__(self, raises: bool) -> None:
        self._raises = raises

    @contextmanager
    def around(self, subscription: Any, message: Message) -> Iterator[None]:
        try:
            yield
        except OSError:
            if self._raises:
                raise
        if self._raises:
            raise ValueError("of the observer")


@pytest.mark.parametrize("raises", [False, True])
def test_an_observer_changes_nothing_that_it_sees(raises: bool) -> None:
    def fails_once(value: str, message: Message) -> None:
        if value == "1" and message.attempt == 1:
            raise OSError("not yet")

    world = World(fails_once, observers=[Careless(raises)])
    stats = world.subscription.stats
    world.handle()
    assert (stats.handled, stats.failed) == (1, 1)
    world.runner.tick(1_000_000)
    world.handle()
    assert (stats.handled, stats.failed, stats.in_flight) == (3, 1, 0)
