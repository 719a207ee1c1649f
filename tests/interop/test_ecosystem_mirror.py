"""MirrorMaker 2 between a cluster of ours and one of Apache Kafka's, both directions at once.

Records, partitions, settings and the places of groups are compared at the other end. It writes
exactly once, and is killed in the middle: what it copies then is neither lost nor doubled.
"""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from headrace.client.consumer.fetched import headers_of
from tests.interop.brokers import Node, free_port, make_node
from tests.interop.ecosystem import ecosystem_java, properties, running, wait_until
from tests.patience import until

Record = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...], int]

PARTITIONS = 3
RECORDS = 300
LOOKS_UNTIL_MORE = 20
EVERY_SECOND = (
    "emit.checkpoints",
    "emit.heartbeats",
    "refresh.groups",
    "refresh.topics",
    "sync.group.offsets",
    "sync.topic.configs",
)
ONE_COPY = ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.")
WORKER = {
    "exactly.once.source.support": "enabled",
    "plugin.discovery": "service_load",
    "scheduled.rebalance.max.delay.ms": "0",
    "offset.storage.partitions": "3",
    # It starts only when the transactions of one that was killed have timed out.
    "producer.transaction.timeout.ms": "4000",
}
# On both sides: forgotten transactions are looked for every second; few files, for speed.
BROKERS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
STORED = ("offset", "status", "config")


