"""Consumer groups of clients that nobody here wrote, and of Apache Kafka's own tools."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.interop.brokers import Node, make_node
from tests.interop.clients import Client, CommandProgram
from tests.interop.java_session import JavaSession
from tests.interop.tools import run, tool
from tests.interop.topics import create_topic

PARTITIONS = 4
RECORDS = 200
WITHIN_S = 400.0
SESSION_MS = 30_000
JAVA_ASSIGNORS = ("Range", "RoundRobin", "Sticky", "CooperativeSticky")


def filled(broker: Node, name: str) -> str:
    topic = create_topic(broker.bootstrap, name, partitions=PARTITIONS)
    fill(broker, topic)
    return topic


def fill(broker: Node, topic: str, count: int = RECORDS) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


@contextlib.contextmanager
def members(broker: Node, group: str, count: int, **settings: Any) -> Iterator[list[Any]]:
    shared = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": SESSION_MS,
    } | {name.replace("_", "."): value for name, value in settings.items()}
    if shared.get("group.protocol") == "consumer":
        del shared["session.timeout.ms"]  # the server decides it
    consumers = [confluent_kafka.Consumer(shared) for _ in range(count)]
    try:
        yield consumers
    finally:
        for consumer in consumers:
            consumer.close()


def poll_until(
    consumers: list[Any],
    is_so: Callable[[list[set[bytes]]], bool],
    within_s: float = WITHIN_S,
) -> list[set[bytes]]:
    """What each has read by then."""
    read: list[set[bytes]] = [set() for _ in consumers]
    deadline = time.monotonic() + within_s
    while not is_so(read):
        assert time.monotonic() < deadline, [c.assignment() for c in consumers]
        for consumer, seen in zip(consumers, read, strict=True):
            message = consumer.poll(0.02)
            if message is not None:
                assert message.error() is None, message.error()
                seen.add(message.value())
    return read


def committed(broker: Node, group: str, topic: str) -> list[int]:
    with members(broker, group, 1) as [asking]:
        places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        return [place.offset for place in asking.committed(places, timeout=60)]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_members_share_and_their_place_is_kept(broker: Node, strategy: str) -> None:
    topic = filled(broker, f"shared-{strategy}")
    settings = {"partition_assignment_strategy": strategy}
    with members(broker, strategy, 2, **settings) as both:
        for consumer in both:
            consumer.subscribe([topic])

        def all_read(read: list[set[bytes]]) -> bool:
            return len(set.union(*read)) == RECORDS and {
                len(consumer.assignment()) for consumer in both
            } == {PARTITIONS // 2}

        poll_until(both, all_read)
        for consumer in both:
            with contextlib.suppress(confluent_kafka.KafkaException):  # has read nothing of its own
                consumer.commit(asynchronous=False)
    assert sum(max(offset, 0) for offset in committed(broker, strategy, topic)) <= RECORDS


def places(consumers: list[Any]) -> int:
    """How far they have read in what they have now, in all."""
    return sum(max(p.offset, 0) for c in consumers for p in c.position(c.assignment()))


def test_a_member_that_goes_is_replaced_and_nothing_is_read_twice(broker: Node) -> None:
    topic = filled(broker, "replaced")
    with members(broker, "replaced", 2) as both:
        for consumer in both:
            consumer.subscribe([topic])
        # However the shares were before: each has read all of the share that it has now.
        poll_until(both, lambda _: all(c.assignment() for c in both) and places(both) == RECORDS)
        for consumer in both:
            consumer.commit(asynchronous=False)
        both[0].close()
        fill(broker, topic)
        left = poll_until(both[1:], lambda _: len(both[1].assignment()) == PARTITIONS)
        more = poll_until(both[1:], lambda read: len(read[0] | left[0]) == RECORDS)
        assert more


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_partitions_that_are_added_and_topics_that_come_and_go_are_noticed(
    broker: Node, protocol: str
) -> None:
    topic = create_topic(broker.bootstrap, f"growing-{protocol}", partitions=PARTITIONS)
    settings = {"topic_metadata_refresh_interval_ms": 500, "group_protocol": protocol}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with members(broker, f"growing-{protocol}", 2, **settings) as both:
        for consumer in both:
            consumer.subscribe([f"^{topic}.*"])
        wait_for_parts(both, PARTITIONS)
        admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result(60)
        wait_for_parts(both, PARTITIONS + 2)
        later = create_topic(broker.bootstrap, f"{topic}-later", partitions=2)
        wait_for_parts(both, PARTITIONS + 4)
        admin.delete_topics([later])[later].result(60)
        wait_for_parts(both, PARTITIONS + 2)


def wait_for_parts(consumers: list[Any], count: int) -> None:
    """All have their part of so many partitions, and none has what another has."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        for consumer in consumers:
            consumer.poll(0.02)  # what it says of a topic that is gone is its own affair
        parts = [{(p.topic, p.partition) for p in c.assignment()} for c in consumers]
        if len(set.union(*parts)) == sum(map(len, parts)) == count and all(parts):
            return
        assert time.monotonic() < deadline, parts


