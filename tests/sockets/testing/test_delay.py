"""Delayed messages in a test: the real service in process, on the clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.client import Admin, Consumer, Producer, Record
from headrace.testing import Broker
from tests.interop.brokers import free_port
from tests.sockets.fills import FILLS

pytestmark = pytest.mark.integration

PATIENCE_S = 180.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(delay=True, port=free_port()) as running:  # restarted by one of the tests
        admin = Admin(running.bootstrap)
        admin.topics.create("orders", partitions=2)
        admin.delayed.enable("orders")
        yield running


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    with Producer(broker.bootstrap, settings=FILLS) as made:
        yield made


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    with Consumer(broker.bootstrap, topics=["orders"], group="readers") as made:
        yield made


def next_of(consumer: Consumer) -> Record:
    record = consumer.poll(PATIENCE_S)
    assert record is not None, "it did not come"
    return record


def test_half_an_hour_passes_in_no_time(
    broker: Broker, producer: Producer, consumer: Consumer
) -> None:
    before = broker.now()
    producer.send_sync("orders", "unpaid?", key="anna", delay=timedelta(minutes=30), id="order-42")
    broker.advance(minutes=29, seconds=30)
    producer.send_sync("orders", "in between", key="anna")
    assert next_of(consumer).value == b"in between"
    broker.advance(seconds=30)
    record = next_of(consumer)
    assert (record.key, record.value) == (b"anna", b"unpaid?")
    due_ms = int(record.header("headrace-due-at") or b"")
    assert record.timestamp_ms is not None and record.timestamp_ms >= due_ms
    assert due_ms - before.timestamp() * 1000 >= 30 * 60_000
    assert record.header("headrace-message-id") == b"order-42@%d" % due_ms


def test_ten_years_pass_and_nobody_is_thrown_out(
    broker: Broker, producer: Producer, consumer: Consumer
) -> None:
    producer.send_sync("orders", "in ten years", key="anna", delay=timedelta(days=3652))
    producer.send_sync("orders", "then", key="anna", deliver_at=broker.now() + timedelta(days=400))
    for _ in range(10):
        broker.advance(days=365.25)
    assert [next_of(consumer).value for _ in range(2)] == [b"then", b"in ten years"]
    producer.send_sync("orders", "still there", key="anna", delay="1s")
    broker.advance(seconds=1)
    assert next_of(consumer).value == b"still there"


def test_what_is_cancelled_never_comes_and_what_is_replaced_comes_once(
    broker: Broker, producer: Producer, consumer: Consumer
) -> None:
    for id in ("paid", "moved"):
        producer.send_sync("orders", id, key="anna", delay="30m", id=id)
    producer.send_sync("orders", "moved on", key="anna", delay="40m", id="moved")
    assert Admin(broker.bootstrap).delayed.cancel("orders", "paid", key="anna").in_time
    broker.advance(hours=1)
    assert next_of(consumer).value == b"moved on"
    late = Admin(broker.bootstrap).delayed.cancel("orders", "moved", key="anna")
    assert (late.outcome, late.in_time) == ("too-late", False)
    producer.send_sync("orders", "the end", key="anna")
    assert next_of(consumer).value == b"the end"


def test_a_repeating_message_comes_again_and_again(
    broker: Broker, producer: Producer, consumer: Consumer
) -> None:
    producer.send_sync("orders", "tick", key="k", cron="0 * * * *", cron_count=3, id="hourly")
    for _ in range(3):
        broker.advance(hours=1)
        assert next_of(consumer).value == b"tick"
    broker.advance(hours=5)
    producer.send_sync("orders", "the end", key="k", delay="1s")
    broker.advance(seconds=1)
    assert next_of(consumer).value == b"the end"


def test_what_waits_survives_a_restart_of_both(
    broker: Broker, producer: Producer, consumer: Consumer
) -> None:
    producer.send_sync("orders", "before", key="anna", delay="1h")
    broker.restart()
    broker.advance(hours=1)
    assert next_of(consumer).value == b"before"


def test_what_makes_no_sense_is_rejected_with_its_reason(
    broker: Broker, producer: Producer
) -> None:
    producer.send_sync("orders.delay", "v", key="anna", headers={"headrace-delay": "soon"})
    with Consumer(broker.bootstrap, topics=["orders.delay.rejected"], group="r") as rejected:
        record = next_of(rejected)
    assert record.value == b"v" and b"soon" in (record.header("headrace-rejected-reason") or b"")


def test_the_store_goes_with_the_broker() -> None:
    with Broker(delay=True) as broker:
        assert broker.data is not None
        store = Path(f"{broker.data}-delay")
        assert store.exists()
    assert not store.exists()


def test_without_it_the_clock_moves_all_the_same() -> None:
    with Broker() as broker:
        before = broker.now()
        broker.advance(days=1, hours=1, minutes=1, seconds=1, milliseconds=1)
        passed = broker.now() - before
    assert passed >= timedelta(days=1, hours=1, minutes=1, seconds=1, milliseconds=1)
