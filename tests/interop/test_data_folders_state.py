"""A data folder changes hands: what is kept of transactions, of share groups, of streams groups,
which Headrace does not serve, and what the controller keeps of users and limits.

`test_data_folders.py` does the same for records and topics, `test_data_folders_groups.py` for
groups, `test_authorization.py` for access control entries. With TARGET=apache all nodes are
Apache Kafka's, to check the tests themselves.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client import Admin
from headrace.client.admin.transactional_ids import TransactionDescription
from headrace.operations.files.dump.internal_topics import OTHER_GROUPS
from headrace.wire.protocol import record_batch
from tests.interop.brokers import Node
from tests.interop.ecosystem import EcosystemSession, properties
from tests.interop.java_session import JavaSession
from tests.interop.rows import (
    WITHIN_S,
    Row,
    and_back,
    both_ways,
    commit,
    found_places,
    until,
)
from tests.interop.test_groups import members, poll_until
from tests.interop.test_quotas import configs
from tests.interop.test_transactions import producer_of, read, transaction
from tests.interop.topics import create_topic

TOOLS = "org.apache.kafka.tools"


# ---- transactions


def state_of(node: Node, transactional_id: str) -> TransactionDescription:
    found = Admin(node.bootstrap).transactions.describe(transactional_id)
    found.coordinator = ""
    return found


@both_ways
def test_open_transactions_end_at_the_other_broker(
    row: tuple[str, ...], tmp_path: Path, java: JavaSession
) -> None:
    """One is committed by its producer, with the offsets it holds; a forgotten one is aborted by
    its time-out; identities and epochs go on.
    """
    quick = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    patient = {"message.timeout.ms": 300_000, "transaction.timeout.ms": 300_000}
    with Row(row, tmp_path, quick) as nodes, contextlib.ExitStack() as stack:
        node = nodes.node
        topic = create_topic(node.bootstrap, "open", partitions=2)
        transaction(producer_of(node, "done"), topic, ["aborted"], commit=False)
        transaction(producer_of(node, "done"), topic, ["done"], commit=True)
        perform(java, node, topic, "java")
        [reader] = stack.enter_context(
            members(node, "copies", 1, isolation_level="read_uncommitted")
        )
        [careful] = stack.enter_context(
            members(node, "copies", 1, isolation_level="read_committed")
        )
        place = [TopicPartition(topic, 1, 1)]
        commit(reader, place)
        copier = producer_of(node, "copier", **patient)
        copier.begin_transaction()
        copier.produce(topic, b"copied", partition=1)
        further = [TopicPartition(topic, 1, 2, metadata="by the copier")]
        copier.send_offsets_to_transaction(further, reader.consumer_group_metadata(), 30)
        assert copier.flush(60) == 0
        late = producer_of(node, "late", **dict.fromkeys(patient, 10_000))
        late.begin_transaction()
        late.produce(topic, b"late", partition=0)
        assert late.flush(60) == 0
        ended = ("done", "java")  # but their markers come after the answer
        until(lambda: all(state_of(nodes.node, n).state[:8] == "Complete" for n in ended), "no end")
        before = {name: state_of(node, name) for name in ("done", "copier", "java")}
        assert before["copier"].state == "Ongoing"

        node = nodes.hand_on()
        until(lambda: {n: state_of(nodes.node, n) for n in before} == before, "not as before")
        assert found_places(reader, place)[0].offset == 1
        with pytest.raises(confluent_kafka.KafkaException):  # it waits for the copier
            careful.committed(place, 1.5)
        until(lambda: state_of(node, "late").state == "CompleteAbort", "it is not aborted by time")
        with pytest.raises(confluent_kafka.KafkaException):
            late.commit_transaction(30)
        copier.commit_transaction(WITHIN_S)
        [now] = found_places(careful, place)
        assert (now.offset, now.metadata) == (2, "by the copier")
        until(lambda: {"done", "copied"} <= set(read(nodes.node, topic)), "they are not seen")
        assert not {"aborted", "late"} & set(read(node, topic))

        transaction(producer_of(node, "done"), topic, ["goes on"], commit=True)
        perform(java, node, topic, "java")
        after = {name: state_of(node, name) for name in before}
        for name, state in after.items():
            assert state.producer_id == before[name].producer_id
        assert after["done"].producer_epoch == before["done"].producer_epoch + 1
        assert after["java"].producer_epoch > before["java"].producer_epoch + 1  # KIP-890
        until(lambda: "goes on" in read(nodes.node, topic), "it is not seen")
        stack.close()


def perform(java: JavaSession, node: Node, topic: str, transactional_id: str) -> None:
    """Some transactions of Apache's own producer, which bumps its epoch in each (KIP-890)."""
    java.run(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", "40", "--record-size", "10"),
        *("--throughput", "400", "--transaction-duration-ms", "20"),
        *("--transactional-id", transactional_id),
        *("--producer-props", f"bootstrap.servers={node.bootstrap}"),
    )


