"""Transactions of clients that nobody here wrote, Apache Kafka's own tools, and folders that change
hands in the middle of a transaction."""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from headrace.node.coordination.transaction import transaction as steps
from headrace.wire.protocol import record_batch
from tests.interop.brokers import Node, make_node
from tests.interop.java_session import JavaSession
from tests.interop.topics import create_topic
from tests.soak.anomalies import told
from tests.soak.exactly_once import SETTINGS as COPY_SETTINGS
from tests.soak.exactly_once import run_copy, run_late_commit

ROUNDS = int(os.environ.get("ROUNDS", "3"))
SEED = int(os.environ.get("SEED", "11"))
TOOLS = "org.apache.kafka.tools"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
WITHIN_S = 400.0


def producer_of(broker: Node, transactional_id: str, **settings: Any) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 300_000,
        }
        | settings
    )
    producer.init_transactions(WITHIN_S)
    return producer


def transaction(
    producer: confluent_kafka.Producer, topic: str, values: list[str], *, commit: bool
) -> None:
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % 2)
    if commit:
        producer.commit_transaction(WITHIN_S)
    else:
        assert producer.flush(WITHIN_S) == 0
        producer.abort_transaction(WITHIN_S)


def read(broker: Node, topic: str, isolation: str = "read_committed") -> list[str]:
    """Everything up to where this isolation lets one see, in the order of each partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reads-by-assignment",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    partitions = list(consumer.list_topics(topic, WITHIN_S).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
    values, ended = [], set()
    deadline = time.monotonic() + WITHIN_S
    try:
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, "the end did not come"
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error():
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                ended.add(message.partition())
            else:
                values.append(message.value().decode())
    finally:
        consumer.close()
    return values


def wait_to_read(broker: Node, topic: str, values: list[str]) -> None:
    """Apache Kafka writes the markers of a transaction after it has answered."""
    deadline = time.monotonic() + WITHIN_S
    while (seen := read(broker, topic)) != values:
        assert time.monotonic() < deadline, seen


def test_librdkafka_commits_and_aborts(broker: Node) -> None:
    topic = create_topic(broker.bootstrap, "txn-librdkafka", partitions=2)
    producer = producer_of(broker, "txn-librdkafka")
    kept = []
    for number in range(30):
        values = [f"{number}-{each}" for each in range(10)]
        commit = number % 3 != 0
        transaction(producer, topic, values, commit=commit)
        kept += values if commit else []
    assert sorted(read(broker, topic)) == sorted(kept)
    assert len(read(broker, topic, "read_uncommitted")) == 300


def test_a_second_producer_fences_the_first(broker: Node) -> None:
    topic = create_topic(broker.bootstrap, "txn-fenced", partitions=2)
    old = producer_of(broker, "txn-fenced")
    old.begin_transaction()
    old.produce(topic, b"lost", partition=0)
    assert old.flush(WITHIN_S) == 0
    new = producer_of(broker, "txn-fenced")
    transaction(new, topic, ["new"], commit=True)
    with pytest.raises(confluent_kafka.KafkaException) as refusal:
        old.produce(topic, b"zombie", partition=0)
        old.commit_transaction(WITHIN_S)
    assert refusal.value.args[0].fatal()
    assert read(broker, topic) == ["new"]


def consumer_in(broker: Node, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 45_000,
        }
    )


def test_an_exactly_once_copy(broker: Node) -> None:
    source = create_topic(broker.bootstrap, "txn-source", partitions=2)
    target = create_topic(broker.bootstrap, "txn-target", partitions=2)
    first = producer_of(broker, "txn-fills")
    values = [str(number) for number in range(200)]
    transaction(first, source, values, commit=True)
    copier = producer_of(broker, "txn-copies")
    consumer = consumer_in(broker, "txn-copies")
    consumer.subscribe([source])
    copied, rounds = 0, 0
    deadline = time.monotonic() + WITHIN_S
    while copied < len(values):
        assert time.monotonic() < deadline
        messages = consumer.consume(20, 0.5)
        if not messages:
            continue
        rounds += 1
        copier.begin_transaction()
        for message in messages:
            copier.produce(target, message.value(), partition=message.partition())
        place = consumer.position(consumer.assignment())
        copier.send_offsets_to_transaction(place, consumer.consumer_group_metadata())
        if rounds % 3 == 0:
            copier.abort_transaction(WITHIN_S)
            for committed in consumer.committed(consumer.assignment(), WITHIN_S):
                committed.offset = max(committed.offset, 0)
                consumer.seek(committed)
        else:
            copier.commit_transaction(WITHIN_S)
            copied += len(messages)
    consumer.close()
    assert sorted(read(broker, target)) == sorted(values)


# ---- Apache Kafka's own


def test_the_transactions_command_lists_describes_and_aborts(
    broker: Node, java: JavaSession
) -> None:
    topic = create_topic(broker.bootstrap, "txn-command", partitions=2)
    producer = producer_of(broker, "txn-command")
    producer.begin_transaction()
    producer.produce(topic, b"hangs", partition=0)
    assert producer.flush(WITHIN_S) == 0

    def command(*arguments: str) -> str:
        where = ("--bootstrap-server", broker.bootstrap)
        return java.run(f"{TOOLS}.TransactionsCommand", *where, *arguments)

    assert re.search(r"txn-command\s+\d+\s+\d+\s+Ongoing", command("list"))
    described = command("describe", "--transactional-id", "txn-command")
    assert "Ongoing" in described and f"{topic}-0" in described
    producers = command("describe-producers", "--topic", topic, "--partition", "0")
    assert re.search(r"^\d+\s+\d+\s+-?\d+\s+\d+\s+\S+\s+0\s*$", producers, re.MULTILINE), producers
    assert read(broker, topic) == []
    where = ("--topic", topic, "--partition", "0")
    command("abort", *where, "--start-offset", "0")
    transaction(producer_of(broker, "txn-after"), topic, ["after"], commit=True)
    assert read(broker, topic) == ["after"]


def test_the_transactional_message_copier_copies_once(broker: Node, java: JavaSession) -> None:
    source = create_topic(broker.bootstrap, "txn-copier-in")
    target = create_topic(broker.bootstrap, "txn-copier-out", partitions=2)
    plain = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(500):
        plain.produce(source, b"%d" % number)
    assert plain.flush(60) == 0
    java.run(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", broker.bootstrap),
        *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--transactional-id", "txn-copier", "--consumer-group", "txn-copier"),
        *("--transaction-size", "70", "--max-messages", "500"),
        "--enable-random-aborts",
    )
    values = sorted(int(value) for value in read(broker, target))
    assert values == list(range(500))


# ---- files and folders


@pytest.fixture(scope="module")
def written(target: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with transactions of every fate in it; the node has ended."""
    node = make_node(target, tmp_path_factory.mktemp("transactions"))
    with node:
        topic = create_topic(node.bootstrap, "txn-files", partitions=2)
        producer = producer_of(node, "txn-files")
        for number in range(6):
            transaction(producer, topic, [f"{number}-{n}" for n in range(4)], commit=number % 2 > 0)
        opened = producer_of(node, "txn-open")
        opened.begin_transaction()
        opened.produce(topic, b"open", partition=0)
        assert opened.flush(WITHIN_S) == 0
        node.stop()
    return node.data, topic


