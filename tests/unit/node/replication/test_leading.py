"""A leader and its followers: who is in sync, what is committed, what producers are told."""

from __future__ import annotations

import pytest

from headrace.node.replication.partition_follower import Position
from headrace.node.replication.read_replica import preferred_read_replica
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from tests.unit.node.replication.a_replica import LAG_MS, TOPIC_ID, Stage, a_broker, a_partition


def proposed(stage: Stage, leader: int = 1) -> AlterPartitionRequest | None:
    broker = stage[leader].broker
    return broker.isr_changes.next_request(broker.id, broker.epoch, stage.now_ms)


def answered(stage: Stage, code: int = 0, *, isr: tuple[int, ...] = (), epoch: int = 0) -> None:
    answer = ResponsePartitionData(
        0, code, leader_id=1, leader_epoch=0, isr=list(isr), partition_epoch=epoch
    )
    response = AlterPartitionResponse(topics=[ResponseTopicData(TOPIC_ID, [answer])])
    stage[1].broker.isr_changes.answered(response, stage.now_ms)


def test_acks_all_waits_until_all_in_sync_replicas_have_fetched() -> None:
    stage = Stage()
    wait = stage.produce(1, b"a")
    assert stage[1].outcome_of(*wait) is None
    stage.fetch(2), stage.fetch(3)  # they get it, and have not said that they have it
    assert stage[1].high_watermark == 0
    stage.fetch(2)
    assert stage[1].outcome_of(*wait) is None, "broker 3 is in sync and may lack it"
    stage.fetch(3)
    assert stage[1].outcome_of(*wait) is ErrorCode.NONE
    assert stage[2].high_watermark == 0, "a follower learns of it with its next fetch"
    stage.fetch(2)
    assert stage[2].high_watermark == 1


def test_a_follower_that_stalls_leaves_the_isr_when_the_controller_agrees() -> None:
    stage = Stage()
    wait = stage.produce(1, b"a")
    stage.fetch(2), stage.fetch(2)
    stage.now_ms += LAG_MS + 1
    stage.fetch(2)
    stage[1].tick(stage.now_ms)
    request = proposed(stage)
    assert request is not None
    [partition] = request.topics[0].partitions
    isr = [(m.broker_id, m.broker_epoch) for m in partition.new_isr_with_epochs]
    assert isr == [(1, 100), (2, 200)]
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert stage[1].outcome_of(*wait) is None, "it may still be elected"
    stage[1].tick(stage.now_ms)
    assert proposed(stage) is None, "one proposal at a time"
    answered(stage, isr=(1, 2), epoch=1)
    assert stage[1].outcome_of(*wait) is ErrorCode.NONE


def test_a_partition_where_nothing_happens_needs_no_fetches_to_stay_in_sync() -> None:
    stage = Stage()
    stage.fetch(2), stage.fetch(3)
    stage.now_ms += 10 * LAG_MS
    stage[1].tick(stage.now_ms)
    stage.now_ms += LAG_MS // 2
    stage.produce(1, b"a")
    stage[1].tick(stage.now_ms)
    assert proposed(stage) is None


def test_a_follower_joins_at_the_high_watermark_and_is_waited_for_at_once() -> None:
    stage = Stage(isr=(1, 2))
    stage.produce(1, b"a", b"b")
    for follower in (2, 2, 3):
        stage.fetch(follower)
    assert stage[1].high_watermark == 2 and proposed(stage) is None
    stage.fetch(3)
    request = proposed(stage)
    assert request is not None
    members = request.topics[0].partitions[0].new_isr_with_epochs
    assert [(m.broker_id, m.broker_epoch) for m in members] == [(1, 100), (2, 200), (3, 300)]
    wait = stage.produce(1, b"c")
    stage.fetch(2), stage.fetch(2)
    assert stage[1].outcome_of(*wait) is None, "the controller may have agreed by now"
    answered(stage, ErrorCode.INELIGIBLE_REPLICA)
    stage.now_ms += LAG_MS + 1
    stage[1].tick(stage.now_ms)
    assert stage[1].outcome_of(*wait) is ErrorCode.NONE, "it did not, and broker 3 lags"


def test_metadata_that_say_no_more_than_an_answer_end_no_proposal() -> None:
    stage = Stage(isr=(1,))
    stage.fetch(2)
    assert proposed(stage) is not None
    answered(stage, isr=(1, 2), epoch=1)
    stage.fetch(3)
    assert proposed(stage) is not None, "broker 3 is to join too"
    stage.follow(a_partition(isr=(1, 2), partition_epoch=1), 1)
    wait = stage.produce(1, b"a")
    stage.fetch(2), stage.fetch(2)
    stage.now_ms += LAG_MS + 1
    stage.fetch(2)
    assert stage[1].outcome_of(*wait) is None, "the controller may have let broker 3 in by now"
    answered(stage, isr=(1, 2, 3), epoch=2)
    assert stage[1].outcome_of(*wait) is None
    stage.fetch(3), stage.fetch(3)
    assert stage[1].outcome_of(*wait) is ErrorCode.NONE


