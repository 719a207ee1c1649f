"""A controller of many brokers: who is registered, alive, in sync, and where replicas go."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from headrace.node.controller.members.broker_heartbeats import BrokerSessions
from headrace.node.controller.members.broker_registrations import register, unregister
from headrace.node.controller.members.brokers import fence
from headrace.node.controller.partitions.in_sync_changes import alter_partition
from headrace.node.controller.partitions.leader_balance import balance_leaders
from headrace.node.controller.partitions.placement import place
from headrace.node.controller.partitions.replica_directories import (
    assign_replicas,
    directories_failed,
)
from headrace.node.metadata.features import SUPPORTED_FEATURES
from headrace.node.metadata.image import LOST_DIRECTORY, NO_LEADER, MetadataImage, PartitionImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from headrace.wire.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
)
from headrace.wire.protocol.messages.assign_replicas_to_dirs import (
    RequestPartitionData as AssignedPartition,
)
from headrace.wire.protocol.messages.assign_replicas_to_dirs import (
    RequestTopicData as AssignedTopic,
)
from headrace.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from headrace.wire.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from headrace.wire.protocol.messages.config_record import ConfigRecord
from headrace.wire.protocol.messages.feature_level_record import FeatureLevelRecord
from headrace.wire.protocol.messages.partition_record import PartitionRecord
from headrace.wire.protocol.messages.register_broker_record import RegisterBrokerRecord
from headrace.wire.protocol.messages.topic_record import TopicRecord

TOPIC = b"topic".ljust(16)
FOLDER = {b: bytes([b]) * 16 for b in range(1, 10)}


def after(image: MetadataImage, records: Any) -> MetadataImage:
    listed = list(records)
    return image.apply(listed, offset=image.offset + len(listed), epoch=1, wall_ms=0)


def cluster(isr: list[int], leader: int, *, minimum: int = 1, **fields: Any) -> MetadataImage:
    """Brokers 1, 2 and 3 with epochs 101 to 103 and one partition."""
    records: list[Any] = [
        FeatureLevelRecord("metadata.version", 30),
        FeatureLevelRecord("eligible.leader.replicas.version", 1),
        *(
            RegisterBrokerRecord(
                broker_id=b,
                broker_epoch=100 + b,
                incarnation_id=bytes([b]) * 16,
                log_dirs=[FOLDER[b]],
                fenced=False,
            )
            for b in (1, 2, 3)
        ),
        TopicRecord("t", TOPIC),
        ConfigRecord(2, "t", "min.insync.replicas", str(minimum)),
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=[1, 2, 3],
            isr=isr,
            leader=leader,
            leader_epoch=5,
            partition_epoch=9,
            directories=[FOLDER[1], FOLDER[2], FOLDER[3]],
            **fields,
        ),
    ]
    return after(MetadataImage(cluster_id="c", offset=200), records)


def partition(image: MetadataImage) -> PartitionImage:
    return image.topics["t"].partitions[0]


# Registration


def a_request(broker_id: int, **fields: Any) -> BrokerRegistrationRequest:
    known: dict[str, Any] = dict(
        broker_id=broker_id,
        cluster_id="c",
        incarnation_id=b"new".ljust(16),
        features=[Feature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
        rack=None,
        log_dirs=[FOLDER[broker_id]],
    )
    return BrokerRegistrationRequest(**known | fields)


def registered(
    image: MetadataImage, request: BrokerRegistrationRequest, *, has_session: bool = False
) -> tuple[MetadataImage, int]:
    decision = register(
        image,
        request,
        4,
        epoch=image.offset + 1,
        has_session=has_session,
        min_in_sync_replicas=1,
    )
    return after(image, decision.records), decision.response.broker_epoch


def test_a_new_broker_is_fenced_and_its_epoch_is_its_offset() -> None:
    image = cluster([1], 1)
    found, epoch = registered(image, a_request(4))
    assert epoch == image.offset + 1
    assert found.brokers[4].fenced and found.brokers[4].epoch == epoch


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [LOST_DIRECTORY]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [FOLDER[4], FOLDER[4]]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [FOLDER[1]]}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_registrations_that_are_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refusal:
        registered(cluster([1], 1), a_request(4, **fields))
    assert refusal.value.code == code


def test_an_id_that_is_alive_is_not_given_to_another_process() -> None:
    image = cluster([1, 2], 1)
    with pytest.raises(KafkaError) as refusal:
        registered(image, a_request(2), has_session=True)
    assert refusal.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    same = a_request(2, incarnation_id=bytes([2]) * 16, rack="r")
    found, epoch = registered(image, same, has_session=True)
    assert (epoch, found.brokers[2].rack, found.brokers[2].fenced) == (102, "r", False)
    assert partition(found).isr == (1, 2), "it amends its own registration"


def test_after_an_unclean_stop_a_broker_is_trusted_in_nothing() -> None:
    """KIP-966: it may have lost what made it eligible."""
    image = cluster([1], 1, minimum=2, eligible_leader_replicas=[2])
    found, _ = registered(image, a_request(2))
    assert partition(found).eligible_leader_replicas == ()
    clean, _ = registered(image, a_request(2, previous_broker_epoch=102))
    assert partition(clean).eligible_leader_replicas == (2,)
    led, _ = registered(cluster([1, 2, 3], 1), a_request(1))
    assert (partition(led).leader, partition(led).isr) == (2, (2, 3))


def test_after_a_clean_stop_that_nobody_heard_of_others_lead() -> None:
    """The whole cluster was stopped at once. It is fenced until it has caught up: if it died before
    that, nobody would take over what it led."""
    stopped = {"previous_broker_epoch": 101}
    found, _ = registered(cluster([1, 2, 3], 1), a_request(1, **stopped))
    assert (partition(found).leader, partition(found).isr) == (2, (2, 3))
    alone, _ = registered(cluster([1], 1), a_request(1, **stopped))
    assert (partition(alone).leader, partition(alone).isr) == (NO_LEADER, ())
    assert partition(alone).eligible_leader_replicas == (1,), "it has everything"


def test_a_broker_that_is_unregistered_leaves_every_isr() -> None:
    image = cluster([1, 2], 1)
    gone = after(image, unregister(image, 1, 1))
    assert 1 not in gone.brokers
    assert (partition(gone).leader, partition(gone).isr) == (2, (2,))
    with pytest.raises(KafkaError) as refusal:
        unregister(gone, 1, 1)
    assert refusal.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


# Heartbeats


class Beating:
    """Heartbeats at a controller that writes at once."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.sessions = BrokerSessions(timeout_ms=9_000)
        self.now_ms = 0
        self.sessions.begin(image, 0)

    def beat(self, broker_id: int, *, offset: int | None = None, **wants: Any) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id,
            self.image.brokers[broker_id].epoch,
            self.image.offset if offset is None else offset,
            **wants,
        )
        decision = self.sessions.heartbeat(
            self.image,
            request,
            end_offset=self.image.offset + 1,
            min_in_sync_replicas=1,
            now_ms=self.now_ms,
        )
        self.image = after(self.image, decision.records)
        return decision.response


