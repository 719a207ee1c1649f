"""The asyncio kin of producer and consumer: the same promises, and a loop that never waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client import (
    AsyncConsumer,
    AsyncProducer,
    BufferFull,
    ClientError,
    DeliveryFailed,
    Misuse,
    Outgoing,
    PoisonRecord,
    ProducerInterceptor,
    Sent,
    TopicPartition,
    from_json,
    to_json,
)
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.testing import Broker
from tests.sockets.nobody import nobody

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        topics = Topics(ClientSettings({"bootstrap.servers": running.bootstrap}))
        names = ("async", "async-batch", "async-group", "async-nervous", "async-poison")
        for name in (*names, "async-turns"):
            topics.create(name, partitions=2 if name == "async-turns" else 1)
        yield running


def test_what_is_sent_is_read_one_by_one_and_committed(broker: Broker) -> None:
    place = TopicPartition("async-group", 0)

    async def story() -> None:
        async with AsyncProducer(broker.bootstrap) as producer:
            futures = [await producer.send("async-group", str(n), key="k") for n in range(5)]
            assert [(await future).offset for future in futures] == [0, 1, 2, 3, 4]
        async with AsyncConsumer(
            broker.bootstrap, topics=["async-group"], group="readers"
        ) as consumer:
            async for record in consumer:
                if record.offset == 2:
                    break
            assert await consumer.commit() == {place: 3}, "not what was merely fetched"
            assert consumer.position(place) == 3
            assert await consumer.lag() == {place: 2}
            assert [r.offset for r in await consumer.batch(timeout_s=60)] == [3, 4]
            assert await consumer.committed() == {place: 3}
            await consumer.rewind()
            again = await consumer.poll(60)
            assert again is not None
            assert again.offset == 3
            consumer.stop()
            assert await consumer.poll(60) is None

    asyncio.run(story())


def test_the_loop_runs_while_the_consumer_waits(broker: Broker) -> None:
    async def story() -> None:
        async with AsyncConsumer(broker.bootstrap, auto_offset_reset="latest") as consumer:
            await consumer.assign([TopicPartition("async", 0)])
            waiting = asyncio.create_task(consumer.poll(60))
            for _ in range(20):
                await asyncio.sleep(0.001)
                assert not waiting.done()
            consumer.stop()
            assert await waiting is None

    asyncio.run(story())


def test_a_cancelled_poll_loses_no_record(broker: Broker) -> None:
    async def story() -> None:
        async with (
            AsyncProducer(broker.bootstrap) as producer,
            AsyncConsumer(broker.bootstrap, auto_offset_reset="latest") as consumer,
        ):
            start = (await producer.send_and_wait("async", b"before")).offset + 1
            await consumer.assign({TopicPartition("async", 0): start})
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(60), 0.05)
            await producer.send_and_wait("async", b"after")
            record = await consumer.poll(60)
            assert record is not None
            assert record.value == b"after"

    asyncio.run(story())


def test_interceptors_serializers_and_partitioners_work_here_too(broker: Broker) -> None:
    told: list[Any] = []

    class Counts(ProducerInterceptor):
        def on_send(self, record: Outgoing[Any, Any]) -> Outgoing[Any, Any]:
            record.headers.append(("n", b"1"))
            return record

        def on_delivered(
            self, record: Outgoing[Any, Any], sent: Sent | None, error: ClientError | None
        ) -> None:
            told.append(sent)

    async def story() -> list[int]:
        async with AsyncProducer(
            broker.bootstrap,
            value_serializer=to_json,
            partitioner="round_robin",
            interceptors=[Counts()],
        ) as producer:
            sent = [await producer.send_and_wait("async-turns", {"n": n}) for n in range(4)]
            await producer.send_one_way("async-turns", None)
            await producer.flush()
            return [one.partition for one in sent]

    assert asyncio.run(story()) == [0, 1, 0, 1]
    assert len(told) == 5


def test_poison_can_be_skipped(broker: Broker) -> None:
    async def story() -> None:
        async with AsyncProducer(broker.bootstrap) as producer:
            for value in (b"{", b"7"):
                await producer.send("async-poison", value)
        async with AsyncConsumer(broker.bootstrap, value_deserializer=from_json) as consumer:
            await consumer.assign([TopicPartition("async-poison", 0)])
            with pytest.raises(PoisonRecord) as caught:
                await consumer.poll(60)
            await consumer.skip(caught.value)
            record = await consumer.poll(60)
            assert record is not None
            assert record.value == 7

    asyncio.run(story())


def test_a_full_buffer_lets_others_run_and_then_says_so() -> None:
    async def story() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.001)

        counting = asyncio.create_task(count())
        settings = {"queue.buffering.max.messages": 5, "log_level": 0}
        producer: AsyncProducer = AsyncProducer(nobody(), max_block_s=1, settings=settings)
        futures = [await producer.send("async", b"x") for _ in range(5)]
        with pytest.raises(BufferFull, match="1 seconds"):
            await producer.send("async", b"x")
        counting.cancel()
        await producer.close(timeout_s=0)
        with pytest.raises(DeliveryFailed, match="dropped"):
            await asyncio.wait_for(futures[0], 60)
        await asyncio.gather(*futures, return_exceptions=True)
        return turns

    assert asyncio.run(story()) > 10


def test_a_cancelled_batch_loses_no_record(broker: Broker) -> None:
    place = TopicPartition("async-batch", 0)

    async def story() -> None:
        async with (
            AsyncProducer(broker.bootstrap) as producer,
            AsyncConsumer(broker.bootstrap) as consumer,
        ):
            await consumer.assign({place: 0})
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.batch(timeout_s=60), 0.05)
            assert await producer.send_and_wait("async-batch", b"after")
            records = await consumer.batch(timeout_s=60)
            assert [record.value for record in records] == [b"after"]
            assert consumer.position(place) == 1

    asyncio.run(story())


def test_polls_that_are_cancelled_again_and_again_give_each_record_once(broker: Broker) -> None:
    async def story() -> list[int]:
        async with AsyncProducer(broker.bootstrap) as producer:
            for number in range(300):
                await producer.send_one_way("async-nervous", str(number))
        offsets: list[int] = []
        async with AsyncConsumer(broker.bootstrap) as consumer:
            await consumer.assign([TopicPartition("async-nervous", 0)])
            turn = 0
            while len(offsets) < 300:
                turn += 1
                call = consumer.batch(7, 5) if turn % 2 else consumer.poll(5)
                task = asyncio.create_task(call)
                for _ in range(turn % 5):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    found: Any = await task
                except asyncio.CancelledError:
                    await asyncio.sleep(0.001)
                    continue
                batch = found if isinstance(found, list) else [found]
                offsets += [record.offset for record in batch if record is not None]
        return offsets

    assert asyncio.run(story()) == list(range(300))


def test_a_closed_consumer_says_so_and_closes_only_once(broker: Broker) -> None:
    async def story() -> None:
        async with AsyncConsumer(broker.bootstrap) as consumer:
            await consumer.assign([TopicPartition("async", 0)])
            await consumer.close()
            await consumer.close()
            for call in (consumer.poll(60), consumer.seek(TopicPartition("async", 0), 0)):
                with pytest.raises(Misuse, match="closed"):
                    await call

    asyncio.run(story())


def test_a_closed_producer_says_so(broker: Broker) -> None:
    async def story() -> None:
        async with AsyncProducer(broker.bootstrap) as producer:
            await producer.send_and_wait("async", b"x")
            await producer.close()
            with pytest.raises(Misuse, match="closed"):
                await producer.send("async", b"x")

    asyncio.run(story())


def test_others_get_a_turn_while_a_task_sends_and_sends(broker: Broker) -> None:
    async def story() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with AsyncProducer(broker.bootstrap) as producer:
            counting = asyncio.create_task(count())
            await asyncio.sleep(0)
            before = turns
            for _ in range(2000):
                await producer.send_one_way("async", b"x")
            during = turns - before
            counting.cancel()
        return during

    assert asyncio.run(story()) >= 15
