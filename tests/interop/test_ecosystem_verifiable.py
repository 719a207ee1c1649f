"""Kafka's verifiable consumer by both group protocols."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer

from tests.interop.brokers import Node
from tests.interop.java_session import JavaSession
from tests.interop.topics import create_topic

pytestmark = pytest.mark.timeout(900)  # a cold cache is filled first

TOOLS = "org.apache.kafka.tools"


def events(printed: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_consumer_reads_and_commits_everything(
    broker: Node, java: JavaSession, protocol: str
) -> None:
    topic = create_topic(broker.bootstrap, f"verifiable-{protocol}", partitions=3)
    where = ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    sent = {str(n) for n in range(300)}
    for value in sent:
        producer.produce(topic, value.encode(), partition=int(value) % 3)
    assert producer.flush(20) == 0

    group = ["--group-id", f"g-{topic}", "--group-protocol", protocol]
    limits = ["--max-messages", "300", "--reset-policy", "earliest", "--verbose"]
    told = events(java.run(f"{TOOLS}.VerifiableConsumer", *where, *group, *limits))
    assert {e["value"] for e in told if e["name"] == "record_data"} == sent
    commits = [e for e in told if e["name"] == "offsets_committed"]
    assert commits and all(e["success"] for e in commits), told
    assert told[-1]["name"] == "shutdown_complete"

    tool = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    asked = ["--bootstrap-server", broker.bootstrap, "--describe", "--group", f"g-{topic}"]
    rows = [row.split() for row in java.run(tool, *asked).splitlines() if topic in row.split()]
    assert [row[5] for row in rows] == ["0", "0", "0"], rows  # LAG
