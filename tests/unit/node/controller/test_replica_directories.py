"""Replicas in data folders that their brokers have lost, and that begin anew in others."""

from __future__ import annotations

import pytest

from headrace.node.controller.partitions.partition_elections import broker_returns
from headrace.node.controller.partitions.replica_directories import (
    assign_replicas,
    directories_are_missing,
    directories_failed,
)
from headrace.node.metadata.image import NO_LEADER, MetadataImage
from headrace.wire.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from headrace.wire.protocol.messages.register_broker_record import RegisterBrokerRecord
from tests.unit.node.controller.test_partition_elections import TOPIC, after, cluster, partition

OLD, NEW, OTHER = b"old".ljust(16), b"new".ljust(16), b"other".ljust(16)


def three_brokers(isr: list[int], leader: int, eligible: list[int]) -> MetadataImage:
    """Broker 1 has lost the folder in which its replica lies, and has another one."""
    image = cluster(
        isr=isr,
        leader=leader,
        eligible_leader_replicas=eligible,
        directories=[OLD, OTHER, OTHER],
    )
    again = [
        RegisterBrokerRecord(broker_id=broker, broker_epoch=1, log_dirs=[folder], fenced=False)
        for broker, folder in ((1, NEW), (2, OTHER), (3, OTHER))
    ]
    return after(image, again)


def assign(image: MetadataImage, directory: bytes) -> MetadataImage:
    topics = [RequestTopicData(TOPIC, [RequestPartitionData(0)])]
    request = AssignReplicasToDirsRequest(1, 1, [RequestDirectoryData(directory, topics)])
    return after(image, assign_replicas(image, request, 2).records)


def test_a_replica_that_begins_anew_is_not_eligible_any_more() -> None:
    """It would lead with an empty log if the leader died."""
    image = three_brokers(isr=[2], leader=2, eligible=[1])
    told = partition(assign(image, NEW))
    assert told.directories[0] == NEW
    assert told.eligible_leader_replicas == () and told.isr == (2,)


def test_nobody_leads_with_an_empty_log() -> None:
    image = assign(three_brokers(isr=[], leader=NO_LEADER, eligible=[1]), NEW)
    assert partition(image).eligible_leader_replicas == ()
    assert partition(after(image, broker_returns(image, 1))).leader == NO_LEADER


def test_one_that_was_filled_again_stays_in_sync() -> None:
    told = partition(assign(three_brokers(isr=[1, 2], leader=2, eligible=[]), NEW))
    assert (told.directories[0], told.isr, told.leader) == (NEW, (1, 2), 2)


@pytest.mark.parametrize("leader", [1, 2])
def test_a_broker_that_starts_without_a_folder_leads_nothing_there(leader: int) -> None:
    image = three_brokers(isr=[1, 2], leader=leader, eligible=[])
    left = partition(after(image, directories_are_missing(image, image.brokers[1], 1)))
    assert (left.isr, left.leader) == ((2,), 2)
    assert not list(broker_returns(image, 1))


def test_a_folder_that_fails_is_taken_from_the_registration_once() -> None:
    image = after(
        cluster(isr=[1, 2], leader=1, directories=[OLD, OTHER, OTHER]),
        [RegisterBrokerRecord(broker_id=1, broker_epoch=1, log_dirs=[OLD, NEW], fenced=False)],
    )
    failed = after(image, directories_failed(image, image.brokers[1], [OLD], 1))
    assert failed.brokers[1].log_dirs == (NEW,)
    assert partition(failed).leader == 2 and partition(failed).isr == (2,)
    assert not list(directories_failed(failed, failed.brokers[1], [OLD], 1))
