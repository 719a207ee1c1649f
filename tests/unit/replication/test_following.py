"""A follower and what it is told: records, where its log parts from the leader's, refusals."""

from __future__ import annotations

import pytest

from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.replication.partition_follower import FollowerRole
from headrace.replication.replica_fetcher import ReplicaFetcher
from tests.unit.replication.a_replica import TOPIC_ID, WALL_MS, Stage, a_partition


def role(stage: Stage, broker_id: int) -> FollowerRole:
    following = stage[broker_id].following
    assert following is not None
    return following


def test_a_batch_that_the_limit_cut_in_the_middle_is_fetched_again() -> None:
    stage = Stage()
    for value in (b"a", b"b", b"c"):
        stage.produce(1, value)
    position = role(stage, 2).fetch_position(0, 0)
    assert position is not None
    size = len(stage.answer(2, position).records or b"")
    stage.fetch(2, max_bytes=size - 1)
    assert stage.values(2) == [b"a", b"b"]
    stage.fetch(2)
    assert stage.values(2) == [b"a", b"b", b"c"]


def test_a_deposed_leader_cuts_what_it_alone_had() -> None:
    stage = Stage()
    stage.produce(1, b"a")
    for follower in (2, 3, 2, 3):
        stage.fetch(follower)
    stage.produce(1, b"lost")
    stage.follow(a_partition(2, 1), 2, 3)
    stage.produce(2, b"b")
    stage.follow(a_partition(2, 1), 1)
    answer = stage.fetch(1, leader=2)
    assert answer.diverging_epoch is not None
    assert stage.values(1) == [b"a"]
    stage.fetch(1, leader=2)
    assert stage.values(1) == stage.values(2) == [b"a", b"b"]
    assert stage[1].log.epochs.entries == stage[2].log.epochs.entries == [(0, 0), (1, 1)]


def test_two_logs_with_several_epochs_apart_agree_step_by_step() -> None:
    """KIP-279: the leader has an epoch that the follower has not, and the other way round."""
    stage = Stage(isr=(1,))
    for replica in stage.replicas.values():
        replica.require_in_sync(1)
    stage.produce(1, b"a")
    stage.fetch(2), stage.fetch(3)
    stage.follow(a_partition(1, 2, isr=(1,)), 1)
    stage.produce(1, b"of epoch 2")
    stage.follow(a_partition(2, 3, isr=(2,)), 2, 3)
    stage.produce(2, b"of epoch 3")
    stage.follow(a_partition(1, 4, isr=(1,)), 1)
    stage.produce(1, b"of epoch 4")
    stage.follow(a_partition(2, 5, isr=(2,)), 2, 1)
    stage.produce(2, b"of epoch 5")
    for _ in range(5):
        stage.fetch(1, leader=2)
    assert stage.values(1) == stage.values(2) == [b"a", b"of epoch 3", b"of epoch 5"]


def test_an_epoch_without_records_is_forgotten_by_who_began_it_in_vain() -> None:
    stage = Stage()
    stage.produce(1, b"a")
    for follower in (2, 3, 2, 3):
        stage.fetch(follower)
    stage.follow(a_partition(2, 1), 2)  # and nobody follows
    stage.follow(a_partition(1, 2))
    stage.produce(1, b"b")
    for _ in range(3):
        stage.fetch(2)
    assert stage.values(2) == [b"a", b"b"]
    assert stage[2].log.epochs.entries == [(0, 0), (2, 1)]


def test_answers_of_another_time_are_left_alone() -> None:
    stage = Stage()
    stage.produce(1, b"a")
    position = role(stage, 2).fetch_position(0, 0)
    assert position is not None
    answer = stage.answer(2, position)
    role(stage, 2).take(position, answer, 0, WALL_MS)
    role(stage, 2).take(position, answer, 0, WALL_MS)
    assert stage.values(2) == [b"a"]
    stage.follow(a_partition(3, 1))
    role(stage, 2).take(position._replace(offset=1), answer, 0, WALL_MS)
    assert stage.values(2) == [b"a"]


