"""A session or a rebalance ends when its time is over, not at a look some time later.

The loop sleeps until the purgatory's next deadline, so that is where a group's deadlines stand.
"""

import pytest

from headrace.node.broker.coordinators import coordinators
from headrace.wire.protocol.messages import consumer_group_describe, describe_groups, join_group
from tests.unit.node.broker.groups.group_readers import Reader
from tests.unit.node.broker.groups.group_rig import GroupRig
from tests.unit.node.broker.rig import WAITS


@pytest.fixture
def rig(tmp_path):
    rig = GroupRig(tmp_path / "data", offsets_topic_num_partitions=5)
    rig.find("g")
    rig.create("orders", 3)
    return rig


def sleep_of_the_loop(rig):
    """Milliseconds until the loop would wake by itself, if nobody sends anything."""
    return rig.node.purgatory.next_deadline_ms() - rig.now.monotonic_ms


def pass_time(rig, milliseconds):
    """Without any of the timers that come around again and again."""
    rig.now.monotonic_ms += milliseconds
    rig.now.wall_ms += milliseconds
    rig.until_idle()


def state(rig):
    request = describe_groups.DescribeGroupsRequest(["g"])
    return rig.ask(describe_groups, request, version=5).groups[0].group_state


def test_a_session_ends_at_its_moment_and_not_before(rig):
    member, _, joined = rig.member("g", session_timeout_ms=6_007)
    rig.sync("g", member, joined.generation_id, {member: b"part"})
    begun_ms = rig.now.monotonic_ms
    pass_time(rig, 3_001)
    assert rig.heartbeat("g", member, joined.generation_id) == 0
    pass_time(rig, 6_006)
    assert state(rig) == "Stable", "a heartbeat has moved the end"
    assert sleep_of_the_loop(rig) == 1
    pass_time(rig, 1)
    assert state(rig) == "Empty"
    assert rig.now.monotonic_ms == begun_ms + 3_001 + 6_007


def test_a_member_of_the_consumer_protocol_is_gone_when_its_session_is_over(rig):
    reader = Reader(rig, "g", "a", "orders")
    reader.beat()
    request = consumer_group_describe.ConsumerGroupDescribeRequest(["g"])

    def members():
        return len(rig.ask(consumer_group_describe, request).groups[0].members)

    while members():
        assert sleep_of_the_loop(rig) <= 45_000
        pass_time(rig, max(sleep_of_the_loop(rig), 1))
    assert rig.now.monotonic_ms >= 45_000


def test_those_who_wait_for_a_member_that_does_not_come_are_answered_at_the_end(rig):
    first, _, _ = rig.member("g", rebalance_timeout_ms=3_003)
    session = rig.connect()
    assert rig.join("g", session=session, version=3, rebalance_timeout_ms=3_003) == WAITS
    pass_time(rig, 3_002)
    assert not session.outbox
    pass_time(rig, 1)
    assert rig.answer_on(session, join_group, 3).error_code == 0


def test_one_shard_whose_disk_refuses_keeps_no_other_from_its_moment(rig, monkeypatch):
    """Its work stays due, and is tried again by a look, not by a loop that never sleeps."""
    rig.member("g", session_timeout_ms=6_007)
    groups = rig.node.broker.groups
    monkeypatch.setattr(type(groups), "_run_due", lambda self, index, shard, now: None)
    pass_time(rig, 6_007)
    assert sleep_of_the_loop(rig) > 1_000, "nothing but what others wait for"


def test_members_whose_sessions_end_together_go_between_other_requests(rig, monkeypatch):
    """The host of 3,000 members is gone: their groups are seen to a few at a time."""
    monkeypatch.setattr(coordinators, "WORK_AT_ONCE", 2)
    names = [f"g{number}" for number in range(6)]
    for name in names:
        Reader(rig, name, "a", "orders").beat()
    request = consumer_group_describe.ConsumerGroupDescribeRequest(names)

    def members():
        machines = rig.node.broker.groups.machines(rig.now)
        return sum(len(one.members) for each in machines for one in each.groups.values())

    assert members() == len(names)
    rig.now.monotonic_ms += 46_000
    rig.node.purgatory.expire(rig.now.monotonic_ms)
    assert members() >= len(names) - 1
    for _ in range(30):
        before = members()
        rig.node.work(lambda: True)
        assert before - members() <= 1
    assert members() == 0
    assert all(not group.members for group in rig.ask(consumer_group_describe, request).groups)
