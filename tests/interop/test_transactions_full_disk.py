"""Transactions of librdkafka while the broker's disk is full, again and again: what is acknowledged
is seen, whole and once; nothing hangs when there is room, and the broker is not started anew."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from headrace.client import Admin
from tests import patience
from tests.interop.brokers import HeadraceNode
from tests.interop.small_disk import fill, small_disk

WITHIN_S = 400.0
FULL_S = 3.0
TIMES_FULL = 3
RECORDS = 8  # of a transaction


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HeadraceNode]:
    with small_disk(tmp_path / "disk", megabytes=40) as disk:
        node = HeadraceNode(tmp_path / "node")
        node.data = disk / "data"
        with node:
            Admin(node.bootstrap).topics.create("out", partitions=2)
            yield node


class Committer(threading.Thread):
    """One transaction after the other, as long as it is let; each commits its number in a group."""

    def __init__(self, node: HeadraceNode) -> None:
        super().__init__()
        self.node = node
        self.stop = threading.Event()
        self.acknowledged: list[int] = []
        self.refused = 0

    def run(self) -> None:
        number = 0
        producer: confluent_kafka.Producer | None = None
        while not self.stop.is_set():
            try:
                producer = producer or self.begin_anew()
                self.commit(producer, number)
                self.acknowledged.append(number)
                number += 1
            except KafkaException as refusal:
                self.refused += 1
                number += 1
                if not (producer and self.aborted(producer, refusal)):
                    producer = None

    def begin_anew(self) -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.node.bootstrap,
                "transactional.id": "committer",
                "transaction.timeout.ms": 20_000,
                "message.timeout.ms": 15_000,
                "metadata.recovery.strategy": "none",
            }
        )
        producer.init_transactions(WITHIN_S)
        return producer

    def commit(self, producer: confluent_kafka.Producer, number: int) -> None:
        producer.begin_transaction()
        for index in range(RECORDS):
            producer.produce("out", b"%d%600s" % (number, b""), partition=index % 2)
        group = Consumer({"bootstrap.servers": self.node.bootstrap, "group.id": "place"})
        place = [TopicPartition("out", 0, number)]
        producer.send_offsets_to_transaction(place, group.consumer_group_metadata(), WITHIN_S)
        group.close()
        producer.commit_transaction(WITHIN_S)

    def aborted(self, producer: confluent_kafka.Producer, refusal: KafkaException) -> bool:
        if not refusal.args[0].txn_requires_abort():
            return False
        try:
            producer.abort_transaction(WITHIN_S)
        except KafkaException:
            return False
        return True


def seen(node: HeadraceNode) -> Counter[int]:
    """How often each number stands in the topic, for readers of committed records; to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "looks",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition("out", index, 0) for index in range(2)])
    found: Counter[int] = Counter()
    ended: set[int] = set()
    deadline = time.monotonic() + WITHIN_S
    while len(ended) < 2:
        assert time.monotonic() < deadline, f"readers of all but {ended} are held back"
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error() is not None:
            ended.add(message.partition())
        else:
            found[int(message.value())] += 1
    consumer.close()
    return found


def until(holds: Callable[[], bool], what: str) -> None:
    patience.until(holds, what, within_s=WITHIN_S, every_s=0.1)


def test_all_that_is_decided_ends_when_there_is_room(node: HeadraceNode) -> None:
    process = node.pid
    committer = Committer(node)
    committer.start()
    try:
        for _ in range(TIMES_FULL):
            before = len(committer.acknowledged)
            until(lambda: len(committer.acknowledged) > before + 20, "commits go on")  # noqa: B023
            ballast = fill(node.data.parent)
            try:
                until(lambda: "No space left" in node.log_text(), "the disk is full")
                time.sleep(FULL_S)
                assert node.is_running()
            finally:
                ballast.unlink()
        before = len(committer.acknowledged)
        until(lambda: len(committer.acknowledged) > before + 20, "commits go on")
    finally:
        committer.stop.set()
        committer.join(5 * WITHIN_S)
    assert not committer.is_alive()
    assert node.pid == process
    # One turn of the loop each time, at most, of those who commit offsets.
    assert node.log_text().count("closed the connection") <= 5 * TIMES_FULL
    ids = Admin(node.bootstrap).transactions
    until(
        lambda: ids.describe("committer").state in ("CompleteCommit", "CompleteAbort", "Empty"),
        "the last one has ended",
    )
    assert not ids.open_in("out", 0) and not ids.open_in("out", 1)
    found = seen(node)
    assert set(found.values()) == {RECORDS}, "a transaction is torn or doubled"
    assert set(committer.acknowledged) <= set(found), "an acknowledged one is not seen"
    with_place = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "place"})
    [place] = with_place.committed([TopicPartition("out", 0)], WITHIN_S)
    assert place.offset == max(found), "the group's place is not that of the last one"