def test_a_broker_is_unfenced_once_it_has_replayed_its_own_registration() -> None:
    image, epoch = registered(cluster([2], 2), a_request(1))
    cluster_of_three = Beating(image)
    early = cluster_of_three.beat(1, offset=epoch - 1)
    assert early.is_fenced and not early.is_caught_up
    assert cluster_of_three.beat(1, want_fence=True).is_fenced
    ready = cluster_of_three.beat(1)
    assert not ready.is_fenced and ready.is_caught_up
    assert not cluster_of_three.image.brokers[1].fenced


def test_a_silent_broker_is_fenced_when_its_session_is_over() -> None:
    beating = Beating(cluster([1, 2, 3], 1))
    beating.now_ms = 9_000
    beating.beat(2), beating.beat(3)
    assert beating.sessions.expired(beating.image, 9_000) is None
    assert beating.sessions.expired(beating.image, 9_001) == 1
    assert not beating.sessions.is_alive(beating.image.brokers[1], 9_001)
    fenced = after(beating.image, fence(beating.image, 1, 1))
    assert (partition(fenced).leader, partition(fenced).isr) == (2, (2, 3))
    assert beating.sessions.expired(fenced, 9_001) is None
    beating.image = fenced
    beating.beat(1)
    assert not beating.image.brokers[1].fenced and partition(beating.image).leader == 2


def test_heartbeats_of_an_earlier_start_are_refused() -> None:
    beating = Beating(cluster([1], 1))
    request = BrokerHeartbeatRequest(1, 100, 50)
    with pytest.raises(KafkaError) as refusal:
        beating.sessions.heartbeat(
            beating.image, request, end_offset=0, min_in_sync_replicas=1, now_ms=0
        )
    assert refusal.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_that_stops_hands_over_and_waits_until_all_know() -> None:
    beating = Beating(cluster([1, 2, 3], 1))
    beating.beat(2), beating.beat(3)
    before = beating.image.offset
    first = beating.beat(1, want_shut_down=True)
    assert not first.should_shut_down and not first.is_fenced
    assert beating.image.brokers[1].in_controlled_shutdown
    assert (partition(beating.image).leader, partition(beating.image).isr) == (2, (2, 3))
    assert not beating.beat(1, want_shut_down=True).should_shut_down
    beating.beat(2), beating.beat(3, offset=before)
    assert not beating.beat(1, want_shut_down=True).should_shut_down, "3 still fetches from it"
    beating.beat(3)
    last = beating.beat(1, want_shut_down=True)
    assert last.should_shut_down and last.is_fenced
    assert beating.image.brokers[1].fenced