def test_a_leader_that_missed_another_leader_asks_its_followers_anew() -> None:
    """Its metadata come late: it was deposed and elected again before it heard of either."""
    stage = Stage()
    wait = stage.produce(1, b"a")
    stage.fetch(2), stage.fetch(2)
    stage.follow(a_partition(3, 1), 2, 3)
    stage.fetch(2, leader=3)
    assert stage.values(2) == [], "broker 3 never had it"
    stage.follow(a_partition(1, 2, isr=(1, 2)))
    assert stage[1].outcome_of(*wait) is None, "broker 2 had it once"
    stage.fetch(2), stage.fetch(2)
    assert stage[1].outcome_of(*wait) is ErrorCode.NONE and stage.values(2) == [b"a"]


def test_nobody_joins_before_it_has_reached_the_start_of_the_epoch() -> None:
    """The new leader's high watermark lags: what lies between may be committed."""
    stage = Stage(isr=(1, 2))
    stage.produce(1, b"a", b"b")
    stage.fetch(2)
    stage.follow(a_partition(2, 1, isr=(2,)), 2, 3)
    assert stage[2].high_watermark == 0 and stage[2].log.end_offset == 2
    position = Position(0, 1, -1, 0)
    stage.answer(3, position, leader=2)
    assert proposed(stage, 2) is None, "it has what the high watermark says, and not all"
    stage.fetch(3, leader=2), stage.fetch(3, leader=2)
    assert proposed(stage, 2) is not None


@pytest.mark.parametrize("what", ["fenced", "in_controlled_shutdown"])
def test_a_broker_that_is_not_there_for_good_does_not_join(what: str) -> None:
    stage = Stage(isr=(1, 2))
    stage.brokers[3] = a_broker(3, **{what: True})
    stage.fetch(3)
    assert proposed(stage) is None


def test_a_fetch_of_an_earlier_start_of_the_broker_is_refused() -> None:
    stage = Stage(isr=(1, 2))
    stage.brokers[3] = a_broker(3, epoch=999)
    with pytest.raises(KafkaError) as refusal:
        stage.fetch(3)
    assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert proposed(stage) is None


