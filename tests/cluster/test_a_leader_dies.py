"""Three brokers as processes: what was acknowledged is there after a node was killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing import Cluster

PARTITIONS = 3
ENOUGH = 3_000  # records that are acknowledged after the death


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        yield running


def create(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 3)]).values():
        made.result(60)


def leader_of(cluster: Cluster, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return int(admin.list_topics(topic, timeout=60).topics[topic].partitions[0].leader)


class Writer:
    """An idempotent producer that remembers what was acknowledged."""

    def __init__(self, cluster: Cluster, topic: str, *, padding: int = 0, batch: int = 500) -> None:
        """`padding`: blanks behind the number that is the value of a record; `batch`: the most
        records of one batch."""
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": batch,
            }
        )
        self._topic = topic
        self._padding = b" " * padding
        self._next = 0
        self.acknowledged: list[int] = []
        self.refused: list[KafkaError] = []

    def write_until(self, count: int) -> None:
        """Until so many are acknowledged in all."""
        while len(self.acknowledged) < count and not self.refused:
            if len(self._producer) < 500:
                value = b"%d" % self._next + self._padding
                self._producer.produce(self._topic, value, on_delivery=self._delivered)
                self._next += 1
            self._producer.poll(0.01 if len(self._producer) >= 500 else 0)

    def finish(self) -> None:
        assert self._producer.flush(60) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error)
        else:
            self.acknowledged.append(int(message.value() or b""))


def read_all(cluster: Cluster, topic: str, count: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"readers of {topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[int] = []
    while len(found) < count:
        for message in consumer.consume(1_000, 1.0):
            assert message.error() is None, message.error()
            found.append(int(message.value() or b""))
    consumer.close()
    return found


def test_nothing_acknowledged_is_lost_when_a_leader_is_killed(cluster: Cluster) -> None:
    create(cluster, "orders")
    writer = Writer(cluster, "orders")
    writer.write_until(1_000)
    dead = leader_of(cluster, "orders")
    cluster.kill(dead)
    writer.write_until(len(writer.acknowledged) + ENOUGH)
    writer.finish()
    assert writer.refused == []
    assert sorted(read_all(cluster, "orders", len(writer.acknowledged))) == sorted(
        writer.acknowledged
    ), "each one, and each one once"
    cluster.restore(dead)


def test_a_node_that_is_cut_off_comes_back(cluster: Cluster) -> None:
    create(cluster, "payments")
    writer = Writer(cluster, "payments")
    writer.write_until(500)
    away = leader_of(cluster, "payments")
    cluster.cut(away)
    writer.write_until(len(writer.acknowledged) + 500)
    cluster.restore(away)
    writer.write_until(len(writer.acknowledged) + 500)
    writer.finish()
    assert writer.refused == []
    assert sorted(read_all(cluster, "payments", len(writer.acknowledged))) == sorted(
        writer.acknowledged
    )
