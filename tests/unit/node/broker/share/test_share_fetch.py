"""ShareFetch and ShareAcknowledge at one node, by hand."""

from __future__ import annotations

import pytest

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.record_batch import headers_in
from tests.unit.node.broker.rig import WAITS, build
from tests.unit.node.broker.share.share_rig import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    ShareRig,
    StatesInMemory,
    acquired,
    only,
    outcome,
    values,
)


@pytest.fixture
def rig(tmp_path, monkeypatch):
    return ShareRig(tmp_path / "data", monkeypatch=monkeypatch)


@pytest.fixture
def topic(rig):
    rig.set(offset_reset="earliest")
    return rig.create("orders")


def test_records_are_acquired_accepted_and_not_delivered_again(rig, topic):
    for value in ("a", "b", "c"):
        rig.produce("orders", value)
    one, other = rig.member("one"), rig.member("other")
    found = one.fetch(topic)
    assert acquired(found) == [(0, 2, 1)]
    assert values(found) == [b"a", b"b", b"c"]
    assert found.acquisition_lock_timeout_ms == 30_000
    assert acquired(other.fetch(topic)) == []
    assert outcome(one.acknowledge(topic, (0, 2, [ACCEPT]))) is ErrorCode.NONE
    assert rig.states.start_offset == 3
    assert acquired(other.fetch()) == []


def test_a_new_group_begins_at_the_end_and_keeps_this_place(rig):
    topic = rig.create("orders")
    rig.produce("orders", "before")
    one = rig.member("one")
    assert acquired(one.fetch(topic)) == []
    rig.produce("orders", "after")
    assert acquired(one.fetch()) == [(1, 1, 1)]
    assert rig.states.start_offset == 1, "written when it was decided, not with the first accept"


def test_a_waiting_fetch_wakes_for_new_records(rig, topic):
    one = rig.member("one")
    assert one.fetch(topic, max_wait_ms=500) == WAITS
    rig.produce("orders", "a")
    assert acquired(one.answer()) == [(0, 0, 1)]


def test_a_waiting_fetch_ends_without_records_after_max_wait(rig, topic):
    one = rig.member("one")
    assert one.fetch(topic, max_wait_ms=500) == WAITS
    rig.advance(499)
    assert one.answer() == WAITS
    rig.advance(1)
    assert acquired(one.answer()) == []


def test_a_fetch_waits_for_min_bytes(rig, topic):
    one = rig.member("one")
    assert one.fetch(topic, max_wait_ms=500, min_bytes=150) == WAITS
    rig.produce("orders", "a")
    assert one.answer() == WAITS
    rig.produce("orders", "b" * 100)
    assert acquired(one.answer()) == [(0, 1, 1)]


def test_a_released_record_wakes_another_member(rig, topic):
    rig.produce("orders", "a")
    one, other = rig.member("one"), rig.member("other")
    one.fetch(topic)
    assert other.fetch(topic, max_wait_ms=500) == WAITS
    one.acknowledge(topic, (0, 0, [RELEASE]))
    assert acquired(other.answer()) == [(0, 0, 2)]


def test_locks_expire_at_their_deadline_and_wake_another_member(rig, topic):
    rig.produce("orders", "a")
    one, other = rig.member("one"), rig.member("other")
    one.fetch(topic)
    assert other.fetch(topic, max_wait_ms=60_000) == WAITS
    rig.advance(29_999)
    assert other.answer() == WAITS
    rig.advance(1)
    assert acquired(other.answer()) == [(0, 0, 2)]
    assert outcome(one.acknowledge(topic, (0, 0, [ACCEPT]))) is ErrorCode.INVALID_RECORD_STATE


def test_a_renewed_lock_lasts_longer(rig, topic):
    rig.produce("orders", "a")
    one, other = rig.member("one"), rig.member("other")
    one.fetch(topic)
    rig.advance(20_000)
    nothing = {"max_records": 0, "max_bytes": 0, "min_bytes": 0}
    assert acquired(one.fetch(topic, acknowledge=[(0, 0, [RENEW])], renews=True, **nothing)) == []
    rig.advance(20_000)
    assert acquired(other.fetch(topic)) == []
    renewed = one.acknowledge(topic, (0, 0, [RENEW]), renews=True)
    assert outcome(renewed) is ErrorCode.NONE and renewed.acquisition_lock_timeout_ms == 30_000
    rig.advance(20_000)
    assert outcome(one.acknowledge(topic, (0, 0, [ACCEPT]))) is ErrorCode.NONE


