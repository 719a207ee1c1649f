"""Transactions of the Python clients that do not stand on librdkafka."""

from __future__ import annotations

import asyncio
import contextlib

import aiokafka
import kafka
from confluent_kafka import TopicPartition

from tests.interop.brokers import Node
from tests.interop.test_transactions import WITHIN_S, consumer_in, read
from tests.interop.topics import create_topic


def test_aiokafka_commits_and_aborts(broker: Node) -> None:
    topic = create_topic(broker.bootstrap, "txn-aiokafka", partitions=2)

    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id="txn-aiokafka"
        )
        async with producer:
            for number in range(6):
                with contextlib.suppress(LookupError):
                    async with producer.transaction():
                        await producer.send(topic, b"%d" % number, partition=number % 2)
                        await producer.flush()
                        if number % 3 == 0:
                            raise LookupError
                        await producer.send_offsets_to_transaction(
                            {aiokafka.TopicPartition(topic, 0): number}, "txn-aiokafka"
                        )

    asyncio.run(asyncio.wait_for(write(), WITHIN_S))
    assert sorted(read(broker, topic)) == ["1", "2", "4", "5"]
    with contextlib.closing(consumer_in(broker, "txn-aiokafka")) as asking:
        [place] = asking.committed([TopicPartition(topic, 0)], WITHIN_S)
    assert place.offset == 5


def test_kafka_python_commits_and_aborts(broker: Node) -> None:
    topic = create_topic(broker.bootstrap, "txn-kafka-python", partitions=2)
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id="txn-kafka-python"
    )
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number, partition=number % 2)
        if number % 3 == 0:
            producer.flush(WITHIN_S)
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    assert sorted(read(broker, topic)) == ["1", "2", "4", "5"]