def test_who_names_another_epoch_is_told_who_is_behind() -> None:
    stage = Stage(epoch=5)
    for epoch, code in ((4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(KafkaError) as refusal:
            stage.answer(2, Position(0, epoch, -1, 0))
        assert refusal.value.code == code
    stage.follow(a_partition(1, 6, replicas=(1, 2), isr=(1, 2)), 1)
    with pytest.raises(KafkaError) as refusal:
        stage.answer(3, Position(0, 6, -1, 0))
    assert refusal.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH, "it may know more than we do"


def test_below_the_minimum_acks_all_is_refused_and_nothing_is_shown() -> None:
    stage = Stage()
    early = stage.produce(1, b"a")
    stage.fetch(2), stage.fetch(2)
    stage.follow(stage.metadata._replace(isr=(1,), partition_epoch=1), 1)
    with pytest.raises(KafkaError) as refusal:
        stage.produce(1, b"b")
    assert refusal.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert stage[1].outcome_of(*early) is None
    assert stage[1].high_watermark == 0, "those who are eligible to lead may lack it"


def test_records_that_are_replicated_while_the_isr_shrinks_are_answered_with_a_warning() -> None:
    stage = Stage(isr=(1, 2))
    wait = stage.produce(1, b"a")
    stage.fetch(2), stage.fetch(2)
    stage.follow(stage.metadata._replace(isr=(1,), partition_epoch=1), 1)
    assert stage[1].outcome_of(*wait) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_who_waits_at_a_leader_that_is_deposed_is_refused_even_if_it_leads_again() -> None:
    stage = Stage()
    wait = stage.produce(1, b"a")
    stage.woken.clear()
    stage.follow(a_partition(2, 1))
    assert 1 in stage.woken and stage[1].outcome_of(*wait) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as refusal:
        stage[1].append(memoryview(b""), 0, acks_all=False)
    assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    stage.follow(a_partition(1, 2))
    for follower in (2, 3, 2, 3, 2):  # broker 2 has begun an epoch that nobody knows
        stage.fetch(follower)
    assert stage[1].high_watermark == 1
    assert stage[1].outcome_of(*wait) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_leader_does_not_say_where_the_log_ends_before_it_knows() -> None:
    stage = Stage()
    stage.produce(1, b"a")
    for follower in (2, 3, 2, 3):
        stage.fetch(follower)
    assert stage[1].latest_offset(committed=False) == 1
    assert stage[2].high_watermark == 0
    stage.follow(a_partition(2, 1, isr=(2, 3)), 2, 3)
    with pytest.raises(KafkaError) as refusal:
        stage[2].latest_offset(committed=False)
    assert refusal.value.code == ErrorCode.OFFSET_NOT_AVAILABLE
    stage.fetch(3, leader=2)
    assert stage[2].latest_offset(committed=False) == 1


def test_metadata_that_are_older_than_the_controllers_answer_change_nothing() -> None:
    stage = Stage(isr=(1, 2))
    stage.fetch(3)
    assert proposed(stage) is not None
    answered(stage, isr=(1, 2, 3), epoch=1)
    assert stage[1].in_sync == 3
    stage.follow(a_partition(isr=(1, 2)), 1)
    assert stage[1].in_sync == 3


@pytest.mark.parametrize(
    ("code", "again"),
    [
        (ErrorCode.NOT_CONTROLLER, True),
        (ErrorCode.INVALID_UPDATE_VERSION, False),
        (ErrorCode.FENCED_LEADER_EPOCH, False),
        (ErrorCode.INELIGIBLE_REPLICA, False),
    ],
)
def test_what_a_leader_does_with_a_refusal(code: ErrorCode, again: bool) -> None:
    stage = Stage(isr=(1, 2))
    stage.fetch(3)
    assert proposed(stage) is not None
    answered(stage, code)
    stage.now_ms += 1_000
    assert (proposed(stage) is not None) is again
    leading = stage[1].leading
    assert leading is not None
    waits = leading.maximal_isr == {1, 2, 3}
    assert waits is (code != ErrorCode.INELIGIBLE_REPLICA), "unless nothing was applied for sure"


def test_a_request_without_an_answer_is_sent_again() -> None:
    stage = Stage(isr=(1, 2))
    stage.fetch(3)
    first = proposed(stage)
    assert proposed(stage) is None
    stage[1].broker.isr_changes.answered(None, stage.now_ms)
    assert proposed(stage) is None, "after a while"
    stage.now_ms += 50
    second = proposed(stage)
    assert first is not None and second is not None
    assert second.topics[0].partitions[0].partition_epoch == 0


def test_the_only_replica_commits_at_once_and_several_never_do() -> None:
    alone = Stage(replicas=(1,), isr=(1,))
    assert alone[1].commits_at_once
    wait = alone.produce(1, b"a")
    assert alone[1].outcome_of(*wait) is ErrorCode.NONE
    assert not Stage()[1].commits_at_once


def test_where_only_the_disk_counts_followers_and_leader_wait_for_their_flushes() -> None:
    stage = Stage(durable=True, replicas=(1, 2), isr=(1, 2))
    wait = stage.produce(1, b"a")
    stage.fetch(2)
    following = stage[2].following
    assert following is not None
    assert following.fetch_position(stage.now_ms, 0) is None, "it does not say yet that it has it"
    for broker_id in (2, 1):
        assert stage[1].outcome_of(*wait) is None
        flush = stage[broker_id].flush_target()
        assert flush is not None
        stage[broker_id].flushed(flush)
        if broker_id == 2:
            stage.fetch(2)
    assert stage[1].outcome_of(*wait) is ErrorCode.NONE


def test_a_consumer_is_sent_to_the_replica_in_its_rack_that_has_its_offset() -> None:
    stage = Stage()
    stage.produce(1, b"a", b"b")
    stage.fetch(2), stage.fetch(2), stage.fetch(3)
    for broker_id, rack in ((1, "a"), (2, "b"), (3, "b")):
        stage.brokers[broker_id] = a_broker(broker_id, rack=rack)
    leading = stage[1].leading
    assert leading is not None
    assert preferred_read_replica(leading, "b", 1) == 2, "broker 3 does not have it yet"
    assert preferred_read_replica(leading, "b", 0) == 2, "it has more"
    assert preferred_read_replica(leading, "a", 0) is None, "the leader is there"
    assert preferred_read_replica(leading, "c", 0) is None
    assert preferred_read_replica(leading, "", 0) is None
    stage.brokers[2] = a_broker(2, rack="b", fenced=True)
    assert preferred_read_replica(leading, "b", 0) == 3


def test_nothing_beyond_the_end_of_the_log_is_committed() -> None:
    stage = Stage()
    stage.produce(1, b"a")
    with pytest.raises(AssertionError):
        stage[1].reach(2)
    assert stage[1].high_watermark == 0
