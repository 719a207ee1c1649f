"""Two of Apache's transactional copiers share a topic in one group; one is killed in the middle.

They abort at random, too. What they copied is the input, record for record and in its order.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.interop.brokers import Node
from tests.interop.ecosystem import running, wait_until
from tests.interop.tools import java_command
from tests.interop.topics import create_topic
from tests.whole_lines import whole_lines

PARTITIONS = 2
# Of each partition: more than one copier could copy before the other has begun.
RECORDS = 15_000
KILLED_AFTER = 200  # records, and when the other has begun


def copier(broker: Node, source: str, sink: str, name: str) -> list[str]:
    return java_command(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", broker.bootstrap),
        *("--input-topic", source, "--input-partition", "-1", "--output-topic", sink),
        *("--consumer-group", f"copies-{source}", "--transactional-id", f"{name}-{source}"),
        *("--transaction-size", "10", "--transaction-timeout", "10000"),
        *("--enable-random-aborts", "--group-mode", "--use-group-metadata"),
    )


def copied(log: Path) -> int:
    """How many records a copier says it has committed."""
    told = [line for line in whole_lines(log) if line.startswith("{")]
    return int(json.loads(told[-1])["totalProcessed"]) if told else 0


def values(broker: Node, topic: str) -> list[list[bytes]]:
    """All committed ones of each partition, in their order."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reads-by-hand",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    ended: set[int | None] = set()
    try:
        while len(ended) < PARTITIONS:
            message = consumer.poll(120)
            assert message is not None, "neither a record nor the end came"
            if (error := message.error()) is None:
                found[message.partition() or 0].append(message.value() or b"")
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
    finally:
        consumer.close()
    return found


def test_a_shared_copy_is_exact_although_a_copier_is_killed(broker: Node, tmp_path: Path) -> None:
    source = create_topic(broker.bootstrap, "copier-in", partitions=PARTITIONS)
    sink = create_topic(broker.bootstrap, "copier-out", partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(PARTITIONS * RECORDS):
        producer.produce(source, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(120) == 0

    steady, killed, again = (tmp_path / f"{name}.log" for name in ("steady", "killed", "again"))
    with contextlib.ExitStack() as ending:
        other = ending.enter_context(running(copier(broker, source, sink, "killed"), killed))
        one = ending.enter_context(running(copier(broker, source, sink, "steady"), steady))
        wait_until(lambda: copied(killed) >= KILLED_AFTER and copied(steady) > 0, other, killed)
        other.kill()
        other.wait()
        assert copied(killed) + copied(steady) < PARTITIONS * RECORDS, "it was killed too late"
        new = ending.enter_context(running(copier(broker, source, sink, "killed"), again))
        # Each ends by itself when nothing is left of its share.
        wait_until(lambda: new.poll() == 0, new, again)
        wait_until(lambda: one.poll() == 0, one, steady)
    assert values(broker, sink) == values(broker, source)
