"""An app on a real broker: values come as their types say, failures are tried again and parked."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import App, Message, Publish, Retry
from headrace.app.headers import (
    DEAD_ATTEMPTS,
    DEAD_ERROR,
    DEAD_GROUP,
    DEAD_OFFSET,
    DEAD_STACK,
    DEAD_TOPIC,
)
from headrace.app.message import PartialFailure

pytestmark = pytest.mark.usefixtures("quick_producers")

QUICKLY = Retry(attempts=3, first="5ms", longest="20ms")


class Order(BaseModel):
    id: int
    total: float = 0.0


@dataclasses.dataclass
class Payment:
    order: int
    amount: float


def test_values_come_as_the_type_hint_says(cluster: Any) -> None:
    for topic in ("orders", "payments", "plain", "words", "raw"):
        cluster.topic(topic)
    app = App(cluster.bootstrap, group="g")
    seen: dict[str, Any] = {}

    @app.on("orders")
    async def order(order: Order, message: Message) -> None:
        seen["order"] = (order, message.key, message.origin, message.attempt)
        seen["id"] = message.id

    @app.on("payments")
    def payment(payment: Payment) -> None:
        seen["payment"] = payment

    @app.on("plain")
    async def plain(given: dict) -> None:  # type: ignore[type-arg]
        seen["plain"] = given

    @app.on("words")
    def words(given: str) -> None:
        seen["words"] = given

    @app.on("raw")
    def raw(given: bytes | None, message: Message) -> None:
        seen["raw"] = given, message.header("x")

    with app.running():
        app.send("orders", Order(id=7, total=1.5), key="k")
        app.send("payments", Payment(7, 1.5))
        app.send("plain", {"a": 1})
        app.send("words", "güt")
        app.send("raw", None, headers={"x": b"y"})
        cluster.until(lambda: len(seen) == 6)
    assert seen == {
        "id": f"orders/0/0@{cluster.topic_id('orders')}",
        "order": (Order(id=7, total=1.5), b"k", "orders/0/0", 1),
        "payment": Payment(7, 1.5),
        "plain": {"a": 1},
        "words": "güt",
        "raw": (None, b"y"),
    }
    assert cluster.committed("g")["orders", 0] == 1


@pytest.mark.integration
@pytest.mark.parametrize("order_by", [None, "key", "partition"])
@pytest.mark.parametrize("kind", ["coroutine", "function"])
def test_what_fails_is_tried_again_and_then_parked(cluster: Any, order_by: Any, kind: str) -> None:
    cluster.topic("orders", partitions=2)
    app = App(cluster.bootstrap, group="billing", seed=1)
    attempts: list[tuple[int, int]] = []

    def bill(order: Order, message: Message) -> None:
        attempts.append((order.id, message.attempt))
        if order.id % 5 == 0:
            raise RuntimeError(f"no {order.id}")
        if order.id % 5 == 1 and message.attempt < 3:
            raise OSError("not yet")

    async def bill_async(order: Order, message: Message) -> None:
        await asyncio.sleep(0)
        bill(order, message)

    app.on("orders", retry=QUICKLY, order_by=order_by, concurrency=4)(
        bill if kind == "function" else bill_async
    )
    stats = app.subscriptions[0].stats
    with app.running():
        for number in range(20):
            app.send("orders", Order(id=number), key=str(number % 3))
        app.send("orders", b"{", key="poison")
        cluster.until(lambda: stats.handled == 16 and stats.parked == 5 and stats.in_flight == 0)
    assert sorted(attempts) == sorted(
        [(n, 1) for n in range(20)] + [(n, a) for n in range(20) if n % 5 < 2 for a in (2, 3)]
    )
    dead = cluster.records("orders.billing.dead")
    assert {r.value for r in dead} == {b"{"} | {
        Order(id=n).model_dump_json().encode() for n in (0, 5, 10, 15)
    }
    parked = next(r for r in dead if r.value == Order(id=5).model_dump_json().encode())
    assert parked.key == b"2"
    assert parked.header(DEAD_ERROR) == b"builtins.RuntimeError"
    assert parked.header(DEAD_ATTEMPTS) == b"3"
    assert parked.header(DEAD_TOPIC) == b"orders"
    assert parked.header(DEAD_GROUP) == b"billing"
    assert parked.header(DEAD_OFFSET) is not None
    assert b"no 5" in (parked.header(DEAD_STACK) or b"")
    poison = next(r for r in dead if r.value == b"{")
    assert poison.header(DEAD_ATTEMPTS) == b"1"
    ends = {p: sum(1 for r in cluster.records("orders") if r.partition == p) for p in (0, 1)}
    committed = cluster.committed("billing")
    assert {p: committed["orders", p] for p in (0, 1)} == ends


def test_sixty_four_at_once_on_one_partition_and_keys_in_order(cluster: Any) -> None:
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")
    running = most = 0
    all_at_once = asyncio.Event()
    seen: dict[int, list[int]] = {}

    @app.on("orders", concurrency=64, order_by="key")
    async def handle(order: Order) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if most == 64:
            all_at_once.set()
        await all_at_once.wait()
        await asyncio.sleep(0)
        running -= 1
        seen.setdefault(order.id % 100, []).append(order.id)

    for number in range(2000):  # before it begins: it must never have to wait for the next one
        app.send("orders", Order(id=number), key=str(number % 100))
    app.sender.producer.flush(60)
    with app.running():
        cluster.until(lambda: sum(map(len, seen.values())) == 2000)
    assert most == 64
    assert all(numbers == sorted(numbers) for numbers in seen.values())


@pytest.mark.integration
def test_a_hanging_record_does_not_hold_up_the_commit_of_what_is_known_beyond_it(
    cluster: Any,
) -> None:
    cluster.topic("orders")
    release = threading.Event()
    seen: list[int] = []

    def make() -> App:
        app = App(cluster.bootstrap, group="g", drain="50ms")

        @app.on("orders", concurrency=4)
        def handle(order: Order) -> None:
            if order.id == 3 and not release.is_set():
                release.wait(90)
            seen.append(order.id)

        return app

    app = make()
    with app.running():
        for number in range(50):
            app.send("orders", Order(id=number))
        cluster.until(lambda: len(seen) == 49)
    # It was given up while 3 was under way; the next owner repeats that one and no other.
    assert cluster.committed("g")["orders", 0] == 3
    release.set()
    seen.clear()
    app = make()
    with app.running():
        cluster.until(lambda: app.subscriptions[0].stats.handled == 1)
        app.send("orders", Order(id=50))
        cluster.until(lambda: 50 in seen)
    assert [n for n in seen if n != 3] == [50]
    assert cluster.committed("g")["orders", 0] == 51


def test_batches_and_the_part_of_one_that_failed(cluster: Any) -> None:
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")
    sizes: list[int] = []
    done: list[int] = []

    @app.on("orders", batch=10, retry=QUICKLY)
    async def handle(orders: list[Order], messages: list[Message]) -> None:
        sizes.append(len(orders))
        failed = [at for at, o in enumerate(orders) if o.id == 7 and messages[at].attempt < 3]
        done.extend(o.id for at, o in enumerate(orders) if at not in failed)
        if failed:
            raise PartialFailure(failed)

    for number in range(35):
        app.send("orders", Order(id=number)).result()
    app.send("orders", b"poison").result()
    with app.running():
        cluster.until(lambda: app.subscriptions[0].stats.handled == 35)
        cluster.until(lambda: app.subscriptions[0].stats.in_flight == 0)
    assert sorted(done) == list(range(35))
    assert max(sizes) == 10
    assert [r.value for r in cluster.records("orders.g.dead")] == [b"poison"]


@pytest.mark.parametrize("order_by", [None, "partition"])
def test_what_a_handler_returns_or_yields_is_published(cluster: Any, order_by: Any) -> None:
    cluster.topic("orders")
    cluster.topic("invoices")
    cluster.topic("notes")
    app = App(cluster.bootstrap, group="g")

    @app.on("orders", publish="invoices", order_by=order_by)
    async def bill(order: Order) -> Any:
        yield {"order": order.id}
        yield Publish("notes", f"note {order.id}", key="n", headers={"h": "1"})

    with app.running():
        for number in range(3):
            app.send("orders", Order(id=number), key=f"k{number}")
        cluster.until(lambda: app.subscriptions[0].stats.handled == 3)
    invoices = cluster.records("invoices")
    assert [(r.key, r.value) for r in invoices] == [
        (b"k0", b'{"order":0}'),
        (b"k1", b'{"order":1}'),
        (b"k2", b'{"order":2}'),
    ]
    made_from = f"orders/0/1@{cluster.topic_id('orders')}"
    assert invoices[1].header("headrace-message-id") == f"{made_from}~g~0".encode()
    assert [r.value for r in cluster.records("notes")] == [b"note 0", b"note 1", b"note 2"]


def test_a_handler_may_raise_anything_and_the_worker_lives(cluster: Any) -> None:
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")
    seen: list[int] = []
    errors: list[BaseException] = [
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
        BaseException("bare"),
    ]

    @app.on("orders", retry=Retry(attempts=1))
    async def handle(order: Order) -> None:
        if order.id < len(errors):
            raise errors[order.id]
        seen.append(order.id)

    with app.running():
        for number in range(8):
            app.send("orders", Order(id=number))
        cluster.until(lambda: len(seen) == 3)
        cluster.until(lambda: app.subscriptions[0].stats.in_flight == 0)
    assert len(cluster.records("orders.g.dead")) == 5


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["coroutine", "function", "batches"])
def test_an_attempt_that_takes_too_long_is_ended(cluster: Any, kind: str) -> None:
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")
    retry = Retry(attempts=2, first="1ms", time_limit="300ms")

    async def slow(order: Order) -> None:
        await asyncio.sleep(30 if order.id else 0)

    def slow_function(order: Order) -> None:
        while order.id:
            time.sleep(0.001)

    def slow_batch(orders: list[Order]) -> None:
        slow_function(orders[0])

    if kind == "batches":
        app.on("orders", retry=retry, batch=1)(slow_batch)
    else:
        app.on("orders", retry=retry)(slow if kind == "coroutine" else slow_function)
    with app.running():
        app.send("orders", Order(id=1))
        app.send("orders", Order(id=0))
        stats = app.subscriptions[0].stats
        cluster.until(lambda: stats.handled == 1 and stats.parked == 1 and not stats.in_flight)
    [dead] = cluster.records("orders.g.dead")
    assert dead.header(DEAD_ERROR) == b"headrace.app.retry.AttemptTimedOut"
    assert dead.header(DEAD_ATTEMPTS) == b"2"


def test_stop_lets_handlers_end_and_begins_no_others(cluster: Any) -> None:
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")
    begun, ended = [], []
    first = threading.Event()

    @app.on("orders")
    async def handle(order: Order) -> None:
        begun.append(order.id)
        first.set()
        await asyncio.sleep(0.2)
        ended.append(order.id)

    for number in range(100):
        app.send("orders", Order(id=number))
    app.sender.producer.flush(60)
    app.start()
    assert first.wait(60)
    app.stop()
    assert begun == ended
    assert len(begun) < 100
    assert cluster.committed("g")["orders", 0] == len(ended)


def test_an_app_runs_within_a_loop_of_the_callers(cluster: Any) -> None:
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")
    loops = []

    @app.on("orders")
    async def handle(order: Order) -> None:
        loops.append(asyncio.get_running_loop())

    async def main() -> asyncio.AbstractEventLoop:
        serving = asyncio.create_task(app.serve())
        app.send("orders", Order(id=1))
        while not loops:
            await asyncio.sleep(0.01)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        return asyncio.get_running_loop()

    assert [asyncio.run(main())] == loops
    assert cluster.committed("g")["orders", 0] == 1


def test_an_app_that_is_cancelled_while_it_begins_does_not_stay(cluster: Any) -> None:
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")

    @app.on("orders")
    async def handle(order: Order) -> None: ...

    async def program() -> None:
        serving = asyncio.create_task(app.serve())
        await asyncio.sleep(0)  # it begins on a thread
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert app.worker is None

    asyncio.run(program())
    assert app.worker is None