def test_dump_log_reads_the_state_of_transactions(
    written: tuple[Path, str], java: JavaSession
) -> None:
    data, _ = written
    logs = ",".join(str(path) for path in sorted(data.glob("__transaction_state-*/*.log")))
    dumped = java.run(DUMP, "--files", logs, "--transaction-log-decoder")
    states = re.findall(r'"transactionalId":"txn-files".*"transactionStatus":(\d)', dumped)
    # Partitions may be added one by one, so Ongoing (1) may stand there twice.
    assert re.fullmatch("01+351+241+351+241+351+24", "".join(states)), states
    assert re.findall(r'"transactionalId":"txn-open".*"transactionStatus":(\d)', dumped)[-1] == "1"


def test_dump_log_reads_the_index_of_aborted_transactions(
    written: tuple[Path, str], java: JavaSession
) -> None:
    data, topic = written
    found = sorted(data.glob(f"{topic}-0/*.txnindex"))
    assert found
    dumped = java.run(DUMP, "--files", ",".join(str(path) for path in found))
    entries = re.findall(
        r"producerId: \d+ firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", dumped
    )
    assert len(entries) == 3
    assert all(int(stable) == int(last) + 1 for _, last, stable in entries)
    log = str(data / f"{topic}-0" / f"{0:020}.log")
    logs = java.run(DUMP, "--files", log, "--deep-iteration")
    assert logs.count("endTxnMarker: COMMIT") == logs.count("endTxnMarker: ABORT") == 3


@pytest.mark.parametrize("row", [("headrace", "apache"), ("apache", "headrace")], ids="-".join)
def test_a_transaction_goes_on_at_the_other_broker(row: tuple[str, str], tmp_path: Path) -> None:
    """State, markers, aborted ones and the open transaction are found by whoever comes next."""
    first, second = (make_node(kind, tmp_path / kind) for kind in row)
    with first:
        topic = create_topic(first.bootstrap, "txn-changes-hands", partitions=2)
        done = producer_of(first, "txn-done")
        transaction(done, topic, ["aborted"], commit=False)
        transaction(done, topic, ["committed"], commit=True)
        opened = producer_of(first, "txn-open")
        opened.begin_transaction()
        opened.produce(topic, b"open", partition=0)
        assert opened.flush(WITHIN_S) == 0
        wait_to_read(first, topic, ["committed"])
        first.stop()
        second.take_over(first)
        with second:
            assert read(second, topic) == ["committed"]
            opened.produce(topic, b"more", partition=0)
            opened.commit_transaction(WITHIN_S)
            transaction(producer_of(second, "txn-done"), topic, ["next"], commit=True)
            wait_to_read(second, topic, ["committed", "open", "more", "next"])


