"""A queue: what the dispatcher makes of the records that a share group delivers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from headrace.app import App
from headrace.app.attempts.handler import plan
from headrace.app.attempts.slots import ThreadSlots, _driven
from headrace.app.dispatch.dispatcher import MOST_IN_MEMORY
from headrace.app.dispatch.owned_partition import Acknowledgement
from headrace.app.retry import Retry, TryLater
from headrace.app.subscription import Subscription
from headrace.app.worker.queue_intake import Delivery, headers_of
from headrace.app.worker.subscription_runner import SubscriptionRunner
from headrace.client.records import Outgoing
from headrace.client.share.acquired_records import ShareRecord

ACCEPT, RELEASE, REJECT = Acknowledgement.ACCEPT, Acknowledgement.RELEASE, Acknowledgement.REJECT


class Outlet:
    """Copies are safe at once, or when the test says so."""

    def __init__(self) -> None:
        self.parked: list[Outgoing[Any, Any]] = []
        self.waiting: list[Callable[..., None]] = []
        self.safe = True

    def write(self, record: Outgoing[Any, Any], ended: Callable[..., None]) -> None:
        self.parked.append(record)
        if self.safe:
            ended(None)
        else:
            self.waiting.append(ended)

    def after(self, due_ms: int, do: Callable[[], None]) -> None:
        pass

    def hurry(self) -> None:
        pass


class World:
    """One partition of a queue; the test is the slot."""

    def __init__(self, handler: Any, **options: Any) -> None:
        self.now_ms = 1_000
        retry = Retry(3, first="100ms", jitter=0)
        self.subscription = Subscription(
            ("jobs",), plan(handler, batch=False), retry, queue=True, **options
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
        self.owned = self.runner.own_queue("jobs", 0, None, headers_of)

    def deliver(self, offset: int, value: bytes = b"{}", *, count: int = 1) -> Delivery:
        record = ShareRecord(
            "jobs", 0, offset, 5, "create", b"k", value, [("h", b"1")], count, locked_until=30.0
        )
        delivery = Delivery(record, 0.0)
        self.runner.read_queue(self.owned.source, [delivery])
        return delivery

    def work(self) -> None:
        while (run := self.runner.take()) is not None:
            _driven(self.slots.handle(run))

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.runner.tick(self.now_ms)

    def acknowledged(self) -> list[tuple[int | None, Acknowledgement]]:
        return [(each.offset(), how) for each, how in self.runner.take_acknowledgements(self.owned)]


def works(value: bytes) -> None:
    pass


def noting(calls: list[bytes]) -> Callable[[bytes], None]:
    def handler(value: bytes) -> None:
        calls.append(value)

    return handler


def fails(value: bytes) -> None:
    raise ValueError("no")


def test_a_job_that_was_handled_is_accepted() -> None:
    world = World(works)
    world.deliver(7)
    world.deliver(3)
    world.work()
    assert world.acknowledged() == [(7, ACCEPT), (3, ACCEPT)]
    assert world.acknowledged() == []


def test_a_failing_job_goes_back_after_its_wait() -> None:
    world = World(fails)
    world.deliver(7)
    world.work()
    world.wait(99)
    assert world.acknowledged() == []
    world.wait(1)
    assert world.acknowledged() == [(7, RELEASE)]


def test_attempts_are_counted_by_deliveries_and_the_last_one_leaves_a_dead_letter() -> None:
    world = World(fails)
    world.outlet.safe = False
    world.deliver(7, b"job", count=3)
    world.work()
    [letter] = world.outlet.parked
    headers = dict(letter.headers)
    assert (letter.topic, letter.value, letter.key) == ("jobs.g.dead", b"job", b"k")
    assert headers["headrace-dead-attempts"] == b"3"
    assert headers["headrace-dead-offset"] == b"7"
    assert headers["h"] == b"1"
    assert world.acknowledged() == []  # the letter is not safe yet
    world.outlet.waiting.pop()(None)
    assert world.acknowledged() == [(7, REJECT)]


def test_without_dead_letters_what_cannot_be_handled_is_rejected() -> None:
    world = World(fails, dead_letters=False)
    world.deliver(7, count=3)
    world.work()
    assert world.acknowledged() == [(7, REJECT)]


def test_try_later_keeps_the_job_here_because_a_delivery_would_count() -> None:
    answers: list[BaseException | None] = [TryLater("away", after="1s"), None]

    def handler(value: bytes) -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    world = World(handler)
    world.deliver(7, count=3)
    world.work()
    world.wait(1_000)
    world.work()
    assert world.acknowledged() == [(7, ACCEPT)]
    assert world.subscription.stats.failed == 0


def test_a_job_whose_deliveries_are_used_up_is_parked_without_an_attempt() -> None:
    """Its workers died with it: the broker would drop it after this delivery."""
    calls: list[bytes] = []
    world = World(noting(calls))
    world.deliver(7, count=5)
    world.work()
    assert calls == []
    [letter] = world.outlet.parked
    assert dict(letter.headers)["headrace-dead-error"].endswith(b"DeliveriesUsedUp")
    assert world.acknowledged() == [(7, REJECT)]


def test_a_job_whose_lock_was_lost_does_not_begin() -> None:
    calls: list[bytes] = []
    world = World(noting(calls))
    lost = world.deliver(7, b"lost")
    world.deliver(8, b"kept")
    world.runner.lost(lambda native: native is lost)
    world.work()
    assert calls == [b"kept"]
    assert world.acknowledged() == [(8, ACCEPT)]


def test_only_so_many_failing_jobs_wait_here() -> None:
    world = World(fails)
    for offset in range(MOST_IN_MEMORY + 2):
        world.deliver(offset)
    world.work()
    world.wait(0)
    assert world.acknowledged() == [(MOST_IN_MEMORY, RELEASE), (MOST_IN_MEMORY + 1, RELEASE)]


def test_nothing_begins_while_the_worker_drains() -> None:
    calls: list[bytes] = []
    world = World(noting(calls))
    world.deliver(7)
    world.runner.close(world.owned)
    world.deliver(8)
    world.work()
    assert (calls, world.acknowledged()) == ([], [])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"order_by": "key"}, "a queue keeps no order"),
        ({"exactly_once": True}, "a queue has no offsets"),
    ],
)
def test_options_that_a_queue_cannot_keep_are_refused(options: dict[str, Any], says: str) -> None:
    app = App("localhost:1", group="g")
    with pytest.raises(ValueError, match=says):
        app.on("jobs", queue=True, **options)(works)


def test_a_queue_and_a_group_do_not_share_a_name() -> None:
    app = App("localhost:1", group="g")
    app.on("jobs", queue=True)(works)
    with pytest.raises(ValueError, match="make two Apps"):
        app.on("orders")(works)


def test_a_queue_takes_no_patterns() -> None:
    app = App("localhost:1", group="g")
    with pytest.raises(ValueError, match="names its topics"):
        app.on("^jobs.*", queue=True)(works)
