"""Stories told to one broker of a cluster of three, at Apache Kafka and at Headrace.

Broker 1 leads everything and both others follow: every partition has three replicas, and broker 1
is the first of them, also of the coordinators' topics. So what the script asks of one broker has
the same answer, and every acknowledgement waits for a follower. Stories about where things lie
(metadata, placement, reassignments, restarts) are other tests' (`tests/interop/test_cluster_*`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.wire.protocol.messages import (
    alter_partition_reassignments,
    elect_leaders,
    find_coordinator,
    metadata,
)
from headrace.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.protocol.messages.elect_leaders import ElectLeadersRequest
from headrace.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.conftest import SETTINGS
from tests.conformance.differences import covering
from tests.conformance.stage import Stage, play
from tests.conformance.stories import STORIES
from tests.conformance.test_conformance import differing
from tests.interop.brokers import TARGET
from tests.soak.three_nodes import ThreeNodes, wait_until

FIRST, REPLICAS = 1, (1, 2, 3)
COORDINATORS = {"__consumer_offsets": 0, "__transaction_state": 1}
OWN = {name: value for name, value in SETTINGS.items() if name != "node.id"} | {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "min.insync.replicas": "2",
}
ABOUT = (
    "fetch",
    "fetch_sessions",
    "group_consumers",
    "group_members",
    "group_offsets",
    "list_offsets",
    "produce",
    "producers",
    "records",
    "sequences",
    "transactions",
)
# A record without acks=all can be read when the followers have it, whenever that is.
RACING = {"produce: each kind of acks"}
TOLD = [name for name in STORIES if name.split(":")[0] in ABOUT and name not in RACING]
# One of each kind in every run, the others in `make full`.
SHORT = {next(name for name in TOLD if name.split(":")[0] == about) for about in ABOUT}


def three_nodes(target: str, folder: Path) -> Iterator[ThreeNodes]:
    with ThreeNodes(target, folder, OWN) as cluster:
        for topic, kind in COORDINATORS.items():
            lead_by_the_first(cluster, topic, kind)
        yield cluster


@pytest.fixture(scope="module")
def apaches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    yield from three_nodes("apache", tmp_path_factory.mktemp("oracle"))


@pytest.fixture(scope="module")
def our_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    yield from three_nodes(TARGET, tmp_path_factory.mktemp("ours"))


def lead_by_the_first(cluster: ThreeNodes, topic: str, kind: int) -> None:
    """The topic is made by the first question for a coordinator, wherever chance puts it."""
    connection = Stage(cluster.members[0]).connection

    def described() -> Any:
        connection.ask(
            find_coordinator, 4, FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"])
        )
        wanted = MetadataRequest([MetadataRequestTopic(name=topic)], False)
        answer: Any = connection.ask(metadata, 12, wanted)
        partitions = answer.topics[0].partitions
        return partitions[0] if partitions else None

    wait_until(lambda: described() is not None, f"nobody makes {topic}")
    move = ReassignableTopic(topic, [ReassignablePartition(0, list(REPLICAS))])
    connection.ask(
        alter_partition_reassignments, 0, AlterPartitionReassignmentsRequest(30_000, topics=[move])
    )
    wait_until(lambda: described().replica_nodes == list(REPLICAS), f"{topic} is not moved")

    def is_led() -> bool:
        connection.ask(elect_leaders, 2, ElectLeadersRequest(0, None, 30_000))
        return bool(described().leader_id == FIRST)

    wait_until(is_led, f"{topic} is led by another")
    cluster.wait_in_sync()


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.full) for name in TOLD]
)
def test_one_of_three_answers_alike(name: str, apaches: ThreeNodes, our_three: ThreeNodes) -> None:
    theirs, their_stop = play(STORIES[name], apaches.members[0], REPLICAS)
    last = next(reversed(theirs), None)
    assert their_stop is None, f"the script fails at Apache Kafka after {last!r}: {their_stop!r}"
    mine, my_stop = play(STORIES[name], our_three.members[0], REPLICAS)
    unexpected = [
        f"{line}\n    {field or 'answer'}\n    Apache:   {left!r}\n    Headrace: {right!r}"
        for line, field, left, right in differing(theirs, mine)
        if covering(f"{name}: {line}", field, left, right) is None
    ]
    if my_stop is not None:
        unexpected.append(f"the script stopped at Headrace: {my_stop!r}")
    if unexpected:
        pytest.fail(f"{len(unexpected)} differences\n" + "\n".join(unexpected), pytrace=False)
