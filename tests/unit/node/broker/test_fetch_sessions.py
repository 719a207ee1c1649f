"""Incremental fetches (KIP-227): only what changed, and only what changed is looked at."""

import pytest

from headrace.node.broker.records.fetch_sessions import EVICT_WHEN_IDLE_MS, FetchSessions
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import fetch
from tests.unit.node.broker.rig import WAITS, Rig, values_in


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path / "data", max_incremental_fetch_session_cache_slots=2)
    made.ids = {"orders": made.create("orders", partitions=3), "other": made.create("other")}
    return made


def ask(rig, session_id, epoch, wanted=(), forgotten=(), *, max_wait_ms=0, session=None):
    request = fetch.FetchRequest()
    request.max_wait_ms = max_wait_ms
    request.min_bytes = 1
    request.max_bytes = 1_000_000
    request.session_id = session_id
    request.session_epoch = epoch
    request.topics = [topic(rig, *each) for each in wanted]
    request.forgotten_topics_data = [
        fetch.ForgottenTopic("", rig.ids[name], [index]) for name, index in forgotten
    ]
    return rig.ask(fetch, request, version=16, session=session)


def topic(rig, name, index, offset):
    part = fetch.FetchPartition(index)
    part.fetch_offset = offset
    part.partition_max_bytes = 1_000_000
    return fetch.FetchTopic("", rig.ids[name], [part])


def partitions_in(answer):
    return [part.partition_index for each in answer.responses for part in each.partitions]


def open_session(rig, offset=0):
    return ask(rig, 0, 0, [("orders", index, offset) for index in range(3)])


def test_the_first_answer_names_all_and_the_next_only_what_changed(rig):
    first = open_session(rig)
    assert first.session_id != 0 and partitions_in(first) == [0, 1, 2]
    assert partitions_in(ask(rig, first.session_id, 1)) == []
    rig.produce("orders", "x", partition=1)
    answer = ask(rig, first.session_id, 2)
    assert partitions_in(answer) == [1]
    assert values_in(answer.responses[0].partitions[0].records) == [b"x"]


def test_records_are_offered_again_until_the_client_moves_on(rig):
    session_id = open_session(rig).session_id
    rig.produce("orders", "x", partition=1)
    assert partitions_in(ask(rig, session_id, 1)) == [1]
    assert partitions_in(ask(rig, session_id, 2)) == [1]
    assert partitions_in(ask(rig, session_id, 3, [("orders", 1, 1)])) == []
    assert partitions_in(ask(rig, session_id, 4)) == []


def test_idle_partitions_are_not_looked_at(rig):
    session_id = open_session(rig).session_id
    ask(rig, session_id, 1)
    [session] = rig.node.broker.fetch_sessions._sessions.values()
    assert session.marked == {} and len(session.entries) == 3
    rig.produce("orders", "x", partition=2)
    assert [key[1] for key in session.marked] == [2]


def test_a_waiting_session_is_woken_by_any_of_its_partitions(rig):
    session_id = open_session(rig).session_id
    reader = rig.connect()
    assert ask(rig, session_id, 1, max_wait_ms=500, session=reader) == WAITS
    rig.produce("other", "not mine")
    assert not reader.outbox
    rig.produce("orders", "mine", partition=2)
    assert partitions_in(rig.answer_on(reader, fetch, 16)) == [2]


def test_forgotten_partitions_are_not_served(rig):
    session_id = open_session(rig).session_id
    ask(rig, session_id, 1, forgotten=[("orders", 1)])
    rig.produce("orders", "x", partition=1)
    assert partitions_in(ask(rig, session_id, 2)) == []


def test_added_partitions_are_served(rig):
    session_id = open_session(rig).session_id
    rig.produce("other", "x")
    assert partitions_in(ask(rig, session_id, 1, [("other", 0, 0)])) == [0]


def test_wrong_epoch_and_wrong_id_are_told_apart(rig):
    session_id = open_session(rig).session_id
    assert ask(rig, session_id, 5).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = ask(rig, session_id + 999, 1)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_closed_session_is_gone(rig):
    session_id = open_session(rig).session_id
    assert ask(rig, session_id, -1).session_id == 0
    assert ask(rig, session_id, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    leaders = rig.node.broker.topics.by_name["orders"].replicas
    assert all(not leader.sessions for leader in leaders)


def test_a_full_cache_turns_newcomers_away_until_somebody_is_idle(rig):
    first, second = open_session(rig).session_id, open_session(rig).session_id
    assert open_session(rig).session_id == 0
    rig.advance(121_000)
    assert ask(rig, second, 1).error_code == 0
    third = open_session(rig).session_id
    assert third != 0
    assert ask(rig, first, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_sessions_that_followers_have_forsaken_go_with_the_next_one():
    sessions = FetchSessions(2, iter(range(1, 100)).__next__)
    lives = sessions.open(by_id=True, now_ms=0, is_followers=True)
    for _ in range(5):  # one that is killed again and again
        sessions.open(by_id=True, now_ms=0, is_followers=True)
    assert len(sessions) == 6
    sessions.resume(lives.id, 1, by_id=True, now_ms=EVICT_WHEN_IDLE_MS - 500)
    sessions.open(by_id=True, now_ms=EVICT_WHEN_IDLE_MS, is_followers=True)
    assert len(sessions) == 2
    sessions.resume(lives.id, 2, by_id=True, now_ms=EVICT_WHEN_IDLE_MS)


def test_epochs_wrap_to_one(rig):
    session_id = open_session(rig).session_id
    [session] = rig.node.broker.fetch_sessions._sessions.values()
    session.epoch = 2**31 - 1
    assert ask(rig, session_id, 2**31 - 1).error_code == 0
    assert ask(rig, session_id, 1).error_code == 0


def test_a_topic_that_goes_away_is_an_error_of_its_partition(rig):
    session_id = open_session(rig).session_id
    ask(rig, session_id, 1)
    rig.delete("orders")
    answer = ask(rig, session_id, 2)
    codes = {part.error_code for each in answer.responses for part in each.partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    rig.create("orders", partitions=3)
    answer = ask(rig, session_id, 3)
    codes = {part.error_code for each in answer.responses for part in each.partitions}
    assert codes == {ErrorCode.INCONSISTENT_TOPIC_ID}


def test_a_session_without_partitions_ends(rig):
    session_id = open_session(rig).session_id
    forgotten = [("orders", index) for index in range(3)]
    assert ask(rig, session_id, 1, forgotten=forgotten).session_id == 0
    assert ask(rig, session_id, 2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_partitions_share_a_full_answer_in_turn(rig):
    for index in range(3):
        rig.produce("orders", "x" * 1_000, partition=index)
    session_id = open_session(rig).session_id
    seen = []
    for epoch in range(1, 4):
        request = fetch.FetchRequest()
        request.max_bytes = 500
        request.min_bytes = 1
        request.session_id, request.session_epoch = session_id, epoch
        answer = rig.ask(fetch, request, version=16)
        seen += [p.partition_index for t in answer.responses for p in t.partitions if p.records]
    assert sorted(seen) == [0, 1, 2]