# ---- kinds of groups that Headrace does not serve


def foreign_records(data: Path) -> dict[bytes, bytes | None]:
    """The last value of each key in the log of groups that is of a streams group."""
    found: dict[bytes, bytes | None] = {}
    for path in sorted(data.glob("__consumer_offsets-*/*.log")):
        log = path.read_bytes()
        for position, header in record_batch.headers_in(log):
            if header.is_control:
                continue
            for record in record_batch.walk(log[position : position + header.size], 1 << 20):
                assert record.key is not None
                known = OTHER_GROUPS.decode(record.key, None)
                if known is not None and type(known.key).__name__.startswith("Streams"):
                    found[record.key] = record.value
    return found


@pytest.fixture(scope="module")
def streams() -> Iterator[EcosystemSession]:
    with EcosystemSession() as session:
        yield session


def test_streams_groups_wait_for_apache_to_come_back(
    tmp_path: Path, streams: EcosystemSession
) -> None:
    settings = {"offsets.topic.num.partitions": "1"}
    with Row(("apache", "headrace", "apache"), tmp_path, settings) as nodes:
        node = nodes.node
        topic = create_topic(node.bootstrap, "shared")
        put(node, topic, range(20))
        run_a_streams_application(streams, node, tmp_path)
        [listed] = [one for one in groups_of(streams, node) if one[1] == "Streams"]
        node.stop()  # and writes no more
        before = foreign_records(node.data)
        assert len(before) > 2

        node = nodes.hand_on()
        with members(node, "ours", 1) as [consumer]:
            consumer.subscribe([topic])
            poll_until([consumer], lambda read: len(read[0]) == 20)
            consumer.commit(asynchronous=False)
        assert "ours" in {name for name, _ in groups_of(streams, node)}
        for protocol in ("classic", "consumer"):  # else Apache could not load this partition
            with members(node, listed[0], 1, group_protocol=protocol) as [intruder]:
                intruder.subscribe([topic])
                until(lambda one=intruder: is_refused(one), "the name of the group is free")  # type: ignore[misc]

        node.stop()
        assert foreign_records(node.data) == before
        nodes.hand_on()
        until(lambda: listed in groups_of(streams, nodes.node), "the group is missing")


@and_back
def test_a_share_group_goes_on_where_it_was(
    row: tuple[str, ...], tmp_path: Path, java: JavaSession
) -> None:
    """Each node hands out some of the records, and none that another has had acknowledged."""
    settings = {"share.coordinator.state.topic.min.isr": "1"}
    with Row(row, tmp_path, settings) as nodes:
        node = nodes.node
        topic = create_topic(node.bootstrap, "shared")
        put(node, topic, range(24))
        serve_share_groups(java, node)
        share_from_the_start(java, node)
        for first in (0, 8, 16):
            assert shared(java, node, topic, 8) == list(range(first, first + 8))
            if first < 16:
                node = nodes.hand_on()
        assert ("sharing", "Share") in groups_of(java, node)


def serve_share_groups(java: JavaSession, node: Node) -> None:
    """The level is 1 in new folders of Apache Kafka."""
    where = ("--bootstrap-server", node.bootstrap)
    levels = java.run(f"{TOOLS}.FeatureCommand", *where, "describe")
    if not re.search(r"share\.version\s.*FinalizedVersionLevel: 1", levels):
        java.run(f"{TOOLS}.FeatureCommand", *where, "upgrade", "--feature", "share.version=1")


