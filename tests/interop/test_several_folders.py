"""Two data folders: Apache's tools on them, and Apache Kafka and Headrace in turn on one pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.interop.brokers import ApacheNode, HeadraceNode, Node
from tests.interop.java_session import JavaSession
from tests.interop.rows import WITHIN_S, until
from tests.interop.topics import create_topic

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
PARTITIONS = 4


class HeadraceOnTwo(HeadraceNode):
    def command(self) -> list[str]:
        command = super().command()
        at = command.index("--data")
        del command[at : at + 2]  # the settings name the folders
        return command


def make(kind: str, folder: Path, data: Path, **settings: str) -> Node:
    """`data` holds both folders; the first has the metadata."""
    one, two = data / "one", data / "two"
    both = {"log.dirs": f"{one},{two}", **settings}
    node = ApacheNode(folder, both) if kind == "apache" else HeadraceOnTwo(folder, both)
    node.data = one
    return node


def produce(node: Node, topic: str, index: int, values: list[str]) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": node.bootstrap, "enable.idempotence": True}
    )
    failures: list[object] = []
    for value in values:
        producer.produce(
            topic, value, partition=index, on_delivery=lambda error, _: failures.append(error)
        )
    assert producer.flush(WITHIN_S) == 0
    assert failures == [None] * len(values)


def consume(node: Node, topic: str, index: int, count: int) -> list[str]:
    """From the beginning."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "reads", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0)])
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(WITHIN_S)
        assert message is not None and message.error() is None, f"{len(found)} of {count}"
        found.append((message.value() or b"").decode())
    consumer.close()
    return found


def log_dirs(java: JavaSession, node: Node) -> dict[str, dict[str, Any]]:
    """What `kafka-log-dirs` says, by the folder's name."""
    described = java.run(LOG_DIRS, "--bootstrap-server", node.bootstrap, "--describe")
    (line,) = [line for line in described.splitlines() if line.startswith("{")]
    return {Path(each["logDir"]).name: each for each in json.loads(line)["brokers"][0]["logDirs"]}


def partitions_of(found: dict[str, Any], topic: str) -> set[str]:
    return {
        each["partition"]
        for each in found["partitions"]
        if each["partition"].rpartition("-")[0] == topic and not each["isFuture"]
    }


@pytest.mark.parametrize(
    "row",
    [("apache", "headrace", "apache", "headrace"), ("headrace", "apache", "headrace")],
    ids="-".join,
)
def test_a_pair_of_folders_is_handed_on(
    row: tuple[str, ...], target: str, tmp_path: Path, java: JavaSession
) -> None:
    known: dict[str, list[str]] = {}
    before: Node | None = None
    for step, kind in enumerate(row):
        node = make(kind if target == "headrace" else target, tmp_path / str(step), tmp_path)
        if before is not None:
            node.take_over(before)
        with node:
            for topic, written in known.items():
                for index in range(PARTITIONS):
                    assert consume(node, topic, index, len(written)) == written
            topic = create_topic(node.bootstrap, f"made-{step}", partitions=PARTITIONS)
            known[topic] = []
            for name in known:
                more = [f"{step}-{number}" for number in range(5)]
                for index in range(PARTITIONS):
                    produce(node, name, index, more)
                known[name] += more
            found = log_dirs(java, node)
            for name in known:
                here, there = (partitions_of(found[each], name) for each in ("one", "two"))
                assert len(here | there) == PARTITIONS and not here & there
            assert partitions_of(found["one"], topic) and partitions_of(found["two"], topic)
            if step % 2:
                node.kill()
            else:
                node.stop()
        before = node
    assert not (tmp_path / "two" / "__cluster_metadata-0").exists()


def test_replicas_move_between_folders_by_apaches_tool(
    target: str, tmp_path: Path, java: JavaSession
) -> None:
    with make(target, tmp_path / "node", tmp_path) as node:
        topic = create_topic(node.bootstrap, "moved", partitions=2)
        values = [f"{number}" * 100 for number in range(2_000)]
        produce(node, topic, 0, values)
        until(lambda: len(log_dirs(java, node)) == 2, "two folders")
        found = log_dirs(java, node)
        to = "two" if f"{topic}-0" in partitions_of(found["one"], topic) else "one"
        plan = tmp_path / "plan.json"
        move = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [str(tmp_path / to)]}
        plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
        where = ("--bootstrap-server", node.bootstrap, "--reassignment-json-file", str(plan))
        executed = java.run(REASSIGN, *where, "--execute")
        assert f"Successfully started moving log directory to {tmp_path / to}" in executed
        done = f"Reassignment of replica {topic}-0-1 completed successfully."
        until(lambda: done in java.run(REASSIGN, *where, "--verify"), "the replica moves")
        found = log_dirs(java, node)
        assert f"{topic}-0" in partitions_of(found[to], topic)
        produce(node, topic, 0, ["behind"])
        assert consume(node, topic, 0, len(values) + 1) == [*values, "behind"]