def test_a_damaged_batch_from_the_leader_is_not_appended_and_asked_for_again() -> None:
    stage = Stage()
    stage.produce(1, b"a")
    position = role(stage, 2).fetch_position(0, 0)
    assert position is not None
    answer = stage.answer(2, position)
    damaged = bytearray(bytes(answer.records or b""))
    damaged[-1] ^= 1
    answer.records = bytes(damaged)
    role(stage, 2).take(position, answer, stage.now_ms, WALL_MS)
    assert stage.values(2) == []
    assert role(stage, 2).fetch_position(stage.now_ms, 0) is None, "after a while"
    stage.now_ms += 1_000
    stage.fetch(2)
    assert stage.values(2) == [b"a"]


def test_the_start_of_the_log_follows_the_leaders() -> None:
    stage = Stage()
    stage.produce(1, b"a", b"b")
    stage.produce(1, b"c")
    for follower in (2, 3, 2, 3):
        stage.fetch(follower)
    stage[1].log.delete_records_before(2)
    stage.fetch(2)
    assert stage[2].log.start_offset == 2


def test_damage_is_repaired_when_nobody_counts_on_the_replica_any_more() -> None:
    stage = Stage()
    for value in (b"a", b"b", b"c"):
        stage.produce(1, value)
    for follower in (2, 3, 2, 3, 2):
        stage.fetch(follower)
    role(stage, 2).damaged_from(1)
    position = role(stage, 2).fetch_position(stage.now_ms, 0)
    assert position is not None and position.offset == 1, "it says what it can read"
    stage.answer(2, position)
    leading = stage[1].leading
    assert leading is not None and leading.proposal is not None
    assert [member for member, _ in leading.proposal.isr] == [1, 3], "it lacks what is committed"
    assert stage.values(2) == [b"a", b"b", b"c"], "it may be elected, and is kept as it is"
    assert role(stage, 2).fetch_position(stage.now_ms, 0) is None, "after a while it says so again"
    stage.now_ms += 1_000
    out = stage.metadata._replace(isr=(1,), eligible_leader_replicas=(2,), partition_epoch=1)
    stage.follow(out)
    position = role(stage, 2).fetch_position(stage.now_ms, 0)
    assert position is not None and position.offset == 3, "too few are in sync to do without it"
    stage.follow(out._replace(isr=(1, 3), eligible_leader_replicas=(), partition_epoch=2))
    assert leading.proposal is None
    position = role(stage, 2).fetch_position(stage.now_ms, 0)
    assert position is not None and position.offset == 1
    assert stage.values(2) == [b"a", b"b", b"c"], "the leader does not know yet what it lacks"
    role(stage, 2).take(position, stage.answer(2, position), stage.now_ms, 0)
    assert stage.values(2) == [b"a"]
    stage.fetch(2)
    assert stage.values(2) == [b"a", b"b", b"c"]


def test_damage_is_kept_while_the_leader_may_count_on_the_replica() -> None:
    """It was proposed for the ISR by what it had; the metadata do not say so yet."""
    stage = Stage()
    for value in (b"a", b"b", b"c"):
        stage.produce(1, value)
    for follower in (2, 3, 2, 3):
        stage.fetch(follower)
    stage.follow(stage.metadata._replace(isr=(1, 3), partition_epoch=1))
    stage.fetch(2)
    leading = stage[1].leading
    assert leading is not None and leading.joining == 2
    role(stage, 2).damaged_from(1)
    position = role(stage, 2).fetch_position(stage.now_ms, 0)
    assert position is not None and position.offset == 1
    role(stage, 2).take(position, stage.answer(2, position), stage.now_ms, 0)
    assert stage.values(2) == [b"a", b"b", b"c"]


# The fetcher


def a_fetcher(stage: Stage, broker_id: int = 2, leader: int = 1) -> ReplicaFetcher:
    fetcher = ReplicaFetcher(stage[broker_id].broker, leader)
    fetcher.add(stage[broker_id])
    return fetcher


def next_fetch(fetcher: ReplicaFetcher, now_ms: int = 1_000) -> FetchRequest:
    request = fetcher.next_request(now_ms, WALL_MS)
    assert isinstance(request, FetchRequest)
    return request


