"""What brokers of other processes ask the controller for, in every version through the codecs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.node.metadata.features import SUPPORTED_FEATURES
from headrace.node.metadata.image import BROKER_RESOURCE
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    alter_partition,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    create_topics,
    unregister_broker,
)
from headrace.wire.protocol.messages.config_record import ConfigRecord
from tests.unit.node.consensus.quorum_of_one import QuorumOfOne
from tests.unit.node.controller.test_handlers import ask

FOLDER = b"two".ljust(16)


def a_registration(quorum: QuorumOfOne, broker_id: int = 2, **fields: Any) -> Any:
    known: dict[str, Any] = dict(
        broker_id=broker_id,
        cluster_id=quorum.controller.image.cluster_id,
        incarnation_id=b"first".ljust(16),
        features=[
            broker_registration.Feature(name, *levels)
            for name, levels in SUPPORTED_FEATURES.items()
        ],
        rack=None,
        log_dirs=[FOLDER],
    )
    return broker_registration.BrokerRegistrationRequest(**known | fields)


def joined(quorum: QuorumOfOne, version: int = 4, **fields: Any) -> int:
    answer = ask(quorum, broker_registration, version, a_registration(quorum, **fields))
    assert answer.error_code == 0
    epoch: int = answer.broker_epoch
    return epoch


def beat(quorum: QuorumOfOne, epoch: int, version: int = 2, **wants: Any) -> Any:
    request = broker_heartbeat.BrokerHeartbeatRequest(
        2, epoch, quorum.controller.image.offset, **wants
    )
    return ask_and_wait(quorum, broker_heartbeat, version, request)


def ask_and_wait(quorum: QuorumOfOne, messages: Any, version: int, request: Any) -> Any:
    answer = ask(quorum, messages, version, request)
    quorum.flush()
    return answer


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_broker_registers_is_unfenced_and_expires(tmp_path: Path, version: int) -> None:
    quorum = QuorumOfOne(tmp_path)
    epoch = joined(quorum, version)
    image = quorum.controller.committed_image
    assert image.brokers[2].fenced and image.brokers[2].log_dirs == (FOLDER,)
    answer = beat(quorum, epoch)
    assert (answer.error_code, answer.is_caught_up, answer.is_fenced) == (0, True, False)
    assert not quorum.controller.image.brokers[2].fenced
    again = a_registration(quorum, incarnation_id=b"second".ljust(16))
    refused = ask(quorum, broker_registration, version, again)
    assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    quorum.now.monotonic_ms += 9_001
    quorum.controller.tick(quorum.now)
    assert quorum.controller.image.brokers[2].fenced
    assert not quorum.controller.image.brokers[quorum.controller.settings.node_id].fenced
    assert joined(quorum, version, incarnation_id=b"second".ljust(16)) > epoch


def test_nobody_registers_as_the_broker_that_runs_beside_the_controller(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    own = a_registration(quorum, quorum.controller.settings.node_id)
    answer = ask(quorum, broker_registration, 4, own)
    assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


@pytest.mark.parametrize("version", broker_heartbeat.VERSIONS)
def test_heartbeats_of_unknown_brokers_and_old_starts(tmp_path: Path, version: int) -> None:
    quorum = QuorumOfOne(tmp_path)
    for known, code in (
        (False, ErrorCode.STALE_BROKER_EPOCH),
        (True, ErrorCode.STALE_BROKER_EPOCH),
    ):
        if known:
            joined(quorum)
        request = broker_heartbeat.BrokerHeartbeatRequest(2, 1, 0)
        answer = ask(quorum, broker_heartbeat, version, request)
        assert answer.error_code == code


@pytest.mark.parametrize("version", alter_partition.VERSIONS)
def test_a_follower_joins_the_isr(tmp_path: Path, version: int) -> None:
    quorum = QuorumOfOne(tmp_path)
    epoch = joined(quorum)
    beat(quorum, epoch)
    own = quorum.controller.settings.node_id
    replicas = create_topics.CreatableReplicaAssignment(0, [own, 2])
    topic = create_topics.CreatableTopic("orders", -1, -1, [replicas])
    ask(quorum, create_topics, 7, create_topics.CreateTopicsRequest([topic]))
    topic_id = quorum.controller.image.topics["orders"].id
    assert quorum.controller.image.topics["orders"].partitions[0].isr == (own, 2)

    def propose(members: list[int], partition_epoch: int) -> Any:
        epochs = {own: quorum.controller.broker_epoch, 2: epoch}
        part = alter_partition.RequestPartitionData(
            partition_index=0,
            leader_epoch=0,
            new_isr=members,
            new_isr_with_epochs=[alter_partition.BrokerState(b, epochs[b]) for b in members],
            partition_epoch=partition_epoch,
        )
        request = alter_partition.AlterPartitionRequest(
            own,
            quorum.controller.broker_epoch,
            [alter_partition.RequestTopicData(topic_id, [part])],
        )
        answer = ask(quorum, alter_partition, version, request)
        assert answer.error_code == 0
        return answer.topics[0].partitions[0]

    left = propose([own], 0)
    assert (left.error_code, left.isr, left.partition_epoch) == (0, [own], 1)
    back = propose([own, 2], 1)
    assert (back.error_code, back.isr) == (0, [own, 2])
    assert quorum.controller.committed_image.topics["orders"].partitions[0].isr == (own, 2)


def test_a_folder_is_assigned_and_fails(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    other = b"three".ljust(16)
    epoch = joined(quorum, log_dirs=[FOLDER, other])
    beat(quorum, epoch)
    own = quorum.controller.settings.node_id
    replicas = create_topics.CreatableReplicaAssignment(0, [2, own])
    topic = create_topics.CreatableTopic("orders", -1, -1, [replicas])
    ask(quorum, create_topics, 7, create_topics.CreateTopicsRequest([topic]))
    topic_id = quorum.controller.image.topics["orders"].id
    named = assign_replicas_to_dirs.RequestTopicData(
        topic_id, [assign_replicas_to_dirs.RequestPartitionData(0)]
    )
    request = assign_replicas_to_dirs.AssignReplicasToDirsRequest(
        2, epoch, [assign_replicas_to_dirs.RequestDirectoryData(other, [named])]
    )
    answer = ask(quorum, assign_replicas_to_dirs, 0, request)
    assert answer.directories[0].topics[0].partitions[0].error_code == 0
    assert quorum.controller.image.topics["orders"].partitions[0].directories[0] == other
    assert quorum.controller.image.topics["orders"].partitions[0].leader == 2
    beat(quorum, epoch, offline_log_dirs=[other])
    found = quorum.controller.image
    assert found.topics["orders"].partitions[0].leader == own
    assert found.brokers[2].log_dirs == (FOLDER,)


def test_a_preferred_leader_that_returns_leads_again_after_a_while(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    epoch = joined(quorum)
    beat(quorum, epoch)
    own = quorum.controller.settings.node_id
    replicas = create_topics.CreatableReplicaAssignment(0, [2, own])
    topic = create_topics.CreatableTopic("orders", -1, -1, [replicas])
    ask(quorum, create_topics, 7, create_topics.CreateTopicsRequest([topic]))

    def partition() -> Any:
        return quorum.controller.image.topics["orders"].partitions[0]

    beat(quorum, epoch, want_fence=True)
    assert (partition().leader, partition().isr) == (own, (own,))
    beat(quorum, epoch)
    assert partition().leader == own
    quorum.now.monotonic_ms += 300_000
    beat(quorum, epoch)
    quorum.controller.tick(quorum.now)
    assert partition().leader == own, "it is not in sync yet"


def test_a_cordoned_broker_gets_no_new_partitions(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    epoch = joined(quorum)
    beat(quorum, epoch)

    def create(name: str, replicas: int) -> Any:
        topic = create_topics.CreatableTopic(name, 20, replicas)
        answer = ask(quorum, create_topics, 7, create_topics.CreateTopicsRequest([topic]))
        return answer.topics[0]

    def holders(name: str) -> set[int]:
        partitions = quorum.controller.image.topics[name].partitions
        return {replica for each in partitions for replica in each.replicas}

    own = quorum.controller.settings.node_id
    assert create("before", 1).error_code == 0 and holders("before") == {own, 2}
    beat(quorum, epoch, cordoned_log_dirs=[FOLDER])
    assert quorum.controller.image.brokers[2].cordoned_log_dirs == (FOLDER,)
    written = quorum.controller.image.offset
    beat(quorum, epoch, cordoned_log_dirs=[FOLDER])
    assert quorum.controller.image.offset == written, "nothing has changed"
    assert create("drained", 1).error_code == 0 and holders("drained") == {own}
    refused = create("wide", 2)
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "not 1. Cordoned: 2 (cordoned.log.dirs)." in refused.error_message
    beat(quorum, epoch, cordoned_log_dirs=[])
    assert create("after", 1).error_code == 0 and holders("after") == {own, 2}


def test_an_older_heartbeat_leaves_the_cordon_as_it_is(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    epoch = joined(quorum)
    beat(quorum, epoch, cordoned_log_dirs=[FOLDER])
    beat(quorum, epoch, version=1)
    assert quorum.controller.image.brokers[2].cordoned_log_dirs == (FOLDER,)


def test_an_unregistered_broker_leaves_no_cordon_to_the_next_one_of_its_id(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    joined(quorum)
    cordon = ConfigRecord(BROKER_RESOURCE, "2", "cordoned.log.dirs", "*")
    quorum.controller.append([cordon], quorum.now)
    quorum.flush()
    ask_and_wait(quorum, unregister_broker, 0, unregister_broker.UnregisterBrokerRequest(2))
    assert 2 not in quorum.controller.image.brokers
    assert not quorum.controller.image.config(BROKER_RESOURCE, "2")
