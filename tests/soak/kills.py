"""kill -9 at chance moments under load, and what must be true afterwards.

Every record that was acknowledged lies at the offset that was told; no record of an idempotent
producer lies at two offsets; offsets have no holes; every checksum is right; every topic whose
creation was acknowledged is there. The moments come from a seed, which a failure names.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient

from tests.conformance.stage import Stage, Topic
from tests.interop.brokers import Node
from tests.soak.load import PARTITIONS, TopicMaker, Writer
from tests.soak.readback import Stored, read_partition

LONGEST_LIFE_S = 2.0


@dataclass(slots=True)
class Outcome:
    """What a run saw, for the report."""

    rounds: int
    seed: int
    acknowledged: int
    stored: int
    topics_made: int
    slowest_start_s: float


def run_rounds(node: Node, rounds: int, seed: int) -> Outcome:
    """`node` is running; it is killed and started `rounds` times and runs at the end."""
    topic = make_topic(node, seed)
    writers = [
        Writer("idempotent-plain", node.bootstrap, topic.name, True, "none"),
        Writer("idempotent-zstd", node.bootstrap, topic.name, True, "zstd"),
        Writer("simple", node.bootstrap, topic.name, False, "gzip"),
    ]
    maker = TopicMaker(node.bootstrap)
    workers: list[Writer | TopicMaker] = [*writers, maker]
    for worker in workers:
        worker.start()
    slowest = kill_and_start(node, rounds, random.Random(seed))
    for worker in workers:
        worker.stop()
    logs = [read_partition(node.port, topic.id, number) for number in range(PARTITIONS)]
    check(writers, logs)
    check_topics(node, maker)
    return Outcome(
        rounds,
        seed,
        sum(len(writer.acknowledged) for writer in writers),
        sum(len(log) for log in logs),
        len(maker.acknowledged),
        slowest,
    )


def make_topic(node: Node, seed: int) -> Topic:
    stage = Stage(node)
    # Small segments, so that kills also meet a log that is being rolled.
    topic = stage.topic(
        f"survives-{seed}", partitions=PARTITIONS, config={"segment.bytes": str(1 << 20)}
    )
    stage.drop()
    return topic


def kill_and_start(node: Node, rounds: int, moments: random.Random) -> float:
    slowest = 0.0
    for _ in range(rounds):
        time.sleep(moments.uniform(0.05, LONGEST_LIFE_S))
        node.kill()
        began = time.monotonic()
        node.start()
        slowest = max(slowest, time.monotonic() - began)
    time.sleep(0.5)
    return slowest


def check(writers: list[Writer], logs: list[list[Stored]]) -> None:
    """The anomalies: refused, lost, misplaced, duplicated, out of order."""
    for writer in writers:
        assert not writer.failed, f"{writer.name}: {writer.failed[:3]}"
        assert len(writer.acknowledged) == writer.sent, f"{writer.name} got too few answers"
        for known in writer.acknowledged:
            log = logs[known.partition]
            assert known.offset < len(log), f"acknowledged and lost: {known}"
            there = log[known.offset].value
            assert there == known.value, (
                f"{known.value!r} was told {known.offset}; there: {there!r}"
            )
        if writer.idempotent:
            check_once_and_in_order(writer, logs)


def check_once_and_in_order(writer: Writer, logs: list[list[Stored]]) -> None:
    prefix = writer.name.encode() + b" "
    mine = [[r.value for r in log if r.value.startswith(prefix)] for log in logs]
    twice = [value for value, n in Counter(v for values in mine for v in values).items() if n > 1]
    assert not twice, f"{writer.name}: at two offsets: {twice[:3]}"
    for number, values in enumerate(mine):
        assert values == sorted(values), f"{writer.name}: out of order in partition {number}"


def check_topics(node: Node, maker: TopicMaker) -> None:
    there = AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=30).topics
    lost = [name for name in maker.acknowledged if name not in there]
    assert not lost, f"topics acknowledged and lost: {lost[:5]}"