def answer_with(*answers: PartitionData, session: int = 7, code: int = 0) -> FetchResponse:
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(answers))
    return FetchResponse(0, code, session, [topic])


def test_a_session_names_only_what_has_changed() -> None:
    stage = Stage()
    stage.produce(1, b"a")
    fetcher = a_fetcher(stage)
    first = next_fetch(fetcher)
    assert first.replica_state is not None
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (2, 200)
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert fetcher.next_request(1_000, WALL_MS) is None, "one at a time"
    [asked] = first.topics[0].partitions
    assert (asked.fetch_offset, asked.current_leader_epoch, asked.last_fetched_epoch) == (0, 0, -1)
    position = role(stage, 2).fetch_position(0, 0)
    assert position is not None
    fetcher.answered(answer_with(stage.answer(2, position)), 1_000, WALL_MS)
    second = next_fetch(fetcher)
    assert (second.session_id, second.session_epoch) == (7, 1)
    assert second.topics[0].partitions[0].fetch_offset == 1
    fetcher.answered(answer_with(), 1_000, WALL_MS)
    third = next_fetch(fetcher)
    assert (third.session_epoch, third.topics) == (2, [])
    fetcher.answered(answer_with(), 1_000, WALL_MS)
    fetcher.add(stage[3])
    fetcher.replicas.clear()
    assert fetcher.next_request(1_000, WALL_MS) is None


@pytest.mark.parametrize("how", ["unknown session", "no answer"])
def test_a_session_that_is_gone_is_opened_again(how: str) -> None:
    stage = Stage()
    fetcher = a_fetcher(stage)
    next_fetch(fetcher)
    fetcher.answered(answer_with(), 1_000, WALL_MS)
    next_fetch(fetcher)
    if how == "no answer":
        fetcher.failed(1_000)
        assert fetcher.next_request(1_000, WALL_MS) is None, "after a while"
    else:
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        fetcher.answered(answer_with(code=code), 1_000, WALL_MS)
    again = next_fetch(fetcher, 3_000)
    assert (again.session_id, again.session_epoch, len(again.topics)) == (0, 0, 1)


def test_a_fenced_epoch_waits_for_the_metadata() -> None:
    stage = Stage()
    fetcher = a_fetcher(stage)
    next_fetch(fetcher)
    refused = PartitionData(0, ErrorCode.FENCED_LEADER_EPOCH, -1, -1, -1)
    fetcher.answered(answer_with(refused), 1_000, WALL_MS)
    assert fetcher.next_request(1_000_000, WALL_MS) is None
    stage.follow(a_partition(1, 1))
    next_fetch(fetcher)


def test_a_log_that_ends_before_the_leaders_begins_is_filled_from_there() -> None:
    stage = Stage(isr=(1, 3))
    for value in (b"a", b"b", b"c"):
        stage.produce(1, value)
    for follower in (3, 3):
        stage.fetch(follower)
    stage.fetch(2, max_bytes=1)
    stage[1].log.delete_records_before(2)
    position = role(stage, 2).fetch_position(stage.now_ms, 0)
    assert position is not None and position.offset == 1
    with pytest.raises(KafkaError) as refusal:
        stage.answer(2, position)
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    fetcher = a_fetcher(stage)
    next_fetch(fetcher)
    refused = PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, -1)
    fetcher.answered(answer_with(refused), 1_000, WALL_MS)
    for timestamp, offset in ((-1, 3), (-2, 2)):
        question = fetcher.next_request(1_000, WALL_MS)
        assert isinstance(question, ListOffsetsRequest) and question.replica_id == 2
        [asked] = question.topics[0].partitions
        assert (asked.timestamp, asked.current_leader_epoch) == (timestamp, 0)
        said = ListOffsetsPartitionResponse(0, offset=offset)
        fetcher.bounds_answered(
            ListOffsetsResponse(topics=[ListOffsetsTopicResponse("orders", [said])]),
            1_000,
            WALL_MS,
        )
    assert (stage[2].log.start_offset, stage[2].log.end_offset) == (2, 2)
    stage.fetch(2)
    assert stage.values(2) == [b"c"]
