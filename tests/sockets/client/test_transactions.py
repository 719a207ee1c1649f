"""Transactions as a block, on a real broker: whatever ends it, each record is copied once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Misuse,
    Producer,
    TopicPartition,
)
from headrace.client.producer import transactions as module
from headrace.testing import Broker
from tests.interop.brokers import free_port
from tests.sockets.fills import FILLS

pytestmark = pytest.mark.integration

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def new_topic(at: str, *, records: int = 0) -> str:
    topic = f"topic-{next(_numbers)}"
    Admin(at).topics.create(topic, partitions=1)
    with Producer(at, settings=FILLS) as producer:
        for number in range(records):
            producer.send(topic, str(number))
    return topic


def seen(at: str, topic: str, count: int) -> list[bytes | None]:
    """What a read_committed reader sees, and that no more follow."""
    with Consumer(at) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found = [record.value for record in itertools.islice(consumer, count)]
        assert consumer.poll(0.2) is None
        return found


def digits(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def test_a_batch_in_hand_can_be_tried_anew_without_reading_it_again(broker: Broker) -> None:
    at = broker.bootstrap
    source, target = new_topic(at, records=6), new_topic(at)
    failures = iter([True, False, True, True])
    with (
        Consumer(at, topics=[source], group=source) as consumer,
        Producer(at, transactional_id=source) as producer,
    ):
        copied = 0
        while copied < 6:
            batch = consumer.batch(3, timeout_s=60)
            while True:
                try:
                    with producer.transaction(consumer=consumer):
                        for record in batch:
                            producer.send(target, record.value)
                        if next(failures, False):
                            raise RuntimeError("half way")
                    break
                except RuntimeError:
                    continue
            copied += len(batch)
        assert consumer.committed() == {TopicPartition(source, 0): 6}
    assert seen(at, target, 6) == digits(6)


def test_nothing_is_skipped_when_the_cluster_is_away_during_the_abort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.5)
    port = free_port()
    first = Broker(data=tmp_path, port=port).start()
    at = first.bootstrap
    source, target = new_topic(at, records=4), new_topic(at)
    again: Broker | None = None
    consumer: Consumer = Consumer(at, topics=[source], group="copies")
    producer: Producer = Producer(at, transactional_id="copies")
    consumer.connection.timeout_s = 1
    try:
        batch = consumer.batch(2, timeout_s=60)
        assert len(batch) == 2
        with pytest.raises(RuntimeError, match="half way"), producer.transaction(consumer=consumer):
            for record in batch:
                producer.send(target, record.value).result(60)
            first.stop()
            raise RuntimeError("half way")
        again = Broker(data=tmp_path, port=port).start()
        monkeypatch.setattr(module, "PATIENCE_S", 30)
        copied = 0
        while copied < 4:
            batch = read_patiently(consumer)
            with producer.transaction(consumer=consumer):
                for record in batch:
                    producer.send(target, record.value)
            copied += len(batch)
        assert seen(at, target, 4) == digits(4)
    finally:
        producer.close(timeout_s=1)
        consumer.close()
        if again is not None:
            again.stop()


def read_patiently(consumer: Consumer) -> list[Any]:
    """While the group finds its coordinator again, where it stands cannot be asked for."""
    from headrace.client import ClientError

    while True:  # the test's own time limit is the bound
        with contextlib.suppress(ClientError):
            if batch := consumer.batch(2, timeout_s=0.5):
                return batch


def test_a_seek_after_an_abort_is_the_last_word(broker: Broker) -> None:
    at = broker.bootstrap
    source, target = new_topic(at, records=5), new_topic(at)
    with (
        Consumer(at, topics=[source], group=source) as consumer,
        Producer(at, transactional_id=source) as producer,
    ):
        next(consumer)
        with pytest.raises(KeyError), producer.transaction(consumer=consumer):
            producer.send(target, b"never")
            raise KeyError
        consumer.seek(TopicPartition(source, 0), 3)
        assert next(consumer).offset == 3


def test_a_consumer_that_commits_by_itself_has_no_place_in_a_transaction(broker: Broker) -> None:
    at = broker.bootstrap
    topic = new_topic(at, records=1)
    with Producer(at, transactional_id=topic) as producer:
        with (
            Consumer(at, topics=[topic], group=topic, auto_commit=True) as consumer,
            pytest.raises(Misuse, match="auto_commit=True"),
        ):
            producer.transaction(consumer=consumer)
        with (
            Consumer(at) as alone,
            producer.transaction() as transaction,
            pytest.raises(Misuse, match="group="),
        ):
            transaction.send_offsets(alone)
        with producer.transaction():
            producer.send(topic, b"1")
    assert seen(at, topic, 2) == digits(2)
    with pytest.raises(Misuse, match="closed"):
        producer.transaction()


# ---- asyncio


def test_a_task_that_is_cancelled_in_a_transaction_leaves_none_of_it(broker: Broker) -> None:
    at = broker.bootstrap
    source, target = new_topic(at, records=2), new_topic(at)

    async def story() -> None:
        async with (
            AsyncConsumer(at, topics=[source], group=source) as consumer,
            AsyncProducer(at, transactional_id=source) as producer,
        ):
            inside = asyncio.Event()

            async def never_ends() -> None:
                assert await consumer.poll(60) is not None
                async with producer.transaction(consumer=consumer):
                    await producer.send_and_wait(target, b"never")
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(never_ends())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            batch = await consumer.batch(timeout_s=60)
            async with producer.transaction(consumer=consumer):
                for record in batch:
                    await producer.send(target, record.value)

    asyncio.run(story())
    assert seen(at, target, 2) == digits(2)


def test_a_task_that_is_cancelled_at_the_begin_leaves_the_producer_usable(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = broker.bootstrap
    target = new_topic(at)
    begin, entered, go_on = module.Transaction.begin, threading.Event(), threading.Event()

    def slow_begin(self: module.Transaction) -> None:
        entered.set()
        assert go_on.wait(60)
        begin(self)

    async def story() -> None:
        async with AsyncProducer(at, transactional_id=target) as producer:

            async def one(value: bytes) -> None:
                async with producer.transaction():
                    await producer.send(target, value)

            with monkeypatch.context() as slowly:
                slowly.setattr(module.Transaction, "begin", slow_begin)
                task = asyncio.create_task(one(b"never"))
                assert await asyncio.to_thread(entered.wait, 20)
                task.cancel()
                go_on.set()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await one(b"0")

    asyncio.run(story())
    assert seen(at, target, 1) == digits(1)
