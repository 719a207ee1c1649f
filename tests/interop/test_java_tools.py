"""Apache Kafka's own command-line tools work on the broker."""

from __future__ import annotations

import json
import re
import socket

import pytest

from tests.interop.brokers import Node
from tests.interop.java_session import JavaSession
from tests.interop.topics import create_topic
from tests.patience import until

TOOLS = "org.apache.kafka.tools"


def test_topic_command_leads_a_topic_through_its_life(broker: Node, java: JavaSession) -> None:
    def topics(*arguments: str, code: int = 0) -> str:
        tool = f"{TOOLS}.TopicCommand"
        return java.run(tool, "--bootstrap-server", broker.bootstrap, *arguments, code=code)

    name = ("--topic", "by-topic-command")
    made = ("--create", *name, "--partitions", "2", "--replication-factor", "1")
    assert "Created topic" in topics(*made, "--config", "retention.ms=7200000")
    assert "already exists" in topics(*made, code=1)
    assert "by-topic-command" in topics("--list").split()
    described = topics("--describe", *name)
    assert "PartitionCount: 2" in described and "retention.ms=7200000" in described
    assert len(re.findall(r"Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)) == 2
    topics("--alter", *name, "--partitions", "5")
    assert "PartitionCount: 5" in topics("--describe", *name)
    topics("--alter", *name, "--partitions", "3", code=1)
    topics("--delete", *name)
    assert "by-topic-command" not in topics("--list").split()


def test_config_command_changes_and_shows_topic_settings(broker: Node, java: JavaSession) -> None:
    topic = create_topic(broker.bootstrap, "configured")

    def configs(*arguments: str, code: int = 0) -> str:
        where = ("--bootstrap-server", broker.bootstrap, "--entity-type", "topics")
        tool = "kafka.admin.ConfigCommand"
        return java.run(tool, *where, "--entity-name", topic, *arguments, code=code)

    configs("--alter", "--add-config", "cleanup.policy=[compact,delete],segment.bytes=1048576")
    described = configs("--describe")
    assert "cleanup.policy=compact,delete" in described
    assert "DYNAMIC_TOPIC_CONFIG:segment.bytes=1048576" in described
    configs("--alter", "--delete-config", "segment.bytes")
    assert "segment.bytes" not in configs("--describe")
    assert "segment.bytes=1073741824" in configs("--describe", "--all")
    configs("--alter", "--add-config", "segment.bytes=no-number", code=1)


def test_config_command_changes_and_shows_broker_settings(broker: Node, java: JavaSession) -> None:
    def configs(*arguments: str) -> str:
        where = ("--bootstrap-server", broker.bootstrap, "--entity-type", "brokers")
        return java.run("kafka.admin.ConfigCommand", *where, *arguments)

    one = ("--entity-name", "1")
    configs("--alter", *one, "--add-config", "log.cleaner.backoff.ms=16000")
    configs("--alter", "--entity-default", "--add-config", "log.cleaner.backoff.ms=17000")
    described = configs("--describe", *one)
    assert "log.cleaner.backoff.ms=16000" in described
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.backoff.ms=17000" in described
    configs("--alter", *one, "--delete-config", "log.cleaner.backoff.ms")
    configs("--alter", "--entity-default", "--delete-config", "log.cleaner.backoff.ms")
    assert "log.cleaner.backoff.ms" not in configs("--describe", *one)
    assert "log.retention.hours" in configs("--describe", *one, "--all")


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_producer_performance_and_get_offset_shell_agree(
    broker: Node, java: JavaSession, acks: str
) -> None:
    topic = create_topic(broker.bootstrap, f"performance-{acks}", partitions=3)
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    load = ("--num-records", "5000", "--record-size", "200", "--throughput", "-1")
    acknowledged = ("--command-property", f"acks={acks}")
    sent = java.run(f"{TOOLS}.ProducerPerformance", *where, *load, *acknowledged)
    assert "5000 records sent" in sent

    def ends() -> list[int]:
        offsets = java.run(f"{TOOLS}.GetOffsetShell", *where)
        return [int(line.rsplit(":", 1)[1]) for line in offsets.split()]

    until(lambda: sum(ends()) == 5000)  # what nobody acknowledges may be on its way
    assert len(ends()) == 3
    first = java.run(f"{TOOLS}.GetOffsetShell", *where, "--time", "earliest")
    assert [line.rsplit(":", 1)[1] for line in first.split()] == ["0", "0", "0"]
    for time in ("max-timestamp", "earliest-local", "-3"):
        assert len(java.run(f"{TOOLS}.GetOffsetShell", *where, "--time", time).split()) == 3


def test_delete_records_command_moves_the_start_of_the_log(broker: Node, java: JavaSession) -> None:
    topic = create_topic(broker.bootstrap, "shortened")
    where = ("--bootstrap-server", broker.bootstrap)
    console_produce(java, broker, topic, [f"line {n}" for n in range(10)])
    cut = {"topic": topic, "partition": 0, "offset": 4}
    offsets_file = broker.folder / "delete-records.json"
    offsets_file.write_text(json.dumps({"version": 1, "partitions": [cut]}))
    done = java.run(
        f"{TOOLS}.DeleteRecordsCommand", *where, "--offset-json-file", str(offsets_file)
    )
    assert "low_watermark: 4" in done
    start = java.run(f"{TOOLS}.GetOffsetShell", *where, "--topic", topic, "--time", "-2")
    assert start.strip() == f"{topic}:0:4"
    assert console_consume(java, broker, topic, 4, 6) == [f"line {n}" for n in range(4, 10)]


def test_console_producer_and_consumer(broker: Node, java: JavaSession) -> None:
    topic = create_topic(broker.bootstrap, "console")
    lines = [f"line {n} ü" for n in range(100)]
    console_produce(java, broker, topic, lines)
    assert console_consume(java, broker, topic, 0, 100) == lines
    assert console_consume(java, broker, topic, 90, 10) == lines[90:]


def console_produce(java: JavaSession, broker: Node, topic: str, lines: list[str]) -> None:
    arguments = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    java.run(f"{TOOLS}.ConsoleProducer", *arguments, stdin="".join(f"{line}\n" for line in lines))


def console_consume(
    java: JavaSession, broker: Node, topic: str, offset: int, count: int
) -> list[str]:
    arguments = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", "0")
    limits = ("--offset", str(offset), "--max-messages", str(count), "--timeout-ms", "120000")
    tool = f"{TOOLS}.consumer.ConsoleConsumer"
    return java.run(tool, *arguments, *limits).splitlines()


def test_metadata_quorum_command_shows_a_quorum_of_one(broker: Node, java: JavaSession) -> None:
    tool = f"{TOOLS}.MetadataQuorumCommand"
    where = ("--bootstrap-server", broker.bootstrap, "describe")
    status = java.run(tool, *where, "--status")
    assert re.search(r"LeaderId:\s+1\b", status)
    assert re.search(r"MaxFollowerLag:\s+0\b", status)
    assert re.search(r"CurrentVoters:\s+\[\{\"id\": 1", status)
    # No address but one at which somebody listens.
    for port in re.findall(r":(\d+)\"", status):
        with socket.create_connection(("127.0.0.1", int(port)), timeout=60):
            pass
    replication = java.run(tool, *where, "--replication")
    assert re.search(r"^1\s+\S{22}\s+\d+\s+0\s.*Leader", replication, re.MULTILINE)


def test_feature_command_shows_the_levels_of_kafka_4_3(broker: Node, java: JavaSession) -> None:
    tool = f"{TOOLS}.FeatureCommand"
    features = java.run(tool, "--bootstrap-server", broker.bootstrap, "describe")
    levels = dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", features))
    assert levels["metadata.version"] == "4.3-IV0"
    assert levels["kraft.version"] == "1"


def test_log_dirs_command_shows_the_size_of_a_partition(broker: Node, java: JavaSession) -> None:
    topic = create_topic(broker.bootstrap, "measured")
    console_produce(java, broker, topic, ["one", "two"])
    where = ("--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", topic)
    answer = java.run(f"{TOOLS}.LogDirsCommand", *where)
    (described,) = [json.loads(line) for line in answer.splitlines() if line.startswith("{")]
    (folder,) = described["brokers"][0]["logDirs"]
    assert folder["error"] is None
    (partition,) = folder["partitions"]
    assert partition["partition"] == f"{topic}-0"
    assert partition["size"] == (broker.data / f"{topic}-0" / f"{0:020}.log").stat().st_size
    assert partition["offsetLag"] == 0 and partition["isFuture"] is False


def test_broker_api_versions_cluster_id_and_producers(broker: Node, java: JavaSession) -> None:
    where = ("--bootstrap-server", broker.bootstrap)
    versions = java.run(f"{TOOLS}.BrokerApiVersionsCommand", *where)
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: 13\]", versions)
    assert re.search(r"Fetch\(1\): 4 to 18 \[usable: 18\]", versions)
    assert "Cluster ID: " in java.run(f"{TOOLS}.ClusterTool", "cluster-id", *where)
    topic = create_topic(broker.bootstrap, "described-producers")
    console_produce(java, broker, topic, ["by an idempotent producer"])
    asked = ("describe-producers", "--topic", topic, "--partition", "0")
    rows = java.run(f"{TOOLS}.TransactionsCommand", *where, *asked).splitlines()
    assert rows[0].split()[:3] == ["ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch"]
    assert re.match(r"\d+\s+0\s+-1\s+0\s+\d+\s+None", rows[1])


def test_end_to_end_latency_is_measured(broker: Node, java: JavaSession) -> None:
    topic = create_topic(broker.bootstrap, "latency")
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    load = ("--num-records", "200", "--producer-acks", "all", "--record-size", "100")
    assert "Percentiles: 50th" in java.run(f"{TOOLS}.EndToEndLatency", *where, *load)


def test_client_compatibility_test_passes(broker: Node, java: JavaSession) -> None:
    topic = create_topic(broker.bootstrap, "compatibility")
    supported = [
        "offsets-for-times-supported",
        "cluster-id-supported",
        "create-topics-supported",
        "describe-configs-supported",
        "describe-acls-supported",  # the request is known also without an authorizer
    ]
    arguments = ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    arguments += ["--num-cluster-nodes", "1", "--expect-record-too-large-exception", "False"]
    arguments += ["--idempotent-producer-supported", "True"]
    for what in supported:
        arguments += [f"--{what}", "True"]
    java.run(f"{TOOLS}.ClientCompatibilityTest", *arguments)
