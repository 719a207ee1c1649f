"""The same folder given to both cleaners: what Headrace's leaves of a log and what Apache Kafka's
leaves of a copy of it are the same batches with the same records, round after round."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import confluent_kafka

from headrace.wire.protocol.record_batch import DELETE_HORIZON, headers_in, walk
from tests.interop.brokers import Node, make_node
from tests.interop.test_compaction import (
    COMPACTED,
    QUICK,
    end_of,
    wait_until_clean,
    wait_until_ended,
    write,
)
from tests.interop.topics import create_topic

NOT_YET = QUICK | {"log.cleaner.enable": "false"}
# Who writes in a round; the next one begins with what this one's cleaner has left.
ROUNDS = ("headrace", "apache", "headrace")
CODECS = ("none", "lz4", "zstd")
A_DAY_MS = "86400000"


class Left(NamedTuple):
    """All that can be told of a batch; but of the time at which its tombstones may go only that
    there is one, since the cleaners did not run at the same moment."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    producer: tuple[int, int, int]  # id, epoch, base sequence
    max_timestamp: int
    records: list[tuple[int, int, bytes | None, bytes | None]]  # offset, timestamp, key, value


def test_both_cleaners_leave_the_same_of_the_same_folder(tmp_path: Path) -> None:
    data = tmp_path / "nothing yet"
    topics: list[str] = []
    for round_, kind in enumerate(ROUNDS):
        writer = make_node(kind, tmp_path / f"{round_}-writer", NOT_YET)
        if topics:
            shutil.copytree(data, writer.data)
        writer.start()
        topics = topics or create_topics(writer)
        goals = {topic: fill(writer, topic, round_) for topic in topics}
        writer.stop()
        left = {}
        for cleaner in ("apache", "headrace"):
            node = make_node(cleaner, tmp_path / f"{round_}-{cleaner}", QUICK)
            shutil.copytree(writer.data, node.data)
            left[cleaner] = compacted(node, goals)
        for topic in topics:
            assert left["headrace"][topic] == left["apache"][topic], f"{topic} in round {round_}"
        seen = [batch for topic in topics for batch in left["headrace"][topic][0]]
        assert any(not batch.records for batch in seen)
        assert any(batch.attributes & DELETE_HORIZON for batch in seen)
        assert any(left["headrace"][topic][1] for topic in topics)
        data = tmp_path / f"{round_}-{kind}" / "data"


def create_topics(node: Node) -> list[str]:
    """Tombstones that go in the round after the one that met them, and tombstones that stay."""
    quick = COMPACTED | {"delete.retention.ms": "0"}
    slow = COMPACTED | {"delete.retention.ms": A_DAY_MS}
    return [
        create_topic(node.bootstrap, name, config=config)
        for name, config in (
            ("plain", quick),
            ("plain-slow", slow),
            ("transactions", quick),
            ("transactions-slow", slow),
        )
    ]


def fill(node: Node, topic: str, round_: int) -> int:
    """Several segments; answers where the last one that can be compacted ends."""
    for part in range(2):
        if topic.startswith("plain"):
            write(node, topic, CODECS[round_], 2 * round_ + part, {})
        else:
            write_mixed_transactions(node, topic, 2 * round_ + part)
        time.sleep(0.4)  # segment.ms
    end = end_of(node, topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
    producer.produce(topic, b"end", b"end", partition=0)
    assert producer.flush(60) == 0
    return end


def write_mixed_transactions(node: Node, topic: str, part: int) -> None:
    """Two producers whose transactions overlap, every third aborted, with tombstones; and one of a
    name of its own, which never comes back after its first."""
    producers = [transactional(node, f"{topic}-{name}") for name in ("one", "two", f"once-{part}")]
    for number in range(12):
        open_ones = producers[:2] if number else producers
        for producer in open_ones:
            producer.begin_transaction()
        for step in range(1, 6):
            for at, producer in enumerate(open_ones):
                key = b"key-%d" % (number * step * (at + 1) % 13)
                is_gone = (number + step) % 7 == 0
                value = None if is_gone else b"%d %d %d" % (part, number, step)
                producer.produce(topic, value, key, partition=0)
                producer.flush(60)  # batches of one record, by turns
        for at, producer in enumerate(open_ones):
            if (number + at) % 3 == 2:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
    for name in ("one", "two", f"once-{part}"):
        wait_until_ended(node, f"{topic}-{name}")


def transactional(node: Node, name: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": node.bootstrap, "transactional.id": name, "linger.ms": 0}
    )
    producer.init_transactions(60)
    return producer


def compacted(node: Node, goals: dict[str, int]) -> dict[str, tuple[list[Left], bytes]]:
    """What is left of each topic when the node has compacted it up to these offsets: batches, and
    the indexes of aborted transactions."""
    node.start()
    for topic, goal in goals.items():
        wait_until_clean(node, topic, goal)
    node.stop()
    return {
        topic: (list(batches(folder, goal)), aborted(folder, goal))
        for topic, goal in goals.items()
        for folder in [node.data / f"{topic}-0"]
    }


def aborted(folder: Path, up_to: int) -> bytes:
    closed = [path for path in folder.glob("*.txnindex") if int(path.stem) < up_to]
    return b"".join(path.read_bytes() for path in sorted(closed))


def batches(folder: Path, up_to: int) -> Iterator[Left]:
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for position, header in headers_in(data):
            if header.base_offset >= up_to:
                continue
            records = walk(data[position : position + header.size], 1 << 24)
            yield Left(
                header.base_offset,
                header.last_offset,
                header.leader_epoch,
                header.attributes,
                (header.producer_id, header.producer_epoch, header.base_sequence),
                header.max_timestamp,
                [(r.offset, r.timestamp, r.key, r.value) for r in records],
            )
