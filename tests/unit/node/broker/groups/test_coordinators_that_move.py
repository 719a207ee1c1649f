"""Coordinators come and go with the leadership of their partitions; what clients hear meanwhile.

The metadata are changed as a controller of several brokers would (`change`); the other broker is
not there, so its part as a follower is played where a story needs one.
"""

import pytest

from headrace.node.coordination import shard as shards
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    list_groups,
    offset_commit,
    offset_fetch,
)
from tests.unit.node.broker.replicas.following import Following
from tests.unit.node.broker.replicas.test_replicas_of_others import (
    BOTH,
    HERE,
    THERE,
    change,
    coordinator,
)
from tests.unit.node.broker.rig import WAITS, Rig

OFFSETS = "__consumer_offsets"


@pytest.fixture
def rig(tmp_path):
    rig = Rig(
        tmp_path / "node",
        offsets_topic_num_partitions=1,
        group_initial_rebalance_delay_ms=3_000,
    )
    rig.create("orders", partitions=100)
    assert coordinator(rig) == HERE
    return rig


def commit(rig, group, places, session=None):
    """Codes of all partitions, as a set."""
    parts = [offset_commit.OffsetCommitRequestPartition(*place) for place in places]
    topic = offset_commit.OffsetCommitRequestTopic("orders", partitions=parts)
    request = offset_commit.OffsetCommitRequest(group, topics=[topic])
    answer = rig.ask(offset_commit, request, version=8, session=session)
    return answer if answer == WAITS else codes_of(answer)


def codes_of(answer):
    return {part.error_code for topic in answer.topics for part in topic.partitions}


def fetch_offsets(rig, *groups, session=None):
    wanted = [offset_fetch.OffsetFetchRequestGroup(group, topics=None) for group in groups]
    request = offset_fetch.OffsetFetchRequest(groups=wanted)
    answer = rig.ask(offset_fetch, request, version=8, session=session)
    return answer if answer == WAITS else told(answer)


def told(answer):
    """By group: its code, or its offsets by partition."""
    return {
        group.group_id: group.error_code
        or {
            part.partition_index: part.committed_offset
            for topic in group.topics
            for part in topic.partitions
        }
        for group in answer.groups
    }


def lead(rig, isr=(HERE,)):
    change(rig, OFFSETS, leader=HERE, isr=isr, **BOTH)


def step_down(rig):
    change(rig, OFFSETS, leader=THERE, isr=(HERE, THERE), **BOTH)


def follower_fetches(rig, offset):
    """What broker 2 asks for next: it has all before, and asks on."""
    follower = Following(rig, OFFSETS, THERE)
    follower.asks(offset)
    follower.asks()


def test_a_large_partition_is_loaded_between_the_requests_of_others(rig, monkeypatch):
    monkeypatch.setattr(shards, "RECORDS_PER_STEP", 20)
    places = [(index, index) for index in range(100)]
    for number in range(5):
        assert commit(rig, f"group-{number}", places) == {ErrorCode.NONE}
    step_down(rig)
    rig.slowly = True
    lead(rig)
    while not rig.node.broker.loads:
        rig.until_idle()
    rounds = 0
    while rig.node.broker.groups.loading:
        rounds += 1
        if rounds % 3 == 0:
            assert rig.produce("orders", "one").error_code == ErrorCode.NONE
        elif rounds % 3 == 1:
            refused = commit(rig, "group-0", [(0, 7)])
            assert refused == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        else:
            listed = rig.ask(list_groups, list_groups.ListGroupsRequest())
            assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert rounds > 5
    assert fetch_offsets(rig, "group-3") == {"group-3": dict(places)}
    assert len(rig.ask(list_groups, list_groups.ListGroupsRequest()).groups) == 5


def test_a_load_ends_when_another_broker_takes_over_again(rig, monkeypatch):
    monkeypatch.setattr(shards, "RECORDS_PER_STEP", 20)
    assert commit(rig, "billing", [(index, 1) for index in range(100)]) == {ErrorCode.NONE}
    step_down(rig)
    rig.slowly = True
    lead(rig)
    while not rig.node.broker.loads:
        rig.until_idle()
    rig.until_idle()
    rig.slowly = False
    step_down(rig)
    assert fetch_offsets(rig, "billing") == {"billing": ErrorCode.NOT_COORDINATOR}
    assert not rig.node.broker.groups.loading
    lead(rig)
    assert len(fetch_offsets(rig, "billing")["billing"]) == 100


def test_offsets_of_a_topic_that_is_deleted_during_the_load_are_forgotten(rig, monkeypatch):
    monkeypatch.setattr(shards, "RECORDS_PER_STEP", 20)
    rig.create("short-lived")
    assert commit(rig, "billing", [(index, 1) for index in range(100)]) == {ErrorCode.NONE}
    part = offset_commit.OffsetCommitRequestPartition(0, 5)
    topic = offset_commit.OffsetCommitRequestTopic("short-lived", partitions=[part])
    request = offset_commit.OffsetCommitRequest("other", topics=[topic])
    assert codes_of(rig.ask(offset_commit, request, version=8)) == {ErrorCode.NONE}
    step_down(rig)
    rig.slowly = True
    lead(rig)
    while not rig.node.broker.loads:
        rig.until_idle()
    rig.node.broker.groups.forget_topics(frozenset(["short-lived"]))
    rig.slowly = False
    rig.until_idle()
    group = offset_fetch.OffsetFetchRequestGroup("other", topics=None)
    request = offset_fetch.OffsetFetchRequest(groups=[group])
    [found] = rig.ask(offset_fetch, request, version=8).groups
    # The topic is still in this image: it was made again under its name meanwhile.
    assert [topic.name for topic in found.topics] == ["short-lived"]
    rig.delete("short-lived")
    [found] = rig.ask(offset_fetch, request, version=8).groups
    assert found.topics == []


