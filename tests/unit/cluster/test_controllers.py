"""Three whole nodes: who is the active controller, and what all of them know."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from headrace.node.serving.api import WaitingRequest
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import describe_quorum, metadata
from headrace.wire.protocol.messages.no_op_record import NoOpRecord
from tests.unit.cluster.harness import CLIENTS, CONTROLLERS, Cluster, Member


def running() -> tuple[Cluster, Member]:
    cluster = Cluster()
    cluster.start()
    return cluster, cluster.wait_for_controller()


def offsets(cluster: Cluster) -> set[int]:
    return {m.node.broker.image.offset for m in cluster.members.values() if m.is_up}


def test_one_of_three_becomes_the_active_controller_and_all_know_it() -> None:
    cluster, active = running()
    there = f"node{active.id}"
    cluster.wait(
        lambda: all(
            (place := member.node.active_controller()) is not None and place.host == there
            for member in cluster.members.values()
        )
    )
    cluster.wait(
        lambda: all(m.node.broker.image.metadata_version for m in cluster.members.values())
    )


def test_another_takes_over_when_the_active_one_is_killed_and_the_returning_one_catches_up() -> (
    None
):
    cluster, first = running()
    epoch = first.node.controller.log.epoch
    first.kill()
    second = cluster.wait_for_controller()
    assert second is not first and second.node.controller.log.epoch > epoch
    cluster.world.run(5_000)
    first.start()
    cluster.wait(lambda: first.node.ready)
    end = second.node.controller.committed_image.offset
    cluster.wait(lambda: first.node.broker.image.offset >= end)
    assert cluster.active() == [second], "the one that returns disturbs nobody"
    cluster.wait(lambda: len(offsets(cluster)) == 1)


def test_a_request_that_waits_at_a_controller_that_is_deposed_is_not_answered_as_done() -> None:
    cluster, first = running()
    others = [m.id for m in cluster.members.values() if m is not first]
    cluster.network.isolate(first.id, others, sends=False, hears=False)
    refusals: list[Any] = []
    waiting = first.node.controller.commit([NoOpRecord()], "done", first.node.now)
    assert isinstance(waiting, WaitingRequest)
    waiting.complete = refusals.append
    first.node.purgatory.add(waiting)
    cluster.wait(lambda: not first.node.controller.is_active)
    assert [refusal.code for refusal in refusals] == [ErrorCode.NOT_CONTROLLER]
    cluster.network.heal()
    second = cluster.wait_for_controller()
    end = second.node.controller.committed_image.offset
    cluster.wait(lambda: first.node.broker.image.offset >= end)


def test_only_the_leader_describes_the_quorum() -> None:
    cluster, active = running()
    cluster.world.run(3_000)
    request = describe_quorum.DescribeQuorumRequest(
        [
            describe_quorum.RequestTopicData(
                "__cluster_metadata", [describe_quorum.RequestPartitionData(0)]
            )
        ]
    )
    for member in cluster.members.values():
        answers: list[describe_quorum.DescribeQuorumResponse] = []
        member.ask(CONTROLLERS, describe_quorum, request, answers.append)
        [partition] = answers[0].topics[0].partitions
        if member is active:
            assert [v.replica_id for v in partition.current_voters] == [1, 2, 3]
            assert {n.listeners[0].host for n in answers[0].nodes} == {"node1", "node2", "node3"}
        else:
            assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_topic_that_is_made_on_one_node_is_known_to_all() -> None:
    cluster, _ = running()
    cluster.wait_until_ready()
    for member in cluster.members.values():
        answers = cluster.create(member, f"by-{member.id}", replicas=3)
        cluster.wait(partial(bool, answers))
        [topic] = answers[0].topics
        assert topic.error_code == ErrorCode.NONE, topic.error_message
    names = {f"by-{member}" for member in cluster.members}
    cluster.wait(
        lambda: all(set(m.node.broker.image.topics) == names for m in cluster.members.values())
    )
    partitions = [
        m.node.broker.image.topics["by-1"].partitions[0] for m in cluster.members.values()
    ]
    assert len(set(partitions)) == 1 and set(partitions[0].isr) == {1, 2, 3}


def test_what_clients_are_told_is_not_made_anew_while_nothing_changes() -> None:
    cluster, _ = running()
    cluster.wait_until_ready()
    cluster.world.run(5_000)
    broker = cluster.members[1].node.broker
    offset = broker.image.offset
    answers: list[Any] = []
    cluster.members[1].ask(
        CLIENTS, metadata, metadata.MetadataRequest(None), answers.append, version=12
    )
    kept = dict(broker.encoded_metadata)
    cluster.world.run(2_000)
    assert answers and kept and broker.image.offset > offset, "the controller shows that it lives"
    assert broker.encoded_metadata == kept


def test_an_active_controller_with_a_full_disk_resigns_and_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its disk takes neither the votes of the election that follows nor the records of the next
    leader; it goes on, says so once, and catches up when there is room."""
    cluster, first = running()
    cluster.wait_until_ready()
    caplog.clear()
    first.disk.is_full = True
    cluster.wait(lambda: cluster.active() not in ([], [first]))
    [second] = cluster.active()
    cluster.world.run(30_000)
    assert cluster.active() == [second]
    assert first.node.failure is None
    assert first.node.active_controller() == second.node.active_controller(), "it knows who leads"
    assert not [each for each in caplog.records if each.exc_info]
    assert caplog.text.count("this node resigns as the active controller") == 1
    answers = cluster.create(second, "orders", 2)
    cluster.wait(lambda: answers)
    first.disk.is_full = False
    end = second.node.controller.committed_image.offset
    cluster.wait(lambda: first.node.broker.image.offset >= end)
    assert first.node.ready


def test_a_member_with_a_full_disk_votes_for_nobody() -> None:
    cluster, first = running()
    cluster.wait_until_ready()
    second, third = (m for m in cluster.members.values() if m is not first)
    second.disk.is_full = True
    first.kill()
    cluster.world.run(20_000)
    assert cluster.active() == [], "of two, one must not vote"
    assert second.node.failure is None and third.node.failure is None
    second.disk.is_full = False
    cluster.wait_for_controller()


def test_all_disks_are_full_for_a_while() -> None:
    cluster, _ = running()
    cluster.wait_until_ready()
    for member in cluster.members.values():
        member.disk.is_full = True
    cluster.world.run(30_000)
    assert cluster.active() == []
    for member in cluster.members.values():
        member.disk.is_full = False
    cluster.wait_for_controller()
    cluster.wait_until_ready()