def test_a_request_that_renews_may_want_no_records(rig, topic):
    one = rig.member("one")
    one.fetch(topic)
    refused = one.fetch(renews=True)
    assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_renew_needs_the_flag_and_the_setting(rig, topic):
    rig.produce("orders", "a")
    one = rig.member("one")
    one.fetch(topic)
    assert outcome(one.acknowledge(topic, (0, 0, [RENEW]))) is ErrorCode.INVALID_REQUEST
    rig.set(renews=False)
    refused = one.acknowledge(topic, (0, 0, [RENEW]), renews=True)
    assert outcome(refused) is ErrorCode.INVALID_RECORD_STATE


def test_acknowledgements_come_along_with_a_fetch(rig, topic):
    rig.produce("orders", "a")
    one = rig.member("one")
    one.fetch(topic)
    rig.produce("orders", "b")
    found = one.fetch(topic, acknowledge=[(0, 0, [ACCEPT])])
    assert acquired(found) == [(1, 1, 1)]
    assert only(found).acknowledge_error_code == ErrorCode.NONE
    refused = only(one.fetch(topic, acknowledge=[(0, 1, [ACCEPT, 9])]))
    assert refused.acknowledge_error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_code == ErrorCode.NONE


def test_an_answer_waits_until_the_acknowledgement_is_written(rig, topic):
    rig.produce("orders", "a")
    one, other = rig.member("one"), rig.member("other")
    one.fetch(topic)
    rig.states.slow = True
    assert one.acknowledge(topic, (0, 0, [RELEASE])) == WAITS
    rig.advance(10_000)
    assert acquired(other.fetch(topic)) == [], "the release does not count yet"
    rig.states.reply()
    rig.until_idle()
    assert one.session.outbox
    assert acquired(other.fetch()) == [(0, 0, 2)]


def test_a_fetch_with_acknowledgements_answers_after_max_wait_when_they_are_written(rig, topic):
    rig.produce("orders", "a")
    one = rig.member("one")
    one.fetch(topic)
    rig.states.slow = True
    assert one.fetch(topic, acknowledge=[(0, 0, [ACCEPT])], max_wait_ms=500) == WAITS
    rig.advance(1_000)
    assert one.answer() == WAITS
    rig.states.reply()
    assert acquired(one.answer()) == []


