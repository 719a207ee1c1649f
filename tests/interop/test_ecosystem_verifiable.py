"""Kafka's verifiable producer, and its verifiable consumer by both group protocols."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer

from tests.interop.brokers import Node
from tests.interop.java_session import JavaSession
from tests.interop.tools import java_command, run
from tests.interop.topics import create_topic

TOOLS = "org.apache.kafka.tools"


def events(printed: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("acks", ["1", "-1"])
def test_what_the_verifiable_producer_was_told_is_what_lies_in_the_topic(
    broker: Node, java: JavaSession, acks: str
) -> None:
    topic = create_topic(broker.bootstrap, f"verified-{acks}", partitions=3)
    where = ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    what = ["--max-messages", "300", "--repeating-keys", "7", "--value-prefix", "5"]
    # It closes its producer only when its JVM ends, so it has one to itself.
    command = java_command(f"{TOOLS}.VerifiableProducer", *where, *what, "--acks", acks)
    told = events(run(command, timeout_s=180))
    sent = [e for e in told if e["name"] == "producer_send_success"]
    assert [told[-1]["name"], told[-1]["sent"], told[-1]["acked"]] == ["tool_data", 300, 300]

    group = ["--group-id", f"g-{topic}", "--max-messages", "300", "--verbose"]
    start = ["--reset-policy", "earliest"]
    told = events(java.run(f"{TOOLS}.VerifiableConsumer", *where, *group, *start))
    read = [e for e in told if e["name"] == "record_data"]
    assert places(read) == places(sent)
    assert {e["value"] for e in read} == {f"5.{n}" for n in range(300)}


def places(told: list[dict[str, object]]) -> set[tuple[object, ...]]:
    return {(e["partition"], e["offset"], e["key"], e["value"]) for e in told}


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
    assert producer.flush(60) == 0

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