def test_a_broker_that_leads_nothing_stops_at_once_and_others_may_fence_it() -> None:
    beating = Beating(cluster([1, 2, 3], 1))
    assert beating.beat(3, want_shut_down=True).should_shut_down
    assert partition(beating.image).isr == (1, 2)
    assert beating.beat(2, want_fence=True).is_fenced, "a parent that saw it die may say so"
    assert partition(beating.image).isr == (1,)


# In-sync replicas


def proposal(
    isr: list[tuple[int, int]], *, broker: int = 1, epoch: int | None = None, **fields: Any
) -> AlterPartitionRequest:
    known: dict[str, Any] = dict(partition_index=0, leader_epoch=5, partition_epoch=9)
    members = [BrokerState(*member) for member in isr]
    data = RequestPartitionData(**known | {"new_isr_with_epochs": members} | fields)
    broker_epoch = 100 + broker if epoch is None else epoch
    return AlterPartitionRequest(broker, broker_epoch, [RequestTopicData(TOPIC, [data])])


def altered(image: MetadataImage, request: AlterPartitionRequest) -> tuple[MetadataImage, Any]:
    decision = alter_partition(image, request, 3, 1)
    [topic] = decision.response.topics
    return after(image, decision.records), topic.partitions[0]


def test_a_leader_changes_who_is_in_sync() -> None:
    image = cluster([1], 1, minimum=2, eligible_leader_replicas=[3])
    found, answer = altered(image, proposal([(1, 101), (2, 102)]))
    assert answer.error_code == ErrorCode.NONE
    assert (answer.isr, answer.leader_epoch, answer.partition_epoch) == ([1, 2], 5, 10)
    assert partition(found).isr == (1, 2)
    assert partition(found).eligible_leader_replicas == (), "enough are in sync"
    shrunk, _ = altered(found, proposal([(1, 101)], partition_epoch=10))
    assert partition(shrunk).eligible_leader_replicas == (2,)
    assert partition(shrunk).leader_epoch == 5


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (proposal([(1, 101)], leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (proposal([(1, 101)], leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (proposal([(1, 101)], partition_epoch=10), ErrorCode.NOT_CONTROLLER),
        (proposal([(1, 101)], partition_epoch=8), ErrorCode.INVALID_UPDATE_VERSION),
        (proposal([(2, 102)], broker=2), ErrorCode.INVALID_REQUEST),
        (proposal([(2, 102)]), ErrorCode.INVALID_REQUEST),
        (proposal([(1, 101), (7, 1)]), ErrorCode.INVALID_REQUEST),
        (proposal([]), ErrorCode.INVALID_REQUEST),
        (proposal([(1, 101), (2, 99)]), ErrorCode.INELIGIBLE_REPLICA),
        (proposal([(1, 101)], partition_index=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_proposals_that_do_not_count(request_: AlterPartitionRequest, code: ErrorCode) -> None:
    image = cluster([1, 3], 1)
    found, answer = altered(image, request_)
    assert answer.error_code == code
    assert partition(found) == partition(image)


def test_a_leader_gives_up_by_an_isr_without_itself() -> None:
    image = cluster([1, 3], 1)
    found, answer = altered(image, proposal([(3, 103)]))
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert (partition(found).leader, partition(found).isr) == (3, (3,))
    assert partition(found).leader_epoch == 6


def test_a_leader_that_gives_up_stays_eligible_if_too_few_are_left() -> None:
    found, _ = altered(cluster([1, 3], 1, minimum=2), proposal([(3, 103)]))
    assert (partition(found).isr, partition(found).eligible_leader_replicas) == ((3,), (1,))


def test_no_unclean_election_follows_if_a_leader_gives_up() -> None:
    """Replica 3 is in sync, but its data folder is lost."""
    image = cluster([1, 3], 1)
    lost = replace(image.brokers[3], log_dirs=(b"another folder..",))
    image = replace(image, brokers={**image.brokers, 3: lost})
    found, answer = altered(image, proposal([(3, 103)]))
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert partition(found) == partition(image)


def test_nobody_who_is_fenced_or_stops_joins_the_isr() -> None:
    image = cluster([1], 1)
    fenced = after(image, fence(image, 2, 1))
    _, answer = altered(fenced, proposal([(1, 101), (2, 102)]))
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
    with pytest.raises(KafkaError) as refusal:
        altered(image, proposal([(1, 101)], epoch=7))
    assert refusal.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_a_change_that_completes_a_reassignment_may_depose_its_own_leader() -> None:
    image = cluster([1, 2], 1, removing_replicas=[1], adding_replicas=[3])
    found, answer = altered(image, proposal([(1, 101), (2, 102), (3, 103)]))
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert (partition(found).replicas, partition(found).leader) == ((2, 3), 2)
    assert partition(found).adding_replicas == partition(found).removing_replicas == ()


# Balance, folders, placement


def test_preferred_leaders_get_back_what_they_led() -> None:
    image = cluster([1, 2, 3], 2)
    balanced = after(image, balance_leaders(image, 1))
    assert partition(balanced).leader == 1
    assert balance_leaders(balanced, 1) == []
    away = cluster([2, 3], 2)
    assert balance_leaders(away, 1) == [], "it is not in sync"


def with_two_folders(image: MetadataImage) -> MetadataImage:
    folders = [FOLDER[1], FOLDER[9]]
    broker = RegisterBrokerRecord(broker_id=1, broker_epoch=101, log_dirs=folders, fenced=False)
    return after(image, [broker])


def test_replicas_in_a_folder_that_fails_are_led_by_others() -> None:
    image = with_two_folders(cluster([1, 2, 3], 1))
    failed = after(image, directories_failed(image, image.brokers[1], [FOLDER[1]], 1))
    assert (partition(failed).leader, partition(failed).isr) == (2, (2, 3))
    assert failed.brokers[1].log_dirs == (FOLDER[9],) and not failed.brokers[1].fenced
    assert list(directories_failed(failed, failed.brokers[1], [FOLDER[1]], 1)) == []


def assigned(image: MetadataImage, directory: bytes, index: int = 0) -> tuple[MetadataImage, int]:
    topic = AssignedTopic(TOPIC, [AssignedPartition(index)])
    request = AssignReplicasToDirsRequest(1, 101, [RequestDirectoryData(directory, [topic])])
    decision = assign_replicas(image, request, 1)
    code = decision.response.directories[0].topics[0].partitions[0].error_code
    return after(image, decision.records), code


def test_a_broker_says_where_it_has_put_a_replica() -> None:
    image = with_two_folders(cluster([1, 2, 3], 1))
    found, code = assigned(image, FOLDER[9])
    assert code == ErrorCode.NONE
    assert partition(found).directories == (FOLDER[9], FOLDER[2], FOLDER[3])
    assert partition(found).leader == 1
    lost, _ = assigned(image, LOST_DIRECTORY)
    assert (partition(lost).leader, partition(lost).isr) == (2, (2, 3))
    assert assigned(image, FOLDER[9], index=5)[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def brokers_in(racks: dict[int, str | None], fenced: tuple[int, ...] = ()) -> Any:
    records = [
        RegisterBrokerRecord(broker_id=b, rack=rack, fenced=b in fenced)
        for b, rack in racks.items()
    ]
    return after(MetadataImage(cluster_id="c"), records).brokers


def test_replicas_are_spread_over_racks_and_leaders_over_brokers() -> None:
    brokers = brokers_in({1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"})
    racks = {b: broker.rack for b, broker in brokers.items()}
    placed = place(brokers, partitions=600, replication_factor=3, seed=7)
    assert all(len({racks[replica] for replica in replicas}) == 3 for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {100}
    after_a_death = Counter(replicas[1] for replicas in placed if replicas[0] == 1)
    assert len(after_a_death) >= 3, "its load goes to several others"


def test_without_racks_the_replicas_of_each_partition_differ() -> None:
    brokers = brokers_in({1: None, 2: None, 3: None, 4: None})
    placed = place(brokers, partitions=40, replication_factor=3, seed=3)
    assert all(len(set(replicas)) == 3 for replicas in placed)
    assert Counter(replicas[0] for replicas in placed) == {1: 10, 2: 10, 3: 10, 4: 10}


def test_fenced_brokers_never_lead_and_are_taken_last() -> None:
    brokers = brokers_in({1: None, 2: None, 3: None}, fenced=(2,))
    for replicas in place(brokers, partitions=9, replication_factor=3, seed=5):
        assert replicas[2] == 2
    with pytest.raises(KafkaError) as refusal:
        place(brokers, partitions=1, replication_factor=4, seed=5)
    assert refusal.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(KafkaError):
        place(brokers_in({1: None}, fenced=(1,)), partitions=1, replication_factor=1, seed=5)


def test_without_anybody_complete_a_partition_has_no_leader() -> None:
    image = cluster([1], 1, minimum=2)
    gone = after(image, fence(image, 1, 1))
    assert partition(gone).leader == NO_LEADER, "2 and 3 are alive and not eligible"
    assert partition(gone).eligible_leader_replicas == (1,)
    unclean = after(image, [ConfigRecord(2, "t", "unclean.leader.election.enable", "true")])
    risky = partition(after(unclean, fence(unclean, 1, 1)))
    assert (risky.leader, risky.isr, risky.leader_recovery_state) == (2, (2,), 1)
