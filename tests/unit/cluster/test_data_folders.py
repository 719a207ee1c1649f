"""Three whole nodes with two data folders each: one folder of one node fails."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from headrace.node.metadata.image import UNASSIGNED_DIRECTORY
from headrace.wire.protocol.messages import describe_log_dirs, produce
from headrace.wire.protocol.record_batch import Record, build
from tests.unit.cluster.harness import CLIENTS, FOLDER, Member
from tests.unit.cluster.test_replicas import Replicated

SECOND = "/second"


def two_folders(**settings: Any) -> Replicated:
    return Replicated(folders=(FOLDER, SECOND), **settings)


def directories(cluster: Replicated) -> dict[int, bytes]:
    found = cluster.partition()
    return dict(zip(found.replicas, found.directories, strict=True))


def registered(cluster: Replicated, member: Member) -> tuple[bytes, ...]:
    dirs: tuple[bytes, ...] = cluster.image().brokers[member.id].log_dirs
    return dirs


@pytest.fixture
def cluster() -> Replicated:
    """With six partitions, three in each folder."""
    cluster = two_folders()
    for number in range(5):
        answers = cluster.create(cluster.active()[0], f"other-{number}")
        cluster.wait(partial(bool, answers))
    cluster.wait(lambda: UNASSIGNED_DIRECTORY not in directories(cluster).values())
    return cluster


def in_second(cluster: Replicated, name: str) -> bool:
    return all(
        (name, 0) in each.node.partitions.folders.online[SECOND].logs
        for each in cluster.members.values()
    )


def leaders(cluster: Replicated) -> dict[str, int]:
    return {name: topic.partitions[0].leader for name, topic in cluster.image().topics.items()}


def test_brokers_register_and_assign_their_folders(cluster: Replicated) -> None:
    for member in cluster.members.values():
        assert len(registered(cluster, member)) == 2
        assert directories(cluster)[member.id] in registered(cluster, member)
    names = list(leaders(cluster))
    assert any(in_second(cluster, name) for name in names)
    assert not all(in_second(cluster, name) for name in names)


def test_others_lead_what_a_failed_folder_had(cluster: Replicated) -> None:
    in_the_second = [name for name in leaders(cluster) if in_second(cluster, name)]
    name = in_the_second[0]
    victim = cluster.members[leaders(cluster)[name]]
    before = leaders(cluster)
    victim.disk.broken.add(SECOND)
    victim.node.durability.in_background(lambda: victim.disk.require(SECOND), SECOND)

    def failed_over() -> bool:
        image = cluster.image()
        return image is not None and leaders(cluster)[name] not in (victim.id, -1)

    cluster.wait(failed_over)
    assert victim.is_up and victim.node.failure is None
    assert len(registered(cluster, victim)) == 1

    def has_left() -> bool:
        """All ISRs of the folder, those too whose folder the controller did not know yet."""
        topics = cluster.image().topics
        return all(victim.id not in topics[lost].partitions[0].isr for lost in in_the_second)

    cluster.wait(has_left)
    for other in before.keys() - in_the_second:
        partition = cluster.image().topics[other].partitions[0]
        assert victim.id in partition.isr and partition.leader == before[other]
    answers: list[Any] = []
    request = describe_log_dirs.DescribeLogDirsRequest(None)
    victim.ask(CLIENTS, describe_log_dirs, request, answers.append)
    cluster.wait(lambda: answers)
    told = {each.log_dir: each.error_code for each in answers[0].results}
    assert told == {FOLDER: 0, SECOND: 56}

    victim.kill(loses=False)
    victim.disk.broken.clear()
    victim.start()
    cluster.wait(
        lambda: all(
            victim.id in topic.partitions[0].isr for topic in cluster.image().topics.values()
        )
    )
    assert len(registered(cluster, victim)) == 2


def send(cluster: Replicated, name: str, answered: list[tuple[int, int]]) -> None:
    """One record to the leader of the topic; its code and how long it took are noted."""
    leader = leaders(cluster)[name]
    if leader < 0:
        return
    began_ms = cluster.world.now_ms
    data = [produce.PartitionProduceData(0, build([Record(None, b"x", timestamp=1)]))]
    topics = [produce.TopicProduceData(name, bytes(16), data)]
    request = produce.ProduceRequest(None, -1, 30_000, topics)

    def take(answer: Any) -> None:
        code = answer.responses[0].partition_responses[0].error_code
        answered.append((code, cluster.world.now_ms - began_ms))

    cluster.members[leader].ask(CLIENTS, produce, request, take, version=12)


@pytest.mark.parametrize("victim_id", [1, 2, 3])
def test_nobody_waits_for_a_replica_that_will_not_fetch_again(
    cluster: Replicated, victim_id: int
) -> None:
    """It was caught up, and its broker is alive: the high watermark must not count on it."""
    cluster.world.run(2_000)
    victim = cluster.members[victim_id]
    answered: list[tuple[int, int]] = []
    sent = 0
    for step in range(40):
        if step == 10:
            victim.disk.broken.add(SECOND)
        for name in leaders(cluster):
            send(cluster, name, answered)
            sent += leaders(cluster)[name] >= 0
        cluster.world.run(10)
    cluster.world.run(2_000)
    assert len(answered) == sent, "some are still waiting"
    assert max(took for _, took in answered) < 1_000
    assert sum(code != 0 for code, _ in answered) <= 6