def is_refused(consumer: Any) -> bool:
    message = consumer.poll(0.2)
    return message is not None and message.error() is not None


def put(node: Node, topic: str, numbers: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
    for number in numbers:
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0


def share_from_the_start(java: JavaSession, node: Node) -> None:
    who = ("--entity-type", "groups", "--entity-name", "sharing")
    wish = "share.auto.offset.reset=earliest"
    configs(java, node, *who, "--alter", "--add-config", wish)
    until(lambda: wish in configs(java, node, *who, "--describe"), "it is not known")


def shared(java: JavaSession, node: Node, topic: str, count: int) -> list[int]:
    """What a member of the share group gets, one run of Apache's console tool."""
    printed = java.run(
        f"{TOOLS}.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", node.bootstrap, "--topic", topic, "--group", "sharing"),
        *("--max-messages", str(count), "--timeout-ms", "120000"),
    )
    return sorted(int(line) for line in printed.split())


def groups_of(java: JavaSession, node: Node) -> list[tuple[str, str]]:
    """Name and type of every group, as Apache's tool lists them."""
    printed = java.run(f"{TOOLS}.GroupsCommand", "--bootstrap-server", node.bootstrap, "--list")
    return re.findall(r"^(\S+)\s+(Classic|Consumer|Share|Streams)\b", printed, re.MULTILINE)


def run_a_streams_application(java: JavaSession, node: Node, folder: Path) -> None:
    """Apache's own test program, as a group of the streams protocol (KIP-1071)."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    names = ("brokerCompatibilitySourceTopic", "brokerCompatibilitySinkTopic")
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        created.result(60)
    settings = {
        "bootstrap.servers": node.bootstrap,
        "state.dir": str(folder),
        "group.protocol": "streams",
    }
    path = properties(folder / "streams.properties", settings)
    program = "org.apache.kafka.streams.tests.BrokerCompatibilityTest"
    assert "close Kafka Streams" in java.run(program, path, "at_least_once")


# ---- users and limits


@and_back
def test_users_quotas_and_settings_of_groups_are_handed_on(
    row: tuple[str, ...], tmp_path: Path, java: JavaSession
) -> None:
    """Each node shows what the ones before were told, and is told something itself."""

    def shown(node: Node, *whose: str) -> list[str]:
        return configs(java, node, "--entity-type", *whose, "--describe").splitlines()

    def everything(node: Node) -> list[str]:
        told = shown(node, "brokers", "--entity-default")
        for kind in ("users", "clients", "ips", "groups"):
            told += shown(node, kind)
        # Apache Kafka tells the two kinds of passwords in any order.
        return sorted(" ".join(sorted(line.replace(",", " ").split())) for line in told)

    with Row(row, tmp_path) as nodes:
        before: list[str] = []
        for step in range(len(row)):
            node = nodes.hand_on() if step else nodes.node
            if step:
                assert everything(node) == before
            for kind, name, given in (
                ("users", f"ann-{step}", "SCRAM-SHA-256=[iterations=8192,password=secret]"),
                ("users", f"ann-{step}", "SCRAM-SHA-512=[iterations=4096,password=other]"),
                ("users", f"bob-{step}", "producer_byte_rate=1024"),
                ("clients", f"web-{step}", "consumer_byte_rate=2048"),
                ("ips", f"10.0.0.{step}", "connection_creation_rate=9"),
                ("groups", f"late-{step}", "consumer.session.timeout.ms=50000"),
            ):
                who = ("--entity-type", kind, "--entity-name", name)
                configs(java, node, *who, "--alter", "--add-config", given)
            whose, wish = ("brokers", "--entity-default"), f"message.max.bytes={step}9"
            configs(java, node, "--entity-type", *whose, "--alter", "--add-config", wish)
            # What was told last is known: then so is all before it.
            until(lambda: wish in " ".join(shown(node, *whose)), "it is not known")  # noqa: B023
            before = everything(node)
            assert len([line for line in before if f"-{step}" in line]) >= 4, before