def test_a_commit_that_too_few_replicas_have_in_time_is_refused(rig):
    lead(rig, isr=(HERE, THERE))
    session = rig.connect()
    assert commit(rig, "billing", [(0, 5)], session) == WAITS
    rig.advance(4_000)
    assert not session.outbox
    rig.advance(1_000)
    answer = rig.answer_on(session, offset_commit, 8)
    assert codes_of(answer) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_a_commit_is_confirmed_when_the_replicas_have_it(rig):
    lead(rig, isr=(HERE, THERE))
    session, reader = rig.connect(), rig.connect()
    assert commit(rig, "billing", [(0, 5)], session) == WAITS
    assert fetch_offsets(rig, "billing", session=reader) == WAITS, "it may be lost yet"
    follower_fetches(rig, 1)
    assert codes_of(rig.answer_on(session, offset_commit, 8)) == {ErrorCode.NONE}
    assert told(rig.answer_on(reader, offset_fetch, 8)) == {"billing": {0: 5}}


def test_without_enough_replicas_nothing_is_taken_and_nothing_changes(rig):
    assert commit(rig, "billing", [(0, 5)]) == {ErrorCode.NONE}
    rig.alter(2, OFFSETS, min_insync_replicas=2)
    lead(rig, isr=(HERE,))
    assert commit(rig, "billing", [(0, 6)]) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    reader = rig.connect()
    assert fetch_offsets(rig, "billing", session=reader) == WAITS, "the other may be elected"
    follower_fetches(rig, 1)
    assert told(rig.answer_on(reader, offset_fetch, 8)) == {"billing": {0: 5}}


def test_each_answer_that_waits_says_that_the_coordinator_has_moved(rig):
    assert commit(rig, "old", [(0, 1)]) == {ErrorCode.NONE}
    lead(rig, isr=(HERE, THERE))
    writer, reader, admin, cleaner = (rig.connect() for _ in range(4))
    assert commit(rig, "billing", [(0, 5)], writer) == WAITS
    assert fetch_offsets(rig, "billing", "old", session=reader) == WAITS
    request = describe_groups.DescribeGroupsRequest(["billing"])
    assert rig.ask(describe_groups, request, version=5, session=admin) == WAITS
    request = delete_groups.DeleteGroupsRequest(["old"])
    assert rig.ask(delete_groups, request, version=2, session=cleaner) == WAITS
    step_down(rig)
    gone = ErrorCode.NOT_COORDINATOR
    assert codes_of(rig.answer_on(writer, offset_commit, 8)) == {gone}
    assert told(rig.answer_on(reader, offset_fetch, 8)) == {"billing": gone, "old": gone}
    [group] = rig.answer_on(admin, describe_groups, 5).groups
    assert (group.group_id, group.error_code, group.members) == ("billing", gone, [])
    [result] = rig.answer_on(cleaner, delete_groups, 2).results
    assert (result.group_id, result.error_code) == ("old", gone)


@pytest.mark.parametrize("version", [1, 2, 7])
def test_an_old_client_that_waits_for_offsets_is_told_too(rig, version):
    lead(rig, isr=(HERE, THERE))
    assert commit(rig, "billing", [(0, 5)], rig.connect()) == WAITS
    session = rig.connect()
    wanted = offset_fetch.OffsetFetchRequestTopic("orders", [0])
    request = offset_fetch.OffsetFetchRequest("billing", [wanted])
    assert rig.ask(offset_fetch, request, version=version, session=session) == WAITS
    step_down(rig)
    answer = rig.answer_on(session, offset_fetch, version)
    told = answer.error_code if version > 1 else answer.topics[0].partitions[0].error_code
    assert told == ErrorCode.NOT_COORDINATOR


def join(rig, member="", session=None):
    protocol = join_group.JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\xff\xff\xff\xff")
    request = join_group.JoinGroupRequest(
        "billing", 10_000, 30_000, member, None, "consumer", [protocol]
    )
    return rig.ask(join_group, request, version=5, session=session)


def test_members_that_wait_for_each_other_are_sent_on_and_their_timers_end(rig):
    member = join(rig).member_id
    first, second = rig.connect(), rig.connect()
    assert join(rig, member, session=first) == WAITS
    other = join(rig).member_id
    assert join(rig, other, session=second) == WAITS
    step_down(rig)
    for session in (first, second):
        assert rig.answer_on(session, join_group, 5).error_code == ErrorCode.NOT_COORDINATOR
    request = heartbeat.HeartbeatRequest("billing", 1, member)
    refused = rig.ask(heartbeat, request, version=3).error_code
    assert refused == ErrorCode.NOT_COORDINATOR
    end_offset = rig.node.broker.topics.by_name[OFFSETS].replicas[0].log.end_offset
    rig.advance(60_000)
    assert rig.node.broker.topics.by_name[OFFSETS].replicas[0].log.end_offset == end_offset


def test_between_the_metadata_and_the_coordinator_nobody_is_told_what_may_be_old(rig):
    assert commit(rig, "billing", [(0, 5)]) == {ErrorCode.NONE}
    leader = rig.node.broker.topics.by_name[OFFSETS].replicas[0]
    rig.slowly = True
    step_down(rig)
    while leader.leads:
        rig.until_idle()
    assert rig.node.broker.groups.shards, "the partition has stepped down, its shard not yet"
    assert fetch_offsets(rig, "billing") == {"billing": ErrorCode.NOT_COORDINATOR}
