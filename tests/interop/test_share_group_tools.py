"""Apache Kafka's tools for share groups: members, offsets, a reset, and the end of a group."""

from __future__ import annotations

import json
import re
from typing import Any

import confluent_kafka

from tests.interop.brokers import Node
from tests.interop.java_session import JavaSession
from tests.interop.topics import create_topic

TOOLS = "org.apache.kafka.tools"
GROUP = "tool-workers"


def test_a_share_group_from_its_first_member_to_its_end(broker: Node, java: JavaSession) -> None:
    where = ("--bootstrap-server", broker.bootstrap)
    levels = java.run(f"{TOOLS}.FeatureCommand", *where, "describe")
    if not re.search(r"share\.version\s.*FinalizedVersionLevel: 1", levels):
        java.run(f"{TOOLS}.FeatureCommand", *where, "upgrade", "--feature", "share.version=1")
    topic = create_topic(broker.bootstrap, "by-share-groups", partitions=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(40):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(60) == 0

    def groups(*arguments: str) -> str:
        return java.run(f"{TOOLS}.consumer.group.ShareGroupCommand", *where, *arguments)

    def offsets() -> list[tuple[str, ...]]:
        """Partition, start offset and lag."""
        described = groups("--describe", "--group", GROUP)
        return re.findall(rf"^{GROUP}\s+{topic}\s+(\d+)\s+(\d+)\s+(\d+)", described, re.MULTILINE)

    acknowledged = consume(java, broker, topic, 40)
    assert len(acknowledged) == 40
    assert re.search(rf"^{GROUP}\s.*Empty\s+0", groups("--describe", "--group", GROUP, "--state"),
                     re.MULTILINE)  # fmt: skip
    assert offsets() == [("0", "20", "0"), ("1", "20", "0")]
    reset = ("--reset-offsets", "--group", GROUP, "--topic", topic, "--to-earliest", "--execute")
    groups(*reset)
    assert offsets() == [("0", "0", "20"), ("1", "0", "20")]
    assert consume(java, broker, topic, 40) == acknowledged
    assert "Successful" in groups("--delete-offsets", "--group", GROUP, "--topic", topic)
    assert "has no offset information" in groups("--describe", "--group", GROUP)
    assert "successful" in groups("--delete", "--group", GROUP)
    assert GROUP not in groups("--list").split()


def consume(java: JavaSession, broker: Node, topic: str, count: int) -> set[tuple[int, int]]:
    """Partitions and offsets that a member acknowledged; each once."""
    printed = java.run(
        f"{TOOLS}.VerifiableShareConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", GROUP),
        *("--max-messages", str(count), "--offset-reset-strategy", "earliest"),
    )
    events: list[dict[str, Any]] = [
        json.loads(line) for line in printed.splitlines() if line.startswith("{")
    ]
    found = [
        (part["partition"], offset)
        for event in events
        if event["name"] == "offsets_acknowledged"
        for part in event["partitions"]
        for offset in part["offsets"]
    ]
    assert len(found) == len(set(found)), "acknowledged twice"
    return set(found)