def test_kcat_joins_a_group(broker: Node) -> None:
    topic = filled(broker, "by-kcat")
    command = [
        tool("kcat"),
        "-b",
        broker.bootstrap,
        "-G",
        "kcat",
        "-X",
        "auto.offset.reset=earliest",
    ]
    assert len(run([*command, "-c", str(RECORDS), topic], timeout_s=120).split()) == RECORDS


def test_kafka_python_joins_a_group(broker: Node) -> None:
    topic = filled(broker, "by-kafka-python")
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id="kafka-python",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    values: set[bytes] = set()
    deadline = time.monotonic() + WITHIN_S
    while len(values) < RECORDS:
        assert time.monotonic() < deadline, len(values)
        for records in consumer.poll(timeout_ms=500).values():
            values |= {record.value for record in records}
    consumer.commit()
    consumer.close()
    assert sum(committed(broker, "kafka-python", topic)) == RECORDS


def test_aiokafka_joins_a_group(broker: Node) -> None:
    topic = filled(broker, "by-aiokafka")

    async def read() -> int:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id="aiokafka",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        count = 0
        try:
            while count < RECORDS:
                found = await consumer.getmany(timeout_ms=1_000)
                count += sum(map(len, found.values()))
            await consumer.commit()
        finally:
            await consumer.stop()
        return count

    assert asyncio.run(asyncio.wait_for(read(), WITHIN_S)) == RECORDS
    assert sum(committed(broker, "aiokafka", topic)) == RECORDS


@pytest.mark.parametrize("name", ["kafkajs", "franz-go"])
def test_programs_in_other_languages_join_a_group(
    broker: Node, clients: dict[str, Client], name: str
) -> None:
    topic = filled(broker, f"by-{name}")
    program = clients[name]
    assert isinstance(program, CommandProgram)
    job = {"verb": "join", "bootstrap": broker.bootstrap, "group": name, "topic": topic}
    assert len(set(program.ask(job | {"count": RECORDS})["values"])) == RECORDS
    assert sum(committed(broker, name, topic)) == RECORDS


# ---- the newer protocol (KIP-848)