# ---- kill -9


@pytest.mark.timeout(600 + 30 * ROUNDS)
def test_kill_9_in_the_middle_of_transactions(target: str, tmp_path: Path) -> None:
    """Nothing aborted is seen, nothing committed is lost, no transaction is torn."""
    moments = random.Random(SEED)
    with make_node(target, tmp_path) as node:
        topic = create_topic(node.bootstrap, "txn-killed", partitions=2)
        committed: list[int] = []
        aborted: list[int] = []
        number = 0
        for round_number in range(ROUNDS):
            producer = producer_of(node, "txn-killed")
            end = time.monotonic() + moments.uniform(0.2, 1.5)
            while time.monotonic() < end or len(committed) <= 5 * (round_number + 1):
                number += 1
                values = [f"{number} {each}" for each in range(6)]
                commit = moments.random() < 0.7
                transaction(producer, topic, values, commit=commit)
                (committed if commit else aborted).append(number)
            number += 1  # this one is open when the broker dies; it may be decided either way
            producer.begin_transaction()
            for each in range(6):
                producer.produce(topic, f"{number} {each}".encode(), partition=each % 2)
            if round_number % 2:
                assert producer.flush(WITHIN_S) == 0
            node.kill()
            node.start()
        producer_of(node, "txn-killed")  # aborts what the last one left
        seen: dict[int, list[int]] = {}
        for value in read(node, topic):
            which, each = map(int, value.split())
            seen.setdefault(which, []).append(each)
    lost = [which for which in committed if which not in seen]
    assert not lost, f"committed and lost: {lost} (seed {SEED})"
    ghosts = [which for which in aborted if which in seen]
    assert not ghosts, f"aborted and seen: {ghosts} (seed {SEED})"
    torn = {which: parts for which, parts in seen.items() if sorted(parts) != list(range(6))}
    assert not torn, f"torn or doubled: {torn} (seed {SEED})"
    assert len(committed) > 5 * ROUNDS


def test_apaches_records_are_what_we_would_have_written(tmp_path: Path, java: JavaSession) -> None:
    """Every record of its `__transaction_state`, of both generations of clients, byte for byte."""
    with make_node("apache", tmp_path) as node:
        topic = create_topic(node.bootstrap, "txn-records")
        producer = producer_of(node, "txn-before-kip-890")
        for commit in (True, False):
            producer.begin_transaction()
            producer.produce(topic, b"x")
            assert producer.flush(WITHIN_S) == 0
            end = producer.commit_transaction if commit else producer.abort_transaction
            end(WITHIN_S)
        java.run(
            f"{TOOLS}.ProducerPerformance",
            *("--topic", topic, "--num-records", "40", "--record-size", "10"),
            *("--throughput", "400", "--transaction-duration-ms", "20"),
            *("--transactional-id", "txn-since-kip-890"),
            *("--producer-props", f"bootstrap.servers={node.bootstrap}"),
        )
        node.stop()
    seen = set()
    for log in node.data.glob("__transaction_state-*/*.log"):
        data = log.read_bytes()
        for position, header in record_batch.headers_in(data):
            for found in record_batch.walk(data[position : position + header.size], 1 << 20):
                assert found.key is not None
                record = steps.CODEC.decode(found.key, found.value)
                assert record is not None
                transaction = steps.from_value(record.key.transactional_id, record.value)
                ours = steps.CODEC.encode(steps.to_record(transaction, record.version))
                assert ours == (found.key, found.value), record
                seen.add((transaction.client_version, transaction.state.title))
    assert {title for version, title in seen if version == 0} >= {
        "Empty",
        "Ongoing",
        "PrepareAbort",
        "CompleteAbort",
    }
    assert {title for version, title in seen if version == 2} >= {
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
    }


@pytest.mark.timeout(600 + 30 * ROUNDS)
def test_an_exactly_once_copy_under_kill_9_of_broker_and_client(
    target: str, tmp_path: Path
) -> None:
    with make_node(target, tmp_path / "node", COPY_SETTINGS) as node:
        copied = run_copy(node, tmp_path, ROUNDS, SEED)
    assert not copied.anomalies, f"with seed {SEED}: {told(copied.anomalies)}"
    assert copied.committed > ROUNDS


@pytest.mark.parametrize(
    ("where", "protocol"), [("before-offsets", "consumer"), ("before-commit", "classic")]
)
def test_the_commit_of_a_copier_that_slept_past_its_session_is_refused(
    target: str, tmp_path: Path, where: str, protocol: str
) -> None:
    """Its group is with another by then, or its transaction was ended for it."""
    with make_node(target, tmp_path / "node", COPY_SETTINGS) as node:
        anomalies = run_late_commit(node, tmp_path, where, protocol)
    assert not anomalies, told(anomalies)