def test_an_acknowledgement_that_is_not_written_is_refused_and_the_record_stays_held(rig, topic):
    rig.produce("orders", "a")
    one = rig.member("one")
    one.fetch(topic)
    rig.states.refuse_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    refused = one.acknowledge(topic, (0, 0, [ACCEPT]))
    assert outcome(refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.states.refuse_with = ErrorCode.NONE
    assert outcome(one.acknowledge(topic, (0, 0, [ACCEPT]))) is ErrorCode.NONE


def test_sessions_have_epochs(rig, topic):
    one = rig.member("one")
    assert one.fetch(topic, epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert one.fetch(topic, epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    one.fetch(topic)
    assert one.fetch(topic, epoch=5).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    first = one.acknowledge(topic, (0, 0, [ACCEPT]), epoch=0)
    assert first.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert acquired(one.fetch(epoch=1)) == []


def test_a_first_request_has_no_acknowledgements(rig, topic):
    refused = rig.member("one").fetch(topic, acknowledge=[(0, 0, [ACCEPT])])
    assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_the_end_of_a_session_gives_back_what_it_holds_as_if_not_delivered(rig, topic):
    rig.produce("orders", "a")
    rig.produce("orders", "b")
    one, other = rig.member("one"), rig.member("other")
    one.fetch(topic)
    other.fetch(topic)
    last = one.acknowledge(topic, (0, 0, [ACCEPT]), epoch=-1)
    assert outcome(last) is ErrorCode.NONE
    assert acquired(other.fetch()) == [(1, 1, 1)]
    assert one.fetch(epoch=2).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_the_end_of_a_connection_ends_its_sessions(rig, topic):
    rig.produce("orders", "a")
    one, other = rig.member("one"), rig.member("other")
    one.fetch(topic)
    assert other.fetch(topic, max_wait_ms=500) == WAITS
    one.disconnect()
    assert acquired(other.answer()) == [(0, 0, 1)]


def test_with_the_last_session_the_share_partition_is_closed(rig, topic):
    rig.produce("orders", "a")
    rig.produce("orders", "b")
    one = rig.member("one")
    one.fetch(topic)
    one.acknowledge(topic, (0, 0, [ACCEPT]))
    assert len(rig.led) == 1
    one.disconnect()
    assert len(rig.led) == 0
    assert acquired(rig.member("other").fetch(topic)) == [(1, 1, 1)]


def test_only_so_many_sessions_as_allowed(tmp_path, monkeypatch):
    rig = ShareRig(tmp_path / "data", monkeypatch=monkeypatch, group_share_max_share_sessions=1)
    topic = rig.create("orders")
    one, other = rig.member("one"), rig.member("other")
    one.fetch(topic)
    assert other.fetch(topic, max_wait_ms=500) == WAITS, "it would try again at once"
    rig.advance(500)
    assert other.answer().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert acquired(one.fetch(topic, epoch=0)) == [], "it takes the place of its own session"


def test_a_fenced_share_partition_is_read_again(rig, topic):
    rig.produce("orders", "a")
    one = rig.member("one")
    one.fetch(topic)
    rig.states.state_epoch, rig.states.start_offset = 1, 0  # the group's offsets were altered
    refused = one.acknowledge(topic, (0, 0, [ACCEPT]))
    assert outcome(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert acquired(one.fetch()) == [(0, 0, 1)]
    assert outcome(one.acknowledge(topic, (0, 0, [ACCEPT]))) is ErrorCode.NONE


def test_a_state_that_cannot_be_read_is_said_and_asked_for_again(rig, topic):
    rig.produce("orders", "a")
    rig.states.refuse_with = ErrorCode.NOT_COORDINATOR
    one = rig.member("one")
    found = only(one.fetch(topic))
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.states.refuse_with, rig.states.slow = ErrorCode.NONE, True
    assert one.fetch(max_wait_ms=500) == WAITS
    rig.states.reply()
    assert acquired(one.answer()) == [(0, 0, 1)]


def test_a_deleted_topic_ends_a_waiting_fetch(rig, topic):
    one = rig.member("one")
    assert one.fetch(topic, max_wait_ms=500) == WAITS
    rig.delete("orders")
    assert only(one.answer()).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert len(rig.led) == 0


def test_a_partition_that_does_not_exist(rig, topic):
    found = only(rig.member("one").fetch(topic, partitions=(7,)))
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_record_limit_is_strict_and_batches_are_not(rig, topic):
    rig.produce("orders", "a", "b", "c", "d")
    strict = rig.member("strict")
    assert acquired(strict.fetch(topic, max_records=1, mode=1)) == [(0, 0, 1)]
    assert acquired(rig.member("other").fetch(topic, max_records=1)) == [(1, 3, 1)]


def test_the_slice_has_only_batches_with_acquired_records(rig, topic):
    for value in "abcdef":
        rig.produce("orders", value)
    one, other = rig.member("one"), rig.member("other")
    one.fetch(topic)
    one.acknowledge(topic, (0, 5, [ACCEPT, ACCEPT, RELEASE, RELEASE, ACCEPT, ACCEPT]))
    found = other.fetch(topic)
    assert acquired(found) == [(2, 3, 2)]
    assert values(found) == [b"c", b"d"]


def test_pieces_have_about_the_wanted_size(rig, topic):
    for value in "abcde":
        rig.produce("orders", value)
    assert acquired(rig.member("one").fetch(topic, batch_size=2)) == [
        (0, 1, 1),
        (2, 3, 1),
        (4, 4, 1),
    ]


def test_max_bytes_bounds_an_answer_and_one_batch_always_comes(rig, topic):
    for _ in range(3):
        rig.produce("orders", "x" * 1_000)
    one = rig.member("one")
    found = one.fetch(topic, max_bytes=10)
    assert acquired(found) == [(0, 0, 1)]
    assert len(list(headers_in(bytes(only(found).records)))) == 1
    assert acquired(one.fetch(max_bytes=2_500)) == [(1, 2, 1)]


def test_records_of_several_partitions_come_in_turn(rig):
    rig.set(offset_reset="earliest")
    topic = rig.create("many", partitions=2)
    for partition in (0, 1):
        rig.produce("many", "a", partition=partition)
        rig.produce("many", "b", partition=partition)
    one = rig.member("one")
    first = one.fetch(topic, partitions=(0, 1), max_records=1, mode=1)
    assert only(first).partition_index == 0
    second = one.fetch(max_records=1, mode=1)
    assert only(second).partition_index == 1


def begin_transaction(rig, producer, value, sequence=0):
    batch = build(
        [value],
        rig.now.wall_ms,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )
    leader = rig.node.broker.topics.leader("orders", 0)
    leader.append(memoryview(bytearray(batch)), rig.now.wall_ms, acks_all=True)


def end_transaction(rig, producer, *, commit):
    leader = rig.node.broker.topics.leader("orders", 0)
    leader.append_marker(
        rig.now.wall_ms,
        commit=commit,
        producer_id=producer,
        producer_epoch=0,
        coordinator_epoch=0,
        bumps_epoch=False,
    )
    rig.node.broker.partition_changed(leader)
    rig.until_idle()


def test_readers_of_committed_records_pass_over_aborted_transactions(rig, topic):
    rig.set(reads_committed=True)
    begin_transaction(rig, 1, "aborted")  # offset 0
    begin_transaction(rig, 2, "committed")  # 1
    end_transaction(rig, 1, commit=False)  # 2
    one = rig.member("one")
    assert one.fetch(topic, max_wait_ms=500) == WAITS, "a transaction is open before them"
    rig.produce("orders", "plain")  # 3
    end_transaction(rig, 2, commit=True)  # 4
    found = one.answer()
    assert acquired(found) == [(1, 1, 1), (3, 3, 1)]
    begin_transaction(rig, 1, "again", sequence=1)  # 5
    end_transaction(rig, 1, commit=True)  # 6
    assert acquired(one.fetch()) == [(5, 5, 1)]
    for offset in (1, 3, 5):
        assert outcome(one.acknowledge(topic, (offset, offset, [ACCEPT]))) is ErrorCode.NONE
    assert acquired(one.fetch()) == []
    assert rig.states.start_offset >= 6, "what the group does not see is done"


def test_a_transaction_that_was_aborted_with_nothing_behind_is_passed(rig, topic):
    rig.set(reads_committed=True)
    begin_transaction(rig, 1, "aborted")
    end_transaction(rig, 1, commit=False)
    one = rig.member("one")
    assert acquired(one.fetch(topic)) == []
    rig.produce("orders", "plain")
    assert acquired(one.fetch()) == [(2, 2, 1)]


def test_others_read_records_of_open_and_aborted_transactions(rig, topic):
    begin_transaction(rig, 1, "aborted")
    end_transaction(rig, 1, commit=False)
    assert acquired(rig.member("one").fetch(topic)) == [(0, 0, 1)]


def test_a_rejected_record_is_not_delivered_again(rig, topic):
    rig.produce("orders", "a")
    one = rig.member("one")
    one.fetch(topic)
    assert outcome(one.acknowledge(topic, (0, 0, [REJECT]))) is ErrorCode.NONE
    assert acquired(one.fetch()) == []


def test_acknowledgements_of_a_large_request(rig, topic):
    """Requests of more than 16 KB are decoded in slices."""
    count = 20_000
    rig.set(max_record_locks=4_000)
    rig.produce("orders", *["x"] * 4_000)
    one = rig.member("one")
    assert acquired(one.fetch(topic, max_records=4_000)) == [(0, 3_999, 1)]
    batches = [(offset, offset, [ACCEPT]) for offset in range(4_000)]
    assert len(batches) * 19 > count
    assert outcome(one.acknowledge(topic, *batches)) is ErrorCode.NONE
    assert rig.states.start_offset == 4_000


def test_a_new_leader_delivers_nothing_that_was_acknowledged(tmp_path, monkeypatch):
    states = StatesInMemory()
    rig = ShareRig(tmp_path / "data", states, monkeypatch)
    rig.set(offset_reset="earliest")
    topic = rig.create("orders")
    for value in "abcd":
        rig.produce("orders", value)
    one = rig.member("one")
    one.fetch(topic)
    one.acknowledge(topic, (0, 2, [ACCEPT, RELEASE, ACCEPT]))
    rig.stop()
    again = ShareRig(tmp_path / "data", states, monkeypatch)
    again.set(offset_reset="earliest")
    assert acquired(again.member("two").fetch(topic)) == [(1, 1, 2), (3, 3, 1)]


def test_a_released_record_waits_and_others_do_not(rig, topic):
    rig.set(backoff_ms=1_000)
    for value in ("a", "b", "c"):
        rig.produce("orders", value)
    one, other = rig.member("one"), rig.member("other")
    one.fetch(topic)
    one.acknowledge(topic, (0, 0, [ACCEPT]), (1, 1, [RELEASE]), (2, 2, [ACCEPT]))
    assert other.fetch(topic, max_wait_ms=500) == WAITS
    rig.produce("orders", "d")
    assert acquired(other.answer()) == [(3, 3, 1)]
    assert other.fetch(max_wait_ms=60_000) == WAITS
    rig.advance(799)
    assert other.answer() == WAITS
    rig.advance(201)
    assert acquired(other.answer()) == [(1, 1, 2)], "the end of the wait wakes a fetch"


def test_a_wait_grows_with_each_delivery_up_to_its_maximum(rig, topic):
    rig.set(backoff_ms=60_000, backoff_max_ms=100_000, delivery_limit=4)
    rig.produce("orders", "a")
    one = rig.member("one")
    assert acquired(one.fetch(topic)) == [(0, 0, 1)]
    for delivery, most_ms in ((1, 60_000), (2, 100_000), (3, 100_000)):
        assert one.fetch(topic, acknowledge=[(0, 0, [RELEASE])], max_wait_ms=200_000) == WAITS
        rig.advance(most_ms * 8 // 10 - 1)
        assert one.answer() == WAITS
        rig.advance(most_ms * 2 // 10 + 1)
        assert acquired(one.answer()) == [(0, 0, delivery + 1)]


def test_a_record_whose_lock_ran_out_waits_too(rig, topic):
    rig.set(backoff_ms=1_000)
    rig.produce("orders", "a")
    one, other = rig.member("one"), rig.member("other")
    one.fetch(topic)
    assert other.fetch(topic, max_wait_ms=60_000) == WAITS
    rig.advance(30_000)
    rig.advance(799)
    assert other.answer() == WAITS
    rig.advance(201)
    assert acquired(other.answer()) == [(0, 0, 2)]


def test_records_of_a_member_that_leaves_do_not_wait(rig, topic):
    rig.set(backoff_ms=1_000)
    rig.produce("orders", "a")
    one, other = rig.member("one"), rig.member("other")
    one.fetch(topic)
    assert other.fetch(topic, max_wait_ms=500) == WAITS
    one.disconnect()
    assert acquired(other.answer()) == [(0, 0, 1)]


def test_a_wait_ends_when_the_share_partition_is_closed(rig, topic):
    """The waits are not stored: a new leader, or the first member after all left, begins at once;
    the attempts are counted as before."""
    rig.set(backoff_ms=1_000)
    rig.produce("orders", "a")
    one = rig.member("one")
    one.fetch(topic)
    one.acknowledge(topic, (0, 0, [RELEASE]))
    one.disconnect()
    assert acquired(rig.member("new").fetch(topic)) == [(0, 0, 2)]