def test_two_members_share_by_the_newer_protocol(broker: Node) -> None:
    topic = filled(broker, "shared-848")
    with members(broker, "shared-848", 2, group_protocol="consumer") as both:
        for consumer in both:
            consumer.subscribe([topic])

        def all_read(read: list[set[bytes]]) -> bool:
            shares = {len(consumer.assignment()) for consumer in both}
            return len(set.union(*read)) == RECORDS and shares == {PARTITIONS // 2}

        poll_until(both, all_read)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        described = admin.describe_consumer_groups(["shared-848"])["shared-848"].result(60)
        assert described.type == confluent_kafka.ConsumerGroupType.CONSUMER


def test_a_pattern_is_matched_by_the_server(broker: Node) -> None:
    topic = filled(broker, "pattern-848")
    with members(broker, "pattern-848", 1, group_protocol="consumer") as [consumer]:
        consumer.subscribe(["^pattern-848.*"])
        poll_until([consumer], lambda read: len(read[0]) == RECORDS)
        create_topic(broker.bootstrap, "pattern-848-later", partitions=1)
        poll_until([consumer], lambda _: len(consumer.assignment()) == PARTITIONS + 1)
    assert topic


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_java_consumer_joins_by_the_newer_protocol(
    broker: Node, java: JavaSession, assignor: str
) -> None:
    topic = filled(broker, f"java-848-{assignor}")
    settings = {
        "group.id": f"java-848-{assignor}",
        "group.protocol": "consumer",
        "group.remote.assignor": assignor,
        "auto.offset.reset": "earliest",
    }
    printed = console_consumer(java, broker, topic, settings)
    assert sorted(map(int, printed.split())) == list(range(RECORDS))
    assert sum(committed(broker, f"java-848-{assignor}", topic)) == RECORDS


def test_a_living_group_changes_to_the_newer_protocol_and_back(broker: Node) -> None:
    topic = filled(broker, "migrated")
    classic = {"partition_assignment_strategy": "cooperative-sticky"}
    with (
        members(broker, "migrated", 1, **classic) as [old],
        members(broker, "migrated", 1, group_protocol="consumer") as [new],
    ):
        old.subscribe([topic])
        poll_until([old], lambda read: len(read[0]) == RECORDS)
        old.commit(asynchronous=False)
        new.subscribe([topic])
        half = PARTITIONS // 2
        poll_until([old, new], lambda _: [len(c.assignment()) for c in (old, new)] == [half, half])
        fill(broker, topic)
        poll_until([old, new], lambda read: len(set.union(*read)) == RECORDS)
        new.commit(asynchronous=False)
        new.close()
        poll_until([old], lambda _: len(old.assignment()) == PARTITIONS)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        described = admin.describe_consumer_groups(["migrated"])["migrated"].result(60)
        assert described.type == confluent_kafka.ConsumerGroupType.CLASSIC


def test_a_static_member_changes_its_protocol_in_a_restart(broker: Node) -> None:
    """There and back, each time at once: its session of 45 s would not be over in time."""
    topic = filled(broker, "static-migrated")
    settings = {"group_instance_id": "one", "session_timeout_ms": 45_000}
    for protocol in ("classic", "consumer", "classic"):
        with members(broker, "static-migrated", 1, group_protocol=protocol, **settings) as [one]:
            one.subscribe([topic])
            poll_until([one], lambda read: len(read[0]) == RECORDS, within_s=40)
            one.commit(asynchronous=False)
            fill(broker, topic)


# ---- Apache Kafka's own


@pytest.mark.parametrize("assignor", JAVA_ASSIGNORS)
def test_the_java_consumer_joins_with_each_assignor(
    broker: Node, java: JavaSession, assignor: str
) -> None:
    topic = filled(broker, f"by-java-{assignor}")
    settings = {
        "group.id": f"java-{assignor}",
        "group.protocol": "classic",
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{assignor}Assignor",
    }
    printed = console_consumer(java, broker, topic, settings)
    assert sorted(map(int, printed.split())) == list(range(RECORDS))
    assert sum(committed(broker, f"java-{assignor}", topic)) == RECORDS


def console_consumer(java: JavaSession, broker: Node, topic: str, settings: dict[str, str]) -> str:
    properties = [
        part
        for name, value in settings.items()
        for part in ("--command-property", f"{name}={value}")
    ]
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    how_many = ("--max-messages", str(RECORDS), "--timeout-ms", "120000")
    tool_name = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    return java.run(tool_name, *where, *how_many, *properties)


def test_consumer_groups_command_shows_resets_and_deletes(broker: Node, java: JavaSession) -> None:
    topic = filled(broker, "by-groups-command")

    def groups(*arguments: str, code: int = 0) -> str:
        tool_name = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        where = ("--bootstrap-server", broker.bootstrap)
        return java.run(tool_name, *where, *arguments, code=code)

    group = ("--group", "commanded")
    with members(broker, "commanded", 1) as [consumer]:
        consumer.subscribe([topic])
        poll_until([consumer], lambda read: len(read[0]) == RECORDS)
        consumer.commit(asynchronous=False)
        described = groups("--describe", *group)
        assert described.count(topic) == PARTITIONS
        assert "Stable" in groups("--describe", *group, "--state")
        assert "rdkafka" in groups("--describe", *group, "--members", "--verbose")
        refused = groups("--reset-offsets", *group, "--topic", topic, "--to-earliest", "--execute")
        assert "inactive" in refused or "rror" in refused
    assert "commanded" in groups("--list").split()
    groups("--reset-offsets", *group, "--topic", topic, "--to-earliest", "--execute")
    assert committed(broker, "commanded", topic) == [0] * PARTITIONS
    groups("--reset-offsets", *group, "--topic", f"{topic}:1", "--shift-by", "3", "--execute")
    assert committed(broker, "commanded", topic)[1] == 3
    groups("--delete-offsets", *group, "--topic", f"{topic}:1")
    groups("--delete", *group)
    assert "commanded" not in groups("--list").split()


def test_dump_log_reads_what_is_kept(target: str, tmp_path: Path, java: JavaSession) -> None:
    with make_node(target, tmp_path, {"offsets.topic.num.partitions": "1"}) as node:
        topic = filled(node, "dumped")
        with members(node, "dumped-group", 1) as [consumer]:
            consumer.subscribe([topic])
            poll_until([consumer], lambda read: len(read[0]) == RECORDS)
            consumer.commit(asynchronous=False)
        node.stop()
        log = node.data / "__consumer_offsets-0" / "00000000000000000000.log"
        dump = "org.apache.kafka.tools.DumpLogSegments"
        shown = java.run(dump, "--offsets-decoder", "--files", str(log))
    assert f'"group":"dumped-group","topic":"{topic}","partition":3' in shown
    assert '"protocolType":"consumer"' in shown
    assert f'"offset":{RECORDS // PARTITIONS}' in shown


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_when_the_folder_is_handed_on(
    target: str, tmp_path: Path, protocol: str
) -> None:
    """Headrace, Apache Kafka and Headrace again under one living consumer."""
    kinds = ["headrace", "apache", "headrace"] if target == "headrace" else [target] * 2
    nodes = [make_node(kind, tmp_path / str(step)) for step, kind in enumerate(kinds)]
    nodes[0].start()
    topic = filled(nodes[0], "handed-on")
    patient = {"session_timeout_ms": 180_000, "group_protocol": protocol}
    with members(nodes[0], "handed-on", 1, **patient) as [consumer]:
        consumer.subscribe([topic])
        poll_until([consumer], lambda read: len(read[0]) == RECORDS)
        consumer.commit(asynchronous=False)
        for before, node in itertools.pairwise(nodes):
            before.stop()
            node.take_over(before)
            node.start()
            fill(node, topic)
            poll_until([consumer], lambda read: len(read[0]) == RECORDS)
            commit(consumer)
        admin = AdminClient({"bootstrap.servers": nodes[-1].bootstrap})
        described = admin.describe_consumer_groups(["handed-on"])["handed-on"].result(60)
        assert len(described.members) == 1
        assert sum(committed_by(consumer, topic)) == RECORDS * len(nodes)
    nodes[-1].stop()


def commit(consumer: Any) -> None:
    """Apache Kafka lets one read before its coordinator has loaded the group."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            consumer.commit(asynchronous=False)
            return
        except confluent_kafka.KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def committed_by(consumer: Any, topic: str) -> list[int]:
    places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    return [place.offset for place in consumer.committed(places, timeout=60)]
