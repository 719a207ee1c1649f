"""A follower and what it is told: records, where its log parts from the leader's, refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.node.replication.partition_follower import FollowerRole
from headrace.node.replication.replica_fetcher import ReplicaFetcher
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.wire.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.protocol.record_batch import Record, build
from tests.unit.node.replication.a_replica import TOPIC_ID, WALL_MS, Stage, a_partition


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


def damage(stage: Stage, broker_id: int, offset: int) -> Callable[[], None]:
    """The record at `offset` is damaged, and that is known; returns how it is mended."""
    replica = stage[broker_id]
    replica.log.write_pending()
    segment = replica.log.active
    found = segment.find(offset)
    assert found is not None
    last = found[0] + found[1] - 1
    good = segment.open_file().read(1, last)
    segment.open_file().write_at(b"!", last)
    segment.look_for_damage()
    assert replica.look_for_damage()
    return lambda: segment.open_file().write_at(good, last)


def test_damage_is_repaired_when_nobody_counts_on_the_replica_any_more() -> None:
    stage = Stage()
    for value in (b"a", b"b", b"c"):
        stage.produce(1, value)
    for follower in (2, 3, 2, 3, 2):
        stage.fetch(follower)
    damage(stage, 2, 1)
    position = role(stage, 2).fetch_position(stage.now_ms, 0)
    assert position is not None and position.offset == 1, "it says what it can read"
    stage.answer(2, position)
    leading = stage[1].leading
    assert leading is not None and leading.proposal is not None
    assert [member for member, _ in leading.proposal.isr] == [1, 3], "it lacks what is committed"
    assert stage[2].log.end_offset == 3, "it may be elected, and is kept as it is"
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
    assert stage[2].log.end_offset == 3, "the leader does not know yet what it lacks"
    role(stage, 2).take(position, stage.answer(2, position), stage.now_ms, 0)
    assert stage.values(2) == [b"a"]
    stage.fetch(2)
    assert stage.values(2) == [b"a", b"b", b"c"]


def test_a_follower_that_begins_with_a_damaged_log_never_asks_from_its_end() -> None:
    """Seen: a node that had lost a segment was in sync 0.6 s after its start."""
    stage = Stage()
    for value in (b"a", b"b", b"c"):
        stage.produce(1, value)
    for follower in (2, 3, 2, 3, 2):
        stage.fetch(follower)
    damage(stage, 2, 1)
    stage.follow(stage.metadata._replace(isr=(1, 3), leader_epoch=9, partition_epoch=9))
    position = role(stage, 2).fetch_position(stage.now_ms, 0)
    assert position is not None and position.offset == 1


def test_damage_that_is_gone_when_it_is_read_again_costs_nothing() -> None:
    """Seen: a follower cut good records off below the high watermark, and fetched them again."""
    stage = Stage()
    for value in (b"a", b"b", b"c"):
        stage.produce(1, value)
    for follower in (2, 3, 2, 3, 2):
        stage.fetch(follower)
    mend = damage(stage, 2, 1)
    stage.follow(stage.metadata._replace(isr=(1, 3), partition_epoch=1))
    position = role(stage, 2).fetch_position(stage.now_ms, 0)
    assert position is not None and position.offset == 1
    mend()
    role(stage, 2).take(position, stage.answer(2, position), stage.now_ms, 0)
    assert stage.values(2) == [b"a", b"b", b"c"]
    position = role(stage, 2).fetch_position(stage.now_ms, 0)
    assert position is not None and position.offset == 3, "it goes on at its end"


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


def test_a_new_replica_follows_a_log_that_begins_within_a_batch() -> None:
    """DeleteRecords to the middle of a batch, then a reassignment: the leader has whole batches."""
    stage = Stage(isr=(1, 3))
    stage.produce(1, *(b"%d" % number for number in range(10)))
    stage.fetch(3), stage.fetch(3)
    stage[1].log.delete_records_before(5)
    find_start(stage, end=10, start=5)
    stage.fetch(2)
    assert bounds(stage, 2) == bounds(stage, 1) == (5, 10)
    assert stage.values(2) == stage.values(1)
    assert stage[2].high_watermark == 10
    assert stage[2].log.epochs.entries == stage[1].log.epochs.entries
    leading = stage[1].leading
    stage.fetch(2)
    assert leading is not None and leading.joining == 2, "it is proposed for the ISR"


def test_a_follower_that_was_away_while_records_were_deleted_catches_up() -> None:
    stage = Stage(isr=(1, 3))
    stage.produce(1, b"a", b"b")
    stage.fetch(2)
    stage.produce(1, b"c", b"d", b"e")
    stage.produce(1, b"f")
    stage.fetch(3), stage.fetch(3)
    stage[1].log.delete_records_before(4)
    find_start(stage, end=6, start=4)
    stage.fetch(2)
    assert bounds(stage, 2) == (4, 6)
    assert stage.values(2) == stage.values(1) == [b"c", b"d", b"e", b"f"], "whole batches"


def test_records_are_deleted_while_an_empty_follower_looks_for_the_start() -> None:
    stage = Stage(isr=(1, 3))
    stage.produce(1, b"a", b"b", b"c")
    stage.produce(1, b"d", b"e")
    stage.fetch(3), stage.fetch(3)
    stage[1].log.delete_records_before(1)
    find_start(stage, end=5, start=1)
    stage[1].log.delete_records_before(4)
    find_start(stage, end=5, start=4)
    stage.fetch(2)
    assert bounds(stage, 2) == (4, 5)


def test_a_damaged_first_batch_is_fetched_again_where_the_log_begins_within_it() -> None:
    stage = Stage()
    stage.produce(1, b"a", b"b", b"c")
    stage.produce(1, b"d")
    for follower in (2, 3, 2, 3):
        stage.fetch(follower)
    stage[1].log.delete_records_before(2)
    stage.fetch(2)
    stage.follow(stage.metadata._replace(isr=(1, 3), partition_epoch=1))
    damage(stage, 2, 2)
    stage.fetch(2)
    assert stage.values(2) == [], "cut off"
    find_start(stage, end=4, start=2)
    stage.fetch(2)
    assert bounds(stage, 2) == (2, 4)
    assert stage.values(2) == stage.values(1)


def test_a_producer_is_known_from_the_batch_within_which_the_log_begins() -> None:
    """A new leader must not take the producer's next batch for one out of order."""
    stage = Stage(isr=(1, 3))
    batch = build(
        [Record(None, b"x", timestamp=WALL_MS)] * 4,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )
    stage[1].append(memoryview(bytearray(batch)), WALL_MS, acks_all=True)
    stage.fetch(3), stage.fetch(3)
    stage[1].log.delete_records_before(3)
    find_start(stage, end=4, start=3)
    stage.fetch(2)
    known = [stage[broker].log.producers.producers[7].next_sequence for broker in (1, 2)]
    assert known == [4, 4]


def bounds(stage: Stage, broker_id: int) -> tuple[int, int]:
    return stage[broker_id].log.start_offset, stage[broker_id].log.end_offset


def find_start(stage: Stage, *, end: int, start: int) -> None:
    """Follower 2 asks for an offset that leader 1 does not have, then for the leader's bounds."""
    position = role(stage, 2).fetch_position(stage.now_ms, 0)
    assert position is not None
    with pytest.raises(KafkaError):
        stage.answer(2, position)
    refused = PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, -1)
    role(stage, 2).take(position, refused, stage.now_ms, WALL_MS)
    role(stage, 2).bounds_are("end", 0, end, WALL_MS)
    role(stage, 2).bounds_are("start", 0, start, WALL_MS)
