"""A user's program as mypy --strict sees it: what is sent and read has the types that were given.

Not run, only checked (`make check`); a line that loses its type is an error there.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import assert_type

from headrace import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from headrace.client import (
    Acl,
    ClientError,
    Delivery,
    Outgoing,
    ProducerInterceptor,
    Record,
    Sent,
    from_text,
    to_integer,
    to_text,
)


@dataclass
class Order:
    item: str
    count: int


def write_order(order: Order) -> bytes:
    return f"{order.count} {order.item}".encode()


def read_order(raw: bytes) -> Order:
    count, _, item = raw.decode().partition(" ")
    return Order(item, int(count))


class Counts(ProducerInterceptor):
    def on_send(self, record: Outgoing[str, Order]) -> Outgoing[str, Order]:
        return record


def by_item(topic: str, key: bytes | None, partitions: int) -> int:
    return len(key or b"") % partitions


def plain() -> None:
    """Without serializers: bytes and text out, bytes in."""
    producer = Producer("localhost:9092")
    assert_type(producer, Producer[bytes | str, bytes | str])
    producer.send("orders", "text", key=b"bytes", headers={"trace": "7"})
    producer.send("orders", 5)  # type: ignore[arg-type]
    consumer = Consumer("localhost:9092", topics=["orders"], group="billing")
    assert_type(consumer, Consumer[bytes, bytes])
    for record in consumer:
        assert_type(record, Record[bytes, bytes])
        assert_type(record.value, bytes | None)


def typed() -> None:
    with Producer(
        key_serializer=to_text, value_serializer=write_order, partitioner=by_item
    ) as producer:
        assert_type(producer, Producer[str, Order])
        future = producer.send("orders", Order("apples", 42), key="anna")
        assert_type(future, Delivery)
        assert_type(future.result(), Sent)
        assert_type(producer.send_sync("orders", None, key="anna"), Sent)
        producer.send("orders", "42 apples")  # type: ignore[arg-type]
        producer.send("orders", Order("apples", 42), key=7)  # type: ignore[arg-type]
    with Consumer(key_deserializer=from_text, value_deserializer=read_order) as consumer:
        assert_type(consumer, Consumer[str, Order])
        assert_type(consumer.poll(), Record[str, Order] | None)
        assert_type(consumer.batch(), list[Record[str, Order]])
        assert_type(consumer.positions(), dict[TopicPartition, int])
        for record in consumer:
            assert_type(consumer.commit(record, timeout_s=5), dict[TopicPartition, int])
            consumer.commit_async({record.place: record.offset + 1})


def half_typed() -> None:
    """Only one of the two is given: the other is as without."""
    with Producer(value_serializer=write_order) as producer:
        assert_type(producer, Producer[bytes | str, Order])
    with Consumer(value_deserializer=read_order) as consumer:
        assert_type(consumer, Consumer[bytes, Order])
    with Producer(key_serializer=to_integer) as keyed:
        assert_type(keyed, Producer[int, bytes | str])


def transactions() -> None:
    def heard(sent: Sent | None, error: ClientError | None) -> None: ...

    with (
        Consumer(topics=["orders"], group="biller", value_deserializer=read_order) as consumer,
        Producer(transactional_id="biller-1") as producer,
        producer.transaction(consumer=consumer) as transaction,
    ):
        for record in consumer.batch():
            producer.send("bills", record.value.item if record.value else None, callback=heard)
        transaction.send_offsets(consumer)


async def asynchronous() -> None:
    async with AsyncProducer(value_serializer=write_order) as producer:
        assert_type(producer, AsyncProducer[bytes | str, Order])
        assert_type(await producer.send("orders", Order("pears", 1)), asyncio.Future[Sent])
        assert_type(await producer.send_and_wait("orders", Order("pears", 1)), Sent)
    async with AsyncConsumer(value_deserializer=read_order, group="g") as consumer:
        async for record in consumer:
            assert_type(record, Record[bytes, Order])
            assert_type(await consumer.commit(), dict[TopicPartition, int])


def administration() -> None:
    admin = Admin()
    admin.topics.create("orders", partitions=3, settings={"retention.ms": "1000"})
    admin.acls.add([Acl("topic", "orders", "literal", "User:anna", "*", "read", "allow")])
    admin.quotas.alter({"user": "anna"}, {"producer_byte_rate": 1e6})
    admin.users.set_password("anna", "secret", mechanism="SCRAM-SHA-512")
    assert_type(admin.delete_records({TopicPartition("orders", 0): 5}), dict[TopicPartition, int])
