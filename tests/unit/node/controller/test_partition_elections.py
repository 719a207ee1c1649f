"""Who leads when brokers come and go."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.node.controller.members.brokers import fence, unfence
from headrace.node.controller.partitions.partition_elections import broker_leaves, broker_returns
from headrace.node.controller.partitions.replica_directories import assign_replicas
from headrace.node.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from headrace.wire.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from headrace.wire.protocol.messages.config_record import ConfigRecord
from headrace.wire.protocol.messages.feature_level_record import FeatureLevelRecord
from headrace.wire.protocol.messages.partition_record import PartitionRecord
from headrace.wire.protocol.messages.register_broker_record import RegisterBrokerRecord
from headrace.wire.protocol.messages.topic_record import TopicRecord

TOPIC = b"topic".ljust(16)


def after(image: MetadataImage, records: Any) -> MetadataImage:
    return image.apply(list(records), offset=image.offset + 1, epoch=1, wall_ms=0)


def cluster(
    *, isr: list[int], leader: int, elr_version: int = 1, dead: tuple[int, ...] = (), **fields: Any
) -> MetadataImage:
    records: list[Any] = [
        FeatureLevelRecord("eligible.leader.replicas.version", elr_version),
        *(RegisterBrokerRecord(broker_id=b, broker_epoch=1, fenced=b in dead) for b in (1, 2, 3)),
        TopicRecord("t", TOPIC),
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=[1, 2, 3],
            isr=isr,
            leader=leader,
            leader_epoch=5,
            partition_epoch=9,
            **fields,
        ),
    ]
    return after(MetadataImage(cluster_id="test"), records)


def partition(image: MetadataImage) -> PartitionImage:
    return image.topics["t"].partitions[0]


def test_another_in_sync_replica_leads_when_the_leader_leaves() -> None:
    image = cluster(isr=[1, 2, 3], leader=1)
    left = partition(after(image, broker_leaves(image, 1, 1)))
    assert (left.leader, left.leader_epoch, left.isr) == (2, 6, (2, 3))
    assert left.eligible_leader_replicas == ()


def test_a_follower_that_leaves_changes_no_leader() -> None:
    image = cluster(isr=[1, 2, 3], leader=1)
    left = partition(after(image, broker_leaves(image, 3, 1)))
    assert (left.leader, left.leader_epoch, left.isr) == (1, 5, (1, 2))


def test_below_the_minimum_those_who_left_stay_eligible() -> None:
    image = cluster(isr=[1, 2], leader=1)
    image = after(image, [ConfigRecord(2, "t", "min.insync.replicas", "2")])
    left = after(image, fence(image, 2, 1))
    assert partition(left).isr == (1,) and partition(left).eligible_leader_replicas == (2,)
    gone = after(left, fence(left, 1, 1))
    assert partition(gone).isr == () and partition(gone).leader == NO_LEADER
    assert partition(gone).eligible_leader_replicas == (1, 2)
    assert partition(gone).last_known_elr == (1,)

    back = partition(after(gone, broker_returns(gone, 2)))
    assert (back.leader, back.isr, back.eligible_leader_replicas) == (2, (2,), (1,))
    assert back.leader_recovery_state == 0, "it has everything that was acknowledged"


def test_without_eligible_leaders_the_last_in_sync_replica_stays_in_the_isr() -> None:
    image = cluster(isr=[1], leader=1, elr_version=0)
    left = after(image, broker_leaves(image, 1, 1))
    assert partition(left).isr == (1,) and partition(left).leader == NO_LEADER
    assert partition(after(left, broker_returns(left, 2))).leader == NO_LEADER, "it is not in sync"
    assert partition(after(left, broker_returns(left, 1))).leader == 1


def test_the_last_known_leader_leads_if_nobody_else_is_left_and_must_recover() -> None:
    image = cluster(isr=[], leader=NO_LEADER, last_known_elr=[3])
    assert partition(after(image, broker_returns(image, 1))).leader == NO_LEADER
    back = partition(after(image, broker_returns(image, 3)))
    assert (back.leader, back.isr, back.leader_recovery_state) == (3, (3,), 1)


@pytest.mark.parametrize("dead", [(), (2,)])
def test_a_broker_that_is_not_alive_is_not_elected(dead: tuple[int, ...]) -> None:
    image = cluster(isr=[1, 2], leader=1, dead=dead)
    expected = NO_LEADER if dead else 2
    assert partition(after(image, fence(image, 1, 1))).leader == expected


def test_fencing_and_unfencing_write_the_change_of_the_broker_too() -> None:
    image = cluster(isr=[1, 2, 3], leader=1)
    fenced = after(image, fence(image, 1, 1))
    assert fenced.brokers[1].fenced
    back = after(fenced, unfence(fenced, 1))
    assert back.brokers[1].alive and partition(back).leader == 2


def test_a_last_known_leader_whose_folder_was_lost_is_not_elected() -> None:
    """It comes back with an empty folder: leading with that would lose everything, unasked."""
    old, new = b"lost folder".ljust(16), b"new folder".ljust(16)
    image = cluster(
        isr=[], leader=NO_LEADER, last_known_elr=[1], directories=[old, bytes(16), bytes(16)]
    )
    image = after(image, [RegisterBrokerRecord(broker_id=1, broker_epoch=1, log_dirs=[new])])
    named = RequestTopicData(TOPIC, [RequestPartitionData(0)])
    request = AssignReplicasToDirsRequest(1, 1, [RequestDirectoryData(new, [named])])
    assigned = partition(after(image, assign_replicas(image, request, 2).records))
    assert assigned.directories[0] == new
    assert (assigned.leader, assigned.isr, assigned.last_known_elr) == (NO_LEADER, (), ())
