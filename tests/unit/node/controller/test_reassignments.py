"""Replicas go to other brokers, and leaders are elected by hand: decided for clusters of many."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.node.controller.members.brokers import fence
from headrace.node.controller.partitions.partition_changes import (
    Election,
    as_it_is,
    elected,
    partition_change,
)
from headrace.node.controller.partitions.partition_elections import broker_leaves, elect_leaders
from headrace.node.controller.partitions.reassignments import (
    Rules,
    alter_reassignments,
    list_reassignments,
)
from headrace.node.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.protocol.messages.config_record import ConfigRecord
from headrace.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from headrace.wire.protocol.messages.feature_level_record import FeatureLevelRecord
from headrace.wire.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsTopics,
)
from headrace.wire.protocol.messages.partition_change_record import PartitionChangeRecord
from headrace.wire.protocol.messages.partition_record import PartitionRecord
from headrace.wire.protocol.messages.register_broker_record import RegisterBrokerRecord
from headrace.wire.protocol.messages.topic_record import TopicRecord

TOPIC = b"topic".ljust(16)
FOLDER = {broker: bytes([broker]) * 16 for broker in range(1, 6)}


def after(image: MetadataImage, records: Any) -> MetadataImage:
    return image.apply(list(records), offset=image.offset + 1, epoch=1, wall_ms=0)


def cluster(
    replicas: list[int],
    isr: list[int],
    leader: int,
    *,
    dead: tuple[int, ...] = (),
    elr_version: int = 1,
    **fields: Any,
) -> MetadataImage:
    brokers = [
        RegisterBrokerRecord(
            broker_id=broker, broker_epoch=1, fenced=broker in dead, log_dirs=[FOLDER[broker]]
        )
        for broker in FOLDER
    ]
    partition = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=5,
        partition_epoch=9,
        directories=[FOLDER[replica] for replica in replicas],
        **fields,
    )
    levels = FeatureLevelRecord("eligible.leader.replicas.version", elr_version)
    return after(
        MetadataImage(cluster_id="test"), [levels, *brokers, TopicRecord("t", TOPIC), partition]
    )


def partition(image: MetadataImage) -> PartitionImage:
    return image.topics["t"].partitions[0]


def reassign(
    image: MetadataImage, replicas: list[int] | None, *, any_number: bool = True
) -> tuple[MetadataImage, int]:
    topic = ReassignableTopic("t", [ReassignablePartition(0, replicas)])
    request = AlterPartitionReassignmentsRequest(1_000, any_number, [topic])
    decision = alter_reassignments(image, request, Rules())
    [answer] = decision.response.responses
    return after(image, decision.records), answer.partitions[0].error_code


def in_sync(image: MetadataImage, isr: list[int]) -> MetadataImage:
    """What the change of an ISR will ask for once there are followers."""
    wanted = as_it_is(partition(image))
    wanted.isr = isr
    record = partition_change(image, image.topics["t"], 0, wanted, min_in_sync_replicas=1)
    return after(image, [record] if record else [])


def elect(image: MetadataImage, kind: int = 0) -> tuple[MetadataImage, int]:
    request = ElectLeadersRequest(kind, [TopicPartitions("t", [0])], 1_000)
    decision = elect_leaders(image, request, 1)
    [answer] = decision.response.replica_election_results
    return after(image, decision.records), answer.partition_result[0].error_code


# ---- reassignments ------------------------------------------------------------------------------


def test_new_replicas_stand_beside_the_old_ones_until_they_are_in_sync() -> None:
    image, code = reassign(cluster([1, 2], [1, 2], 1), [3, 4])
    assert code == 0
    under_way = partition(image)
    assert under_way.replicas == (3, 4, 1, 2)
    assert (under_way.adding_replicas, under_way.removing_replicas) == ((3, 4), (1, 2))
    assert under_way.directories == tuple(FOLDER[b] for b in (3, 4, 1, 2))
    assert (under_way.leader, under_way.leader_epoch) == (1, 5), "readers notice nothing yet"

    half = partition(image := in_sync(image, [1, 2, 3]))
    assert half.adding_replicas == (3, 4), "one of the new ones is not in sync"

    done = partition(in_sync(image, [1, 2, 3, 4]))
    assert (done.replicas, done.isr) == ((3, 4), (3, 4))
    assert (done.adding_replicas, done.removing_replicas) == ((), ())
    assert done.directories == (FOLDER[3], FOLDER[4])
    assert (done.leader, done.leader_epoch) == (3, 6)


def test_a_replica_that_only_goes_is_gone_at_once_and_the_epoch_grows() -> None:
    image, code = reassign(cluster([1, 2, 3], [1, 2, 3], 1), [1, 2])
    done = partition(image)
    assert code == 0
    assert (done.replicas, done.isr, done.removing_replicas) == ((1, 2), (1, 2), ())
    assert (done.leader, done.leader_epoch) == (1, 6), "the fetches of broker 3 must be refused"


def test_another_order_of_the_same_replicas_moves_no_leader() -> None:
    image, code = reassign(cluster([1, 2], [1, 2], 1), [2, 1])
    assert code == 0
    assert (partition(image).replicas, partition(image).leader) == ((2, 1), 1)
    assert partition(image).directories == (FOLDER[2], FOLDER[1])
    elected_image, code = elect(image)
    assert (code, partition(elected_image).leader) == (0, 2)


def test_to_where_it_is_changes_nothing() -> None:
    image = cluster([1, 2], [1, 2], 1)
    assert reassign(image, [1, 2]) == (after(image, []), 0)


def test_what_is_under_way_can_be_cancelled() -> None:
    before = cluster([1, 2], [1, 2], 1)
    under_way = in_sync(reassign(before, [3, 2])[0], [1, 2, 3])
    # Broker 3 is in sync, so all who stay are: the reassignment is over.
    assert partition(under_way).replicas == (3, 2)

    under_way, _ = reassign(before, [3, 4])
    under_way = in_sync(under_way, [1, 2, 3])
    cancelled, code = reassign(under_way, None)
    now = partition(cancelled)
    assert code == 0
    assert (now.replicas, now.isr, now.leader) == ((1, 2), (1, 2), 1)
    assert (now.adding_replicas, now.removing_replicas) == ((), ())
    assert reassign(cancelled, None)[1] == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_cancellation_that_would_lose_records_is_refused_unless_the_topic_allows_it() -> None:
    image = cluster(
        [3, 1], [3], 3, adding_replicas=[3], removing_replicas=[1]
    )  # the old replica has fallen behind
    assert reassign(image, None)[1] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    allowed = after(image, [ConfigRecord(2, "t", "unclean.leader.election.enable", "true")])
    cancelled, code = reassign(allowed, None)
    assert (code, partition(cancelled).replicas, partition(cancelled).leader) == (0, (1,), 1)


def test_a_plan_is_replaced_by_another() -> None:
    image, _ = reassign(cluster([1, 2], [1, 2], 1), [3, 2])
    image, code = reassign(image, [4, 2])
    now = partition(image)
    assert code == 0
    assert now.replicas == (4, 2, 1, 3) and now.adding_replicas == (4,)
    assert now.removing_replicas == (1, 3)
    image, _ = reassign(image, [1, 2])
    assert partition(image).replicas == (1, 2), "back to where it was: nobody has to catch up"
    assert not partition(image).adding_replicas and not partition(image).removing_replicas


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 77], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1], ErrorCode.INVALID_REPLICATION_FACTOR),
        ([1, 2, 3], ErrorCode.INVALID_REPLICATION_FACTOR),
        ([1, 3], ErrorCode.NONE),
    ],
)
def test_bad_targets_change_nothing(target: list[int], code: ErrorCode) -> None:
    image = cluster([1, 2], [1, 2], 1)
    changed, answered = reassign(image, target, any_number=False)
    assert answered == code
    assert (changed.topics == image.topics) is (code != ErrorCode.NONE)


def test_the_list_tells_what_is_under_way_and_nothing_else() -> None:
    still = cluster([1, 2], [1, 2], 1)
    image, _ = reassign(still, [3, 2])
    assert list_reassignments(still, None) == []
    asked = ListPartitionReassignmentsTopics
    for topics in (None, [asked("t", [0, 0, 7, -1]), asked("never-was", [0]), asked("t", [0])]):
        [topic] = list_reassignments(image, topics)
        [found] = topic.partitions
        assert (topic.name, found.partition_index) == ("t", 0)
        assert found.replicas == [3, 2, 1]
        assert (found.adding_replicas, found.removing_replicas) == ([3], [1])


# ---- elections ----------------------------------------------------------------------------------


def test_the_first_replica_leads_again_when_it_is_in_sync() -> None:
    image, code = elect(cluster([1, 2, 3], [1, 2, 3], 2))
    assert (code, partition(image).leader, partition(image).leader_epoch) == (0, 1, 6)
    assert elect(image)[1] == ErrorCode.ELECTION_NOT_NEEDED


@pytest.mark.parametrize("dead", [(), (1,)])
def test_a_first_replica_that_lacks_records_does_not_lead(dead: tuple[int, ...]) -> None:
    isr = [2, 3] if not dead else [1, 2, 3]
    image = cluster([1, 2, 3], isr, 2, dead=dead)
    changed, code = elect(image)
    assert code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert changed.topics == image.topics


def test_a_replica_in_a_lost_folder_does_not_lead() -> None:
    image = cluster([1, 2], [1, 2], 2)
    lost = partition(image)._replace(directories=(bytes(15) + b"\x02", FOLDER[2]))
    topic = image.topics["t"]._replace(partitions=(lost,))
    wanted = as_it_is(lost)
    record = partition_change(
        image, topic, 0, wanted, min_in_sync_replicas=1, election=Election.PREFERRED
    )
    assert record is None


def test_an_unclean_election_is_only_for_partitions_without_a_leader() -> None:
    assert elect(cluster([1, 2], [1, 2], 1), 1)[1] == ErrorCode.ELECTION_NOT_NEEDED
    image = cluster([1, 2, 3], [1], NO_LEADER, dead=(1,))
    changed, code = elect(image, 1)
    now = partition(changed)
    assert (code, now.leader, now.isr) == (0, 2, (2,))
    assert now.leader_recovery_state == 1, "whoever reads the image knows that records may lack"
    nobody = cluster([1, 2], [1], NO_LEADER, dead=(1, 2))
    assert elect(nobody, 1)[1] == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_who_is_no_replica_any_more_is_not_eligible() -> None:
    """Its log is gone: if it became a replica again it could be elected with an empty one."""
    image = cluster([1, 2, 3], [1, 2, 3], 1)
    image = after(image, [ConfigRecord(2, "t", "min.insync.replicas", "2")])
    image, code = reassign(image, [1])
    now = partition(image)
    assert (code, now.replicas, now.isr) == (ErrorCode.NONE, (1,), (1,))
    assert now.eligible_leader_replicas == ()


def test_an_eligible_replica_is_elected_cleanly() -> None:
    image = cluster([1, 2], [], NO_LEADER, dead=(1,), eligible_leader_replicas=[1, 2])
    changed, code = elect(image, 1)
    now = partition(changed)
    assert (code, now.leader, now.isr) == (0, 2, (2,))
    assert (now.eligible_leader_replicas, now.leader_recovery_state) == ((1,), 0)


def test_a_kind_of_election_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        elect(cluster([1], [1], 1), 2)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_of_all_partitions_only_those_are_told_that_were_worth_it() -> None:
    request = ElectLeadersRequest(0, None, 1_000)
    quiet = elect_leaders(cluster([1, 2], [1, 2], 1), request, 1)
    assert [topic.partition_result for topic in quiet.response.replica_election_results] == [[]]
    busy = elect_leaders(cluster([1, 2], [1, 2], 2), request, 1)
    assert len(busy.records) == 1
    [topic] = busy.response.replica_election_results
    assert [one.error_code for one in topic.partition_result] == [0]


# ---- one rule for all changes -------------------------------------------------------------------

BROKERS = st.permutations([1, 2, 3])


@given(
    replicas=BROKERS,
    isr=st.sets(st.sampled_from([1, 2, 3]), min_size=1),
    leaves=st.sampled_from([1, 2, 3]),
    minimum=st.integers(1, 3),
    elr_version=st.integers(0, 1),
    data=st.data(),
)
def test_a_broker_that_leaves_changes_a_partition_as_the_general_rule_says(
    replicas: list[int],
    isr: set[int],
    leaves: int,
    minimum: int,
    elr_version: int,
    data: st.DataObject,
) -> None:
    """`broker_leaves` goes through all partitions of a broker by a shorter way."""
    in_order = [replica for replica in replicas if replica in isr]
    leader = data.draw(st.sampled_from(in_order))
    image = cluster(replicas, in_order, leader, elr_version=elr_version)
    image = after(image, [ConfigRecord(2, "t", "min.insync.replicas", str(minimum))])
    short = partition(after(image, broker_leaves(image, leaves, 1)))

    records = fence(image, leaves, 1)
    fenced = after(image, [r for r in records if not isinstance(r, PartitionChangeRecord)])
    wanted = as_it_is(partition(image))
    if leaves in isr:
        wanted.isr = [replica for replica in in_order if replica != leaves]
    record = partition_change(fenced, fenced.topics["t"], 0, wanted, min_in_sync_replicas=1)
    general = partition(after(fenced, [record] if record else []))
    assert short._replace(partition_epoch=0) == general._replace(partition_epoch=0)


def test_nobody_is_elected_who_is_not_there() -> None:
    wanted = as_it_is(partition(cluster([1, 2], [1, 2], 1)))
    for election in Election:
        assert elected(wanted, (), lambda replica: False, election) == (NO_LEADER, False)
