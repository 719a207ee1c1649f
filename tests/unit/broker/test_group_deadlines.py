"""A session or a rebalance ends when its time is over, not at a look some time later.

The loop sleeps until the purgatory's next deadline, so that is where a group's deadlines stand.
"""

import pytest

from headrace.protocol.messages import consumer_group_describe, describe_groups, join_group
from tests.unit.broker.bench import PARKED
from tests.unit.broker.group_bench import GroupBench
from tests.unit.broker.group_readers import Reader


@pytest.fixture
def bench(tmp_path):
    bench = GroupBench(tmp_path / "data", offsets_topic_num_partitions=5)
    bench.find("g")
    bench.create("orders", 3)
    return bench


def sleep_of_the_loop(bench):
    """Milliseconds until the loop would wake by itself, if nobody sends anything."""
    return bench.node.purgatory.next_deadline_ms() - bench.now.monotonic_ms


def pass_time(bench, milliseconds):
    """Without any of the timers that come around again and again."""
    bench.now.monotonic_ms += milliseconds
    bench.now.wall_ms += milliseconds
    bench.settle()


def state(bench):
    request = describe_groups.DescribeGroupsRequest(["g"])
    return bench.ask(describe_groups, request, version=5).groups[0].group_state


def test_a_session_ends_at_its_moment_and_not_before(bench):
    member, _, joined = bench.member("g", session_timeout_ms=6_007)
    bench.sync("g", member, joined.generation_id, {member: b"part"})
    begun_ms = bench.now.monotonic_ms
    pass_time(bench, 3_001)
    assert bench.heartbeat("g", member, joined.generation_id) == 0
    pass_time(bench, 6_006)
    assert state(bench) == "Stable", "a heartbeat has moved the end"
    assert sleep_of_the_loop(bench) == 1
    pass_time(bench, 1)
    assert state(bench) == "Empty"
    assert bench.now.monotonic_ms == begun_ms + 3_001 + 6_007


def test_a_member_of_the_consumer_protocol_is_gone_when_its_session_is_over(bench):
    reader = Reader(bench, "g", "a", "orders")
    reader.beat()
    request = consumer_group_describe.ConsumerGroupDescribeRequest(["g"])

    def members():
        return len(bench.ask(consumer_group_describe, request).groups[0].members)

    while members():
        assert sleep_of_the_loop(bench) <= 45_000
        pass_time(bench, max(sleep_of_the_loop(bench), 1))
    assert bench.now.monotonic_ms >= 45_000


def test_those_who_wait_for_a_member_that_does_not_come_are_answered_at_the_end(bench):
    first, _, _ = bench.member("g", rebalance_timeout_ms=3_003)
    session = bench.connect()
    assert bench.join("g", session=session, version=3, rebalance_timeout_ms=3_003) == PARKED
    pass_time(bench, 3_002)
    assert not session.outbox
    pass_time(bench, 1)
    assert bench.answer_on(session, join_group, 3).error_code == 0


def test_one_shard_whose_disk_refuses_keeps_no_other_from_its_moment(bench, monkeypatch):
    """Its work stays due, and is tried again by a look, not by a loop that never sleeps."""
    bench.member("g", session_timeout_ms=6_007)
    groups = bench.node.broker.groups
    monkeypatch.setattr(type(groups), "_run_due", lambda self, index, shard, now: None)
    pass_time(bench, 6_007)
    assert sleep_of_the_loop(bench) > 1_000, "nothing but what others wait for"