class Cluster:
    """A node under the name that MirrorMaker knows it by."""

    def __init__(self, name: str, node: Node) -> None:
        self.name = name
        self.node = node
        self.admin = AdminClient({"bootstrap.servers": node.bootstrap})
        self.sent = 0

    def create(self, topic: str, config: dict[str, str]) -> None:
        new = NewTopic(topic, PARTITIONS, 1, config=config)
        self.admin.create_topics([new])[topic].result(60)

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=60).topics)

    def partitions(self, topic: str) -> int:
        return len(self.admin.list_topics(topic, timeout=60).topics[topic].partitions)

    def config(self, topic: str) -> dict[str, str]:
        """What was set on the topic itself."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        entries = self.admin.describe_configs([resource])[resource].result(60)
        return {name: entry.value for name, entry in entries.items() if not entry.is_default}

    def set(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(60)

    def put(self, topic: str, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.node.bootstrap})
        begin, self.sent = self.sent, self.sent + count
        for n in range(begin, self.sent):
            producer.produce(
                topic,
                f"{self.name} {n}".encode() if n % 10 else None,
                f"key {n % 7}".encode(),
                partition=n % PARTITIONS,
                timestamp=1_700_000_000_000 + n,
                headers=[("n", str(n).encode())],
            )
        assert producer.flush(60) == 0

    def read(self, topic: str, group: str = "") -> list[Record]:
        """Every committed record there is now, by partition and in its order; with a group, only
        what is left for it to read.
        """
        numbers = range(self.partitions(topic))
        begin = [0] * len(numbers)
        if group:  # the partition that was added has no place yet
            begin = [max(place, 0) for place in self.committed(group, topic)]
        seen: list[Record] = []
        ended: set[int] = set()
        deadline = time.monotonic() + 400
        with self.consumer("reads-by-hand") as consumer:
            consumer.assign([TopicPartition(topic, number, begin[number]) for number in numbers])
            while len(ended) < len(numbers):
                assert time.monotonic() < deadline, f"the end of {topic} did not come"
                for message in consumer.consume(500, 0.1):
                    if (error := message.error()) is None:
                        seen.append(as_record(message))
                    else:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        ended.add(message.partition())
        return sorted(seen, key=lambda record: record[0])  # stable: the order in each partition

    def commit_all(self, group: str, topic: str) -> None:
        """As a group does that has read everything."""
        with self.consumer(group) as consumer:
            places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            for place in places:
                place.offset = consumer.get_watermark_offsets(place, timeout=60)[1]
            until(lambda: is_committed(consumer, places), within_s=400)

    def committed(self, group: str, topic: str) -> list[int]:
        with self.consumer(group) as consumer:
            numbers = range(self.partitions(topic))
            asked = [TopicPartition(topic, number) for number in numbers]
            return [place.offset for place in consumer.committed(asked, timeout=60)]

    def consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.node.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )


def is_committed(consumer: Consumer, places: list[TopicPartition]) -> bool:
    """Not at once where it is the first of a coordinator that has to load."""
    try:
        return bool(consumer.commit(offsets=places, asynchronous=False))
    except KafkaException:
        return False


def as_record(message: Message) -> Record:
    headers = tuple(headers_of(message))
    return message.partition(), message.key(), message.value(), headers, message.timestamp()[1]


def mirror(one: Cluster, other: Cluster, port: int) -> dict[str, str]:
    """Settings of a MirrorMaker that copies both ways, exactly once, and looks every second."""
    settings = {
        "clusters": f"{one.name},{other.name}",
        "dedicated.mode.enable.internal.rest": "true",  # exactly-once asks for it
        "listeners": f"http://127.0.0.1:{port}",
        "sync.group.offsets.enabled": "true",
        "offset.lag.max": "0",  # a place is translated exactly, not to the last sync before it
        "sync.topic.acls.enabled": "false",
        "tasks.max": "2",
    }
    settings |= {f"{what}.interval.seconds": "1" for what in EVERY_SECOND}
    settings |= {f"{what}replication.factor": "1" for what in ONE_COPY}
    settings |= {f"{what}.storage.replication.factor": "1" for what in STORED}
    for source, target in itertools.permutations((one, other)):
        settings |= {f"{source.name}.{name}": value for name, value in WORKER.items()}
        settings[f"{source.name}.bootstrap.servers"] = source.node.bootstrap
        settings[f"{source.name}->{target.name}.enabled"] = "true"
        settings[f"{source.name}->{target.name}.topics"] = "orders"
    return settings


@pytest.fixture
def clusters(target: str, tmp_path: Path) -> Iterator[tuple[Cluster, Cluster]]:
    with (
        make_node(target, tmp_path / "ours", BROKERS) as ours,
        make_node("apache", tmp_path / "theirs", BROKERS) as theirs,
    ):
        yield Cluster("ours", ours), Cluster("theirs", theirs)


@pytest.mark.full
def test_two_clusters_mirror_each_other_and_a_group_can_move_over(
    clusters: tuple[Cluster, Cluster], tmp_path: Path
) -> None:
    ways = list(itertools.permutations(clusters))
    log = tmp_path / "mirror.log"
    settings = properties(tmp_path / "mirror.properties", mirror(*clusters, free_port()))
    java, *words = ecosystem_java(
        "org.apache.kafka.connect.mirror.MirrorMaker", settings, heap="512m"
    )
    command = [java, "-Dkafka.log.level=INFO", *words]  # its log tells what it waited for
    for source in clusters:
        source.create("orders", {"retention.ms": "-1", "max.message.bytes": "2000000"})
        source.put("orders", RECORDS)

    with running(command, log) as process:
        for source, target in ways:
            wait_for_records(source, target, process, log)
            source.commit_all("billing", "orders")
        for source, target in ways:
            wait_for_group(source, target, process, log)
        for source in clusters:
            source.put("orders", RECORDS)
        process.kill()  # with transactions open

    for source in clusters:
        source.set("orders", "max.message.bytes", "3000000")
        grown = source.admin.create_partitions([NewPartitions("orders", PARTITIONS + 1)])
        grown["orders"].result(60)
    log = tmp_path / "mirror-again.log"
    with running(command, log) as process:
        for source, target in ways:
            wait_for_records(source, target, process, log)
            wait_for_shape(source, target, process, log)

    for source, target in ways:
        copy = f"{source.name}.orders"
        assert target.read(copy) == source.read("orders")
        assert target.read(copy, "billing") == source.read("orders", "billing")
        assert f"{target.name}.{copy}" not in source.topics()  # it would go round for ever


def wait_for_records(
    source: Cluster, target: Cluster, process: subprocess.Popen[bytes], log: Path
) -> None:
    copy = f"{source.name}.orders"
    wait_until(lambda: copy in target.topics(), process, log)
    wait_until(lambda: len(target.read(copy)) >= source.sent, process, log)


def wait_for_group(
    source: Cluster, target: Cluster, process: subprocess.Popen[bytes], log: Path
) -> None:
    """The group has a place at the other end, and there too nothing is left to read.

    MirrorMaker has at most ten notes about offsets under way; those for which there was no room it
    writes with the next records that it copies. On a busy machine all notes of a partition may be
    among those, so now and then there are some more records.
    """
    copy, looks = f"{source.name}.orders", itertools.count(1)

    def has_moved() -> bool:
        if min(target.committed("billing", copy)) > 0 and target.read(copy, "billing") == []:
            return True
        if next(looks) % LOOKS_UNTIL_MORE == 0:
            source.put("orders", PARTITIONS)
            source.commit_all("billing", "orders")
        return False

    wait_until(has_moved, process, log)


def wait_for_shape(
    source: Cluster, target: Cluster, process: subprocess.Popen[bytes], log: Path
) -> None:
    copy = f"{source.name}.orders"
    wanted = {"retention.ms": "-1", "max.message.bytes": "3000000"}
    wait_until(lambda: target.partitions(copy) == PARTITIONS + 1, process, log)
    wait_until(lambda: wanted.items() <= target.config(copy).items(), process, log)
