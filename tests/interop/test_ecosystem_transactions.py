"""`headrace transactions` and Apache's kafka-transactions on one broker: they say and do the same.

The broker does not ask coordinators about old clients, as Kafka before 3.6 did not: a transaction
can hang there, as people's did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from headrace.wire.protocol.messages import produce
from tests.conformance.batches import TRANSACTIONAL, R, build
from tests.conformance.wire import Connection
from tests.interop.brokers import Node, make_node
from tests.interop.java_session import JavaSession
from tests.interop.secured import ADMIN, client_settings, secured_node
from tests.interop.test_transactions import read
from tests.interop.topics import create_topic
from tests.sockets.cli.conftest import CommandLine

LAST_THAT_ADDS_NO_PARTITION = 11  # from version 12 on, the broker adds them to the transaction
OLD = {"transaction.partition.verification.enable": "false"}


@pytest.fixture(scope="module")
def node(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with make_node(target, tmp_path_factory.mktemp("transactions"), OLD) as node:
        yield node


@pytest.fixture
def headrace(node: Node) -> CommandLine:
    return CommandLine(node.bootstrap)


class ApachesTool:
    def __init__(self, java: JavaSession, node: Node) -> None:
        self._java = java
        self._node = node

    def __call__(self, *words: str) -> list[dict[str, str]]:
        """The rows of the table that it prints."""
        tool = "org.apache.kafka.tools.TransactionsCommand"
        printed = self._java.run(tool, "--bootstrap-server", self._node.bootstrap, *words)
        rows = [re.split(r"\s*\t\s*|\s{2,}", line.strip()) for line in printed.splitlines() if line]
        return [dict(zip(rows[0], row, strict=False)) for row in rows[1:]]


@pytest.fixture
def apaches(node: Node, java: JavaSession) -> ApachesTool:
    return ApachesTool(java, node)


def begin(node: Node, transactional_id: str, topic: str, **settings: str) -> Producer:
    own = {"transactional.id": transactional_id, "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": node.bootstrap} | own | settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(60) == 0
    return producer


def leave_hanging(node: Node, headrace: CommandLine, transactional_id: str, topic: str) -> None:
    """A record in partition 1, of a transaction that its coordinator was never told of."""
    [known] = headrace.json("transactions", "describe", transactional_id)
    batch = build(
        R(b"hangs"),
        attributes=TRANSACTIONAL,
        producer_id=known["producer_id"],
        producer_epoch=known["producer_epoch"],
        base_sequence=0,
    )
    written = produce.TopicProduceData(
        topic, partition_data=[produce.PartitionProduceData(1, batch)]
    )
    request = produce.ProduceRequest(transactional_id, -1, 10_000, [written])
    answer = Connection(node.port).ask(produce, LAST_THAT_ADDS_NO_PARTITION, request)
    assert answer.responses[0].partition_responses[0].error_code == 0  # type: ignore[attr-defined]


def test_open_and_ended_ones_are_told_alike_and_one_is_aborted(
    node: Node, headrace: CommandLine, apaches: ApachesTool
) -> None:
    topic = create_topic(node.bootstrap, "told", partitions=2)
    begin(node, "ended", topic).commit_transaction(60)
    alive = begin(node, "alive", topic)

    def listed() -> dict[str, tuple[str, str]]:
        ours = {
            one["transactional_id"]: (str(one["producer_id"]), one["state"])
            for one in headrace.json("transactions", "list")
        }
        theirs = {
            row["TransactionalId"]: (row["ProducerId"], row["TransactionState"])
            for row in apaches("list")
        }
        assert ours == theirs
        return ours

    def opened() -> list[str]:
        found = headrace.json("transactions", "list", "--open")
        return [one["transactional_id"] for one in found]

    assert listed()["ended"][1] == "CompleteCommit"
    assert opened() == ["alive"]
    for name in ("ended", "alive"):
        [ours] = headrace.json("transactions", "describe", name)
        [theirs] = apaches("describe", "--transactional-id", name)
        assert ours["state"] == theirs["TransactionState"]
        assert str(ours["producer_id"]) == theirs["ProducerId"]
        assert str(ours["producer_epoch"]) == theirs["ProducerEpoch"]
        assert str(ours["timeout_ms"]) == theirs["TransactionTimeoutMs"]
        places = ",".join(f"{topic}-{partition}" for topic, partition in ours["partitions"])
        assert places == theirs.get("TopicPartitions", "")
    assert ours["partitions"] == [[topic, 0]]

    assert not headrace.json("transactions", "abort", "alive")["aborted"]
    assert opened() == ["alive"]
    headrace("transactions", "abort", "alive", "--execute")
    assert opened() == []
    assert listed()["alive"][1] == "Empty", "its id has a new producer"
    with pytest.raises(KafkaException):
        alive.commit_transaction(60)
    assert read(node, topic) == ["x"]


def test_one_that_hangs_is_found_and_ended_by_both(
    node: Node, headrace: CommandLine, apaches: ApachesTool
) -> None:
    topic = create_topic(node.bootstrap, "hanging", partitions=2)
    plain = Producer({"bootstrap.servers": node.bootstrap})
    of_topic = ("--topic", topic)

    def found() -> list[dict[str, object]]:
        ours = headrace.json("transactions", "list", "--hanging", *of_topic)
        theirs = apaches("find-hanging", *of_topic, "--max-transaction-timeout", "0")
        shown = [
            (int(row["Partition"]), int(row["ProducerId"]), int(row["StartOffset"]))
            for row in theirs
        ]
        assert [(o["partition"], o["producer_id"], o["start_offset"]) for o in ours] == shown
        return list(ours)

    begin(node, "first", topic).commit_transaction(60)
    assert found() == []
    alive = begin(node, "second", topic)  # open, but it does not hang
    where = (*of_topic, "--partition", "1")
    for number, by in enumerate(("headrace", "apache")):
        leave_hanging(node, headrace, ("first", "ended-too")[number], topic)
        plain.produce(topic, f"after {by}".encode(), partition=1)
        assert plain.flush(60) == 0
        [hanging] = found()
        assert f"after {by}" not in read(node, topic)
        if by == "headrace":
            headrace("transactions", "abort", *where, "--execute")
            begin(node, "ended-too", topic).abort_transaction(60)
        else:
            apaches("abort", *where, "--start-offset", str(hanging["start_offset"]))
        assert found() == []
        assert f"after {by}" in read(node, topic)
    said = headrace.failure("transactions", "abort", *of_topic, "--partition", "0")
    assert "does not hang: it is that of second" in said
    alive.commit_transaction(60)
    assert sorted(read(node, topic)) == ["after apache", "after headrace", "x", "x"]


def test_who_lacks_a_right_is_told_so(
    target: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with secured_node(target, tmp_path_factory.mktemp("secured"), ["poor"]) as node:
        rich, poor = (
            [part for pair in client_settings(user).items() for part in ("-X", "=".join(pair))]
            for user in (ADMIN, "poor")
        )
        headrace = CommandLine(node.bootstrap)
        headrace("topics", "create", "secret", *rich)
        producer = begin(node, "hidden", "secret", **client_settings(ADMIN))
        assert headrace.json("transactions", "list", *poor) == []
        for words in (
            ("describe", "hidden"),
            ("abort", "hidden"),
            ("abort", "hidden", "--execute"),
        ):
            said = headrace.failure("transactions", *words, *poor)
            assert said.endswith(
                "The transactional id is not allowed. `headrace acls add` gives rights."
            )
        may = ("acls", "add", "--principal", "User:poor", "--operation", "DESCRIBE")
        headrace(*may, "--transactional-id", "hidden", *rich)
        assert headrace.json("transactions", "list", *poor)[0]["state"] == "Ongoing"
        said = headrace.failure("transactions", "abort", "hidden", "--execute", *poor)
        assert "cannot be aborted: " in said and "acls add" in said
        producer.commit_transaction(60)
