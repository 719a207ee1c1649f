"""Apache Kafka's tools look at a cluster that has grown from one node to three."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cluster.started import started
from tests.interop.java_session import JavaSession
from tests.interop.topics import create_topic

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
FIRST_SEGMENT = "__cluster_metadata-0/00000000000000000000.log"


def test_tools_see_three_voters_and_the_same_metadata_everywhere(
    tmp_path: Path, java: JavaSession
) -> None:
    data = tmp_path / "data"
    with started(data, "--no-console") as running:
        topic = create_topic(running.wait_until_ready().bootstrap, "before-growth")
        running.process.terminate()
        running.process.communicate()
    with started(data, "--brokers", "3") as running:
        where = ("--bootstrap-server", running.wait_until_ready().bootstrap)
        status = java.run(QUORUM, *where, "describe", "--status")
        voters = re.search(r"CurrentVoters: +(.*)", status)
        assert voters is not None and set(re.findall(r'"id": (\d+)', voters[1])) == {"1", "2", "3"}
        ports = set(re.findall(r"CONTROLLER://localhost:(\d+)", voters[1]))
        assert len(ports) == 3 and "9093" not in ports, "each where it listens"
        replication = java.run(QUORUM, *where, "describe", "--replication")
        rows = [line.split() for line in replication.splitlines() if line[:1].isdigit()]
        assert sorted((row[0], row[-1]) for row in rows if row[-1] != "Observer") in (
            [("1", "Leader"), ("2", "Follower"), ("3", "Follower")],
            [("1", "Follower"), ("2", "Leader"), ("3", "Follower")],
            [("1", "Follower"), ("2", "Follower"), ("3", "Leader")],
        )
        described = java.run(TOPICS, *where, "--describe", "--topic", topic)
        assert "Leader: 1\tReplicas: 1\tIsr: 1" in described
        running.stop()
    dumps = [dumped(java, folder) for folder in (data, tmp_path / "data-2", tmp_path / "data-3")]
    shortest = min(map(len, dumps))
    assert dumps[0][:shortest] == dumps[1][:shortest] == dumps[2][:shortest], "record by record"
    records = "\n".join(dumps[0])
    for nodes in (["1"], ["1", "2"], ["1", "2", "3"]):
        sets = [re.findall(r'"voterId":(\d+)', line) for line in dumps[0] if "Voters" in line]
        named = [sorted(found) for found in sets]
        assert nodes in named or (nodes == ["1", "2"] and ["1", "3"] in named), records


def dumped(java: JavaSession, folder: Path) -> list[str]:
    """The records of the metadata log, without what only says where they lie."""
    file = folder / FIRST_SEGMENT
    text = java.run(DUMP, "--cluster-metadata-decoder", "--files", str(file))
    assert "isvalid: false" not in text and "Exception" not in text
    return [line.strip() for line in text.splitlines() if line.lstrip().startswith("| offset")]
