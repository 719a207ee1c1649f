"""Apache Kafka's own command-line tools on a cluster of three: what an operator types.

`TARGET=apache` runs the same on three nodes of Apache Kafka.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.interop.brokers import TARGET
from tests.interop.java_session import JavaSession
from tests.interop.tools import java_command
from tests.soak.three_nodes import ThreeNodes, wait_until

TOOLS = "org.apache.kafka.tools"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
QUORUM = f"{TOOLS}.MetadataQuorumCommand"
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    with ThreeNodes(TARGET, tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def tool(cluster: ThreeNodes, java: JavaSession) -> Callable[..., str]:
    """Runs one tool on the whole cluster; its output."""

    def run(name: str, *arguments: str, code: int | None = 0) -> str:
        where = ("--bootstrap-server", cluster.bootstrap)
        return java.run(name, *where, *arguments, code=code)

    return run


def created(cluster: ThreeNodes, name: str, replicas: list[list[int]], **config: str) -> str:
    topic = NewTopic(name, len(replicas), replica_assignment=replicas, config=config)
    cluster.admin.create_topics([topic])[name].result(60)
    cluster.wait_in_sync()
    return name


def filled(cluster: ThreeNodes, topic: str, megabytes: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(megabytes * 10):
        producer.produce(topic, b"%06d" % number + bytes(MEGABYTE // 10 - 6), partition=0)
    assert producer.flush(120) == 0


def partition_lines(described: str) -> list[dict[str, str]]:
    """What `kafka-topics --describe` says of each partition, by the names it uses."""
    lines = [line for line in described.splitlines() if "Partition:" in line]
    return [dict(re.findall(r"(\w+): ?([^\t]*)", line)) for line in lines]


def plan_file(folder: Path, topic: str, replicas: list[int]) -> tuple[str, str]:
    partitions = [{"topic": topic, "partition": 0, "replicas": replicas}]
    file = folder / f"plan-{topic}-{'-'.join(map(str, replicas))}.json"
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return ("--reassignment-json-file", str(file))


def test_topics_are_placed_over_the_brokers_and_described(
    cluster: ThreeNodes, tool: Callable[..., str]
) -> None:
    topics = f"{TOOLS}.TopicCommand"
    shape = ("--partitions", "6", "--replication-factor", "3")
    tool(topics, "--create", "--topic", "placed", *shape)
    cluster.wait_in_sync()
    rows = partition_lines(tool(topics, "--describe", "--topic", "placed"))
    assert len(rows) == 6
    assert all(sorted(row["Replicas"].split(",")) == ["1", "2", "3"] for row in rows), rows
    assert all(sorted(row["Isr"].split(",")) == ["1", "2", "3"] for row in rows), rows
    assert sorted(row["Leader"] for row in rows) == ["1", "1", "2", "2", "3", "3"], rows
    for what in ("under-replicated", "unavailable", "under-min-isr"):
        assert partition_lines(tool(topics, "--describe", f"--{what}-partitions")) == []
    four = ("--topic", "four", "--replication-factor", "4")
    assert "replica" in tool(topics, "--create", *four, code=1)
    tool(topics, "--alter", "--topic", "placed", "--partitions", "9")
    assert len(partition_lines(tool(topics, "--describe", "--topic", "placed"))) == 9
    tool(topics, "--delete", "--topic", "placed")
    assert "placed" not in tool(topics, "--list").split()


def test_a_dead_broker_is_seen_and_its_leaderships_are_given_back(
    cluster: ThreeNodes, tool: Callable[..., str]
) -> None:
    topics = f"{TOOLS}.TopicCommand"
    topic = created(cluster, "led-by-two", [[2, 3, 1]])
    cluster.members[1].kill()

    def row(*words: str) -> dict[str, str]:
        found = tool(topics, "--describe", "--topic", topic, *words)
        return (partition_lines(found) or [{}])[0]

    wait_until(lambda: row("--under-replicated-partitions").get("Isr") == "3,1", "nobody noticed")
    assert row()["Leader"] == "3", "the next in the order of the replicas"
    assert row("--at-min-isr-partitions")["Partition"] == "0"
    cluster.members[1].start()
    cluster.wait_in_sync()
    assert row()["Leader"] == "3", "it is not given back by itself at once"
    elect = f"{TOOLS}.LeaderElectionCommand"
    done = tool(elect, "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in done
    wait_until(lambda: row()["Leader"] == "2", "the preferred leader does not lead")


def test_a_partition_moves_under_a_throttle_which_is_lifted_at_the_end(
    cluster: ThreeNodes, tool: Callable[..., str], tmp_path: Path
) -> None:
    topic = created(cluster, "moved", [[1, 2]])
    filled(cluster, topic, 3)
    plan = plan_file(tmp_path, topic, [2, 3])
    started = tool(REASSIGN, "--execute", *plan, "--throttle", "1000000")
    assert f"Successfully started partition reassignment for {topic}-0" in started
    shown = tool(
        "kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", topic
    )
    assert "leader.replication.throttled.replicas=0:1,0:2" in shown, shown
    assert "follower.replication.throttled.replicas=0:3" in shown, shown
    assert f"{topic}-0: replicas:" in tool(REASSIGN, "--list")
    assert "is still in progress" in tool(REASSIGN, "--verify", *plan, "--preserve-throttles")
    raised = ("--throttle", "50000000", "--additional")
    tool(REASSIGN, "--execute", *plan, *raised)

    def verified() -> str:
        return tool(REASSIGN, "--verify", *plan)

    wait_until(lambda: f"{topic}-0 is completed" in verified(), "it never moved")
    assert "No partition reassignments found." in tool(REASSIGN, "--list")
    for kind, name in (("topics", topic), ("brokers", "1"), ("brokers", "2"), ("brokers", "3")):
        left = tool(
            "kafka.admin.ConfigCommand", "--describe", "--entity-type", kind, "--entity-name", name
        )
        assert "throttled" not in left, left
    (row,) = partition_lines(tool(f"{TOOLS}.TopicCommand", "--describe", "--topic", topic))
    assert (row["Replicas"], sorted(row["Isr"])) == ("2,3", sorted("2,3"))
    log = f"{topic}-0"
    gone = cluster.members[0].data / log
    wait_until(lambda: not gone.exists(), "the replica that left keeps its files")


def test_a_reassignment_is_cancelled(
    cluster: ThreeNodes, tool: Callable[..., str], tmp_path: Path
) -> None:
    topic = created(cluster, "stays", [[1, 2]])
    filled(cluster, topic, 3)
    plan = plan_file(tmp_path, topic, [3, 2])
    tool(REASSIGN, "--execute", *plan, "--throttle", "1000")
    cancelled = tool(REASSIGN, "--cancel", *plan)
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled
    (row,) = partition_lines(tool(f"{TOOLS}.TopicCommand", "--describe", "--topic", topic))
    assert sorted(row["Replicas"].split(",")) == ["1", "2"]
    cluster.wait_in_sync()


def test_a_live_topic_gets_more_replicas(
    cluster: ThreeNodes, tool: Callable[..., str], tmp_path: Path
) -> None:
    topic = created(cluster, "single", [[1]])
    filled(cluster, topic, 1)
    plan = plan_file(tmp_path, topic, [1, 2, 3])
    tool(REASSIGN, "--execute", *plan)
    wait_until(lambda: "is completed" in tool(REASSIGN, "--verify", *plan), "never three")
    (row,) = partition_lines(tool(f"{TOOLS}.TopicCommand", "--describe", "--topic", topic))
    assert sorted(row["Isr"].split(",")) == ["1", "2", "3"]
    same = tool(
        REASSIGN,
        "--generate",
        "--broker-list",
        "1,2,3",
        "--topics-to-move-json-file",
        str(topics_file(tmp_path, topic)),
    )
    assert len(json.loads(same.split("configuration\n")[-1])["partitions"][0]["replicas"]) == 3


def topics_file(folder: Path, topic: str) -> Path:
    file = folder / "topics.json"
    file.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    return file


def test_a_voter_is_removed_and_added_again(
    cluster: ThreeNodes, tool: Callable[..., str], java: JavaSession
) -> None:
    def status() -> str:
        return tool(QUORUM, "describe", "--status")

    def voters() -> list[int]:
        (line,) = re.findall(r"CurrentVoters:\s+(.*)", status())
        return sorted(voter["id"] for voter in json.loads(line))

    (leader,) = map(int, re.findall(r"LeaderId:\s+(\d+)", status()))
    assert voters() == [1, 2, 3]
    replication = tool(QUORUM, "describe", "--replication")
    assert len(re.findall(r"\s(?:Leader|Follower)\s", replication + "\n")) == 3, replication
    leaving = cluster.members[0 if leader != 1 else 1]
    identity = ("--controller-id", str(leaving.node_id))
    folder = ("--controller-directory-id", leaving.directory_id)
    tool(QUORUM, "remove-controller", *identity, *folder)
    assert voters() == sorted({1, 2, 3} - {leaving.node_id})
    where = ("--bootstrap-server", cluster.bootstrap)
    config = ("--command-config", str(leaving.properties))
    added = java.run(QUORUM, *where, *config, "add-controller")
    assert f"Added controller {leaving.node_id}" in added
    assert voters() == [1, 2, 3]
    wrong = ("--controller-id", "9", "--controller-directory-id", leaving.directory_id)
    refused = java.ask(QUORUM, *where, "remove-controller", *wrong)
    assert refused["code"] == 1, refused


def test_feature_levels_are_described_and_changed(tool: Callable[..., str]) -> None:
    features = f"{TOOLS}.FeatureCommand"

    def levels() -> dict[str, str]:
        shown = tool(features, "describe")
        return dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", shown))

    before = levels()
    assert before["metadata.version"] == "4.3-IV0" and before["kraft.version"] == "1"
    name = "eligible.leader.replicas.version"
    tool(features, "downgrade", "--feature", f"{name}=0")
    assert levels().get(name, "0") == "0"
    tool(features, "upgrade", "--feature", f"{name}={before[name]}")
    assert levels() == before
    tool(features, "upgrade", "--feature", "transaction.version=99", code=1)


def test_log_dirs_of_all_brokers_tell_the_same_size(
    cluster: ThreeNodes, tool: Callable[..., str]
) -> None:
    topic = created(cluster, "measured", [[1, 2, 3]])
    filled(cluster, topic, 1)

    def sizes() -> dict[int, tuple[int, int]]:
        shown = tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic)
        (described,) = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
        return {
            broker["broker"]: (
                folder["partitions"][0]["size"],
                folder["partitions"][0]["offsetLag"],
            )
            for broker in described["brokers"]
            for folder in broker["logDirs"]
        }

    wait_until(
        lambda: len(set(sizes().values())) == 1, "the replicas differ", more=lambda: str(sizes())
    )
    assert sorted(sizes()) == [1, 2, 3]
    size, lag = sizes()[2]
    assert size > MEGABYTE and lag == 0


def test_replicas_are_verified(cluster: ThreeNodes) -> None:
    topic = created(cluster, "verified", [[1, 2, 3], [2, 3, 1]])
    filled(cluster, topic, 1)
    words = ("--broker-list", cluster.bootstrap, "--topics-include", topic)
    command = java_command(
        f"{TOOLS}.ReplicaVerificationTool", *words, "--report-interval-ms", "500"
    )
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as it:
        try:
            assert it.stdout is not None
            said = []
            for line in it.stdout:  # it goes on for ever
                said.append(line)
                if "max lag is" in line:
                    break
        finally:
            it.kill()
    assert "max lag is 0 for partition" in said[-1], said


def test_every_node_has_the_same_records_and_metadata(
    cluster: ThreeNodes, tool: Callable[..., str], java: JavaSession
) -> None:
    topic = created(cluster, "dumped", [[3, 1, 2]])
    filled(cluster, topic, 1)
    cluster.wait_in_sync()
    dump = f"{TOOLS}.DumpLogSegments"
    name = f"{0:020}.log"

    def batches(member: int, *words: str) -> list[str]:
        file = str(cluster.members[member].data / words[0] / name)
        shown = java.run(dump, "--files", file, *words[1:])
        assert "isvalid: false" not in shown
        lines = [line for line in shown.splitlines() if line.startswith(("baseOffset:", "| "))]
        return [re.sub(r"position: \d+ ", "", line) for line in lines]

    dumped = [batches(member, f"{topic}-0", "--deep-iteration") for member in range(3)]
    assert len(dumped[0]) > 10
    wait_until(
        lambda: batches(0, f"{topic}-0") == batches(1, f"{topic}-0") == batches(2, f"{topic}-0"),
        "the replicas have other batches",
    )
    decoded = ("__cluster_metadata-0", "--cluster-metadata-decoder")
    kept = [batches(member, *decoded) for member in range(3)]
    shortest = min(map(len, kept))
    assert shortest > 10
    assert kept[0][:shortest] == kept[1][:shortest] == kept[2][:shortest]
    checkpoints = f"{topic}-0/leader-epoch-checkpoint"
    texts = [(member.data / checkpoints).read_text() for member in cluster.members]
    assert texts[0] == texts[1] == texts[2]


def test_settings_of_each_broker_are_changed_and_shown_by_that_broker(
    cluster: ThreeNodes, tool: Callable[..., str], java: JavaSession
) -> None:
    command = "kafka.admin.ConfigCommand"
    for member in cluster.members:
        where = ("--bootstrap-server", member.bootstrap)
        for other in cluster.members:
            one = ("--entity-type", "brokers", "--entity-name", str(other.node_id))
            java.run(
                command,
                *where,
                "--alter",
                *one,
                "--add-config",
                f"log.cleaner.backoff.ms={16000 + member.node_id}",
            )
            wait_until(
                lambda one=one, where=where, member=member: (  # type: ignore[misc]
                    f"log.cleaner.backoff.ms={16000 + member.node_id}"
                    in java.run(command, *where, "--describe", *one)
                ),
                "the change is not shown",
            )
            java.run(command, *where, "--alter", *one, "--delete-config", "log.cleaner.backoff.ms")
    shown = tool(f"{TOOLS}.BrokerApiVersionsCommand")
    assert len(re.findall(r"\(id: \d+ rack", shown)) == 3
    where = ("--bootstrap-server", cluster.bootstrap)
    endpoints = java.run(f"{TOOLS}.ClusterTool", "list-endpoints", *where)
    assert sorted(re.findall(r"^(\d+)\s", endpoints, re.MULTILINE)) == ["1", "2", "3"], endpoints
