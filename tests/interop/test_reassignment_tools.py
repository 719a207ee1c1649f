"""Apache Kafka's `kafka-reassign-partitions` and `kafka-leader-election` on a cluster of one."""

from __future__ import annotations

import json
from pathlib import Path

from tests.interop.brokers import Node
from tests.interop.java_session import JavaSession
from tests.interop.topics import create_topic

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"


def plan(broker: Node, topic: str, replicas: list[int], log_dir: str | None = None) -> Path:
    """A file as the tool reads it: these replicas for the first partition of the topic."""
    partition = {"topic": topic, "partition": 0, "replicas": replicas}
    if log_dir is not None:
        partition["log_dirs"] = [log_dir] * len(replicas)
    file = broker.folder / f"plan-{topic}.json"
    file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    return file


def test_a_plan_is_made_carried_out_and_verified(broker: Node, java: JavaSession) -> None:
    topic = create_topic(broker.bootstrap, "planned", partitions=3)
    where = ("--bootstrap-server", broker.bootstrap)
    wanted = broker.folder / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    asked = ("--generate", "--broker-list", "1", "--topics-to-move-json-file", str(wanted))
    generated = java.run(REASSIGN, *where, *asked)
    proposed = generated.split("Proposed partition reassignment configuration\n")[1]
    assert [p["replicas"] for p in json.loads(proposed)["partitions"]] == [[1], [1], [1]]

    file = plan(broker, topic, [1])
    with_file = ("--reassignment-json-file", str(file))
    executed = java.run(REASSIGN, *where, "--execute", *with_file)
    assert f"Successfully started partition reassignment for {topic}-0" in executed
    verified = java.run(REASSIGN, *where, "--verify", *with_file)
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert "No partition reassignments found." in java.run(REASSIGN, *where, "--list")
    cancelled = java.run(REASSIGN, *where, "--cancel", *with_file)
    assert "None of the specified partition reassignments are active." in cancelled


def test_a_plan_with_a_broker_that_is_not_there_is_refused(broker: Node, java: JavaSession) -> None:
    topic = create_topic(broker.bootstrap, "ill-planned")
    file = plan(broker, topic, [7])
    asked = ("--execute", "--reassignment-json-file", str(file))
    answer = java.ask(REASSIGN, "--bootstrap-server", broker.bootstrap, *asked)
    assert answer["code"] == 1
    assert "Unknown broker id 7" in f"{answer['out']}{answer['err']}"


def test_replicas_stay_in_the_only_folder(broker: Node, java: JavaSession) -> None:
    topic = create_topic(broker.bootstrap, "in-its-folder")
    where = ("--bootstrap-server", broker.bootstrap)
    described = java.run(LOG_DIRS, *where, "--describe", "--topic-list", topic)
    (line,) = [line for line in described.splitlines() if line.startswith("{")]
    (folder,) = json.loads(line)["brokers"][0]["logDirs"]
    here = plan(broker, topic, [1], folder["logDir"])
    executed = java.run(REASSIGN, *where, "--execute", "--reassignment-json-file", str(here))
    assert f"Successfully started moving log directory to {folder['logDir']}" in executed
    verified = java.run(REASSIGN, *where, "--verify", "--reassignment-json-file", str(here))
    assert f"Reassignment of replica {topic}-0-1 completed successfully." in verified
    there = plan(broker, topic, [1], "/no/such/folder")
    arguments = ("--execute", "--reassignment-json-file", str(there), "--timeout", "1000")
    refused = java.ask(REASSIGN, *where, *arguments)
    said = f"{refused['out']}{refused['err']}"
    assert "The log directory is not found" in said or "LogDirNotFound" in said, said


def test_leaders_are_where_they_should_be(broker: Node, java: JavaSession) -> None:
    topic = create_topic(broker.bootstrap, "well-led", partitions=2)
    where = ("--bootstrap-server", broker.bootstrap)
    one = ("--topic", topic, "--partition", "1")
    for kind in ("preferred", "unclean"):
        done = java.run(ELECT, *where, "--election-type", kind, *one)
        assert f"Valid replica already elected for partitions {topic}-1" in done
    java.run(ELECT, *where, "--election-type", "preferred", "--all-topic-partitions")
    missing = ("--topic", topic, "--partition", "9")
    refused = java.ask(ELECT, *where, "--election-type", "preferred", *missing)
    assert refused["code"] == 1
    assert "UnknownTopicOrPartition" in f"{refused['out']}{refused['err']}"
