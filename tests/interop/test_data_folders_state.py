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

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from headrace.client import Admin
from headrace.client.admin.transactional_ids import TransactionDescription
from tests.interop.brokers import Node
from tests.interop.ecosystem import EcosystemSession
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
from tests.interop.test_ecosystem_streams import LINES, counts_of, put_lines, words
from tests.interop.test_groups import members
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


# ---- share and streams groups


@pytest.fixture(scope="module")
def streams() -> Iterator[EcosystemSession]:
    with EcosystemSession() as session:
        yield session


@and_back
def test_a_streams_group_goes_on_where_it_was(
    row: tuple[str, ...], tmp_path: Path, streams: EcosystemSession
) -> None:
    """WordCount counts on at each node: its offsets, its topology and its changelog are there."""
    with Row(row, tmp_path, {}) as nodes:
        node = nodes.node
        source = create_topic(node.bootstrap, "lines", partitions=2)
        sink = create_topic(node.bootstrap, "counts")
        for until_line in (20, 40, 60):
            put_lines(node, source, LINES[until_line - 20 : until_line])
            wanted = words(LINES[:until_line])
            printed = streams.run(
                "WordCount",
                *(node.bootstrap, source, sink, "app", "at_least_once", str(tmp_path)),
                *(str(wanted.total()), "-", "streams"),
            )
            assert counts_of(printed) == {word: list(range(1, n + 1)) for word, n in wanted.items()}
            assert ("app", "Streams") in groups_of(streams, node)
            if until_line < 60:
                node = nodes.hand_on()


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
