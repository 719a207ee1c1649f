"""Groups of the consumer protocol (KIP-848) as their members see them."""

import pytest

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import delete_groups, list_groups
from tests.unit.node.broker.groups.group_readers import (
    Reader,
    describe,
    require_no_overlap,
    until_stable,
)
from tests.unit.node.broker.groups.group_rig import GroupRig, subscription

E = ErrorCode
GROUP = 32  # as a kind of what has settings


@pytest.fixture
def rig(tmp_path):
    rig = GroupRig(tmp_path / "data")
    rig.find("g")
    rig.create("orders", 4)
    return rig


def test_one_member_gets_everything_at_once(rig):
    reader = Reader(rig, "g", "a", "orders")
    answer = reader.beat()
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (0, 2, 5_000)
    assert reader.has == {"orders": [0, 1, 2, 3]}
    assert reader.beat(owned=None).assignment is None
    described = describe(rig)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == (
        "Stable",
        2,
        2,
    )
    [member] = described.members
    assert (member.client_id, member.member_type) == ("rig", 1)
    assert member.assignment.topic_partitions[0].topic_name == "orders"
    [listed] = rig.ask(list_groups, list_groups.ListGroupsRequest()).groups
    assert (listed.group_id, listed.group_type, listed.group_state) == ("g", "consumer", "Stable")


def test_a_second_member_gets_its_part_when_the_first_has_given_it_up(rig):
    first, second = Reader(rig, "g", "a", "orders"), Reader(rig, "g", "b", "orders")
    first.beat()
    second.beat()
    assert second.has == {}
    assert describe(rig).group_state == "Reconciling"
    kept = dict(first.owned)
    first.beat(owned=None)
    assert len(first.has["orders"]) == 2
    assert (first.epoch, second.epoch) == (2, 3)  # it has not yet said that it gave up
    held = {one.member_id: shown(one) for one in describe(rig).members}
    assert held == {"a": [0, 1, 2, 3], "b": []}, "so it is shown with all of it"
    second.beat()
    assert second.has == {}
    until_stable(first, second)
    assert sorted(first.has["orders"] + second.has["orders"]) == [0, 1, 2, 3]
    assert set(first.has["orders"]) < set(*kept.values())
    assert describe(rig).group_state == "Stable"


def shown(member):
    return sorted(p for part in member.assignment.topic_partitions for p in part.partitions)


def test_a_member_that_does_not_give_up_in_time_is_out(rig):
    first, second = Reader(rig, "g", "a", "orders"), Reader(rig, "g", "b", "orders")
    first.beat()
    second.beat()
    stubborn = dict(first.owned)
    for _ in range(5):
        first.beat(owned=stubborn)
        second.beat()
        rig.advance(4_001)
    assert first.beat().error_code == E.UNKNOWN_MEMBER_ID
    until_stable(second)
    assert second.has == {"orders": [0, 1, 2, 3]}


def test_a_silent_member_is_out_after_its_session(rig):
    first, second = Reader(rig, "g", "a", "orders"), Reader(rig, "g", "b", "orders")
    first.beat()
    second.beat()
    until_stable(first, second)
    for _ in range(4):
        rig.advance(12_000)
        second.beat()
    until_stable(second)
    assert second.has == {"orders": [0, 1, 2, 3]}
    assert first.beat().error_code == E.UNKNOWN_MEMBER_ID


def test_leaving_gives_everything_to_the_others(rig):
    readers = [Reader(rig, "g", name, "orders") for name in "abc"]
    for reader in readers:
        reader.beat()
    until_stable(*readers)
    assert readers[0].leave().member_epoch == -1
    until_stable(*readers[1:])
    assert sorted(p for reader in readers[1:] for p in reader.has["orders"]) == [0, 1, 2, 3]
    for reader in readers[1:]:
        reader.leave()
    assert describe(rig).group_state == "Empty"
    request = delete_groups.DeleteGroupsRequest(["g"])
    assert rig.ask(delete_groups, request).results[0].error_code == E.NONE
    assert describe(rig).error_code == E.GROUP_ID_NOT_FOUND


def test_epochs_that_are_not_the_members_are_fenced(rig):
    reader = Reader(rig, "g", "a", "orders")
    reader.beat()
    assert reader.beat(epoch=3).error_code == E.FENCED_MEMBER_EPOCH
    assert reader.beat(epoch=1).error_code == E.FENCED_MEMBER_EPOCH
    assert reader.beat(epoch=2).error_code == E.NONE
    assert Reader(rig, "g", "b", "orders").beat(epoch=3).error_code == E.UNKNOWN_MEMBER_ID
    assert Reader(rig, "x", "b", "orders").beat(epoch=3).error_code == E.GROUP_ID_NOT_FOUND
    assert Reader(rig, "x", "b", "orders").leave().error_code == E.GROUP_ID_NOT_FOUND


def test_requests_that_cannot_be_are_refused(rig):
    def refused(**changes):
        return Reader(rig, "g", changes.pop("name", "a"), "orders").beat(**changes).error_code

    assert refused(name="") == E.INVALID_REQUEST
    assert refused(rebalance_timeout_ms=-1) == E.INVALID_REQUEST
    assert refused(topics=None) == E.INVALID_REQUEST
    assert refused(topics=[]) == E.INVALID_REQUEST
    assert refused(owned=None) == E.INVALID_REQUEST
    assert refused(epoch=-3) == E.INVALID_REQUEST
    assert refused(epoch=-2) == E.INVALID_REQUEST
    assert refused(instance="") == E.INVALID_REQUEST
    assert refused(rack="") == E.INVALID_REQUEST
    assert refused(assignor="magic") == E.UNSUPPORTED_ASSIGNOR
    assert refused(regex="(", topics=None) == E.INVALID_REGULAR_EXPRESSION
    assert Reader(rig, "", "a", "orders").beat().error_code == E.INVALID_REQUEST
    assert describe(rig).error_code == E.GROUP_ID_NOT_FOUND


def test_an_assignor_is_chosen_by_the_members(rig):
    rig.create("payments", 4)
    both = [Reader(rig, "g", name, "orders", "payments", assignor="range") for name in "ab"]
    for reader in both:
        reader.beat()
    until_stable(*both)
    assert both[0].has == {"orders": [0, 1], "payments": [0, 1]}
    assert describe(rig).assignor_name == "range"


def test_a_group_has_only_so_many_members(tmp_path):
    rig = GroupRig(tmp_path / "data", group_consumer_max_size=1)
    rig.find("g")
    rig.create("orders", 4)
    Reader(rig, "g", "a", "orders").beat()
    assert Reader(rig, "g", "b", "orders").beat().error_code == E.GROUP_MAX_SIZE_REACHED


# ---- topics come, grow and go


def test_topics_that_grow_come_or_go_are_noticed(rig):
    reader = Reader(rig, "g", "a", "orders", "later")
    reader.beat()
    rig.grow("orders", 6)
    until_stable(reader)
    assert reader.has == {"orders": [0, 1, 2, 3, 4, 5]}
    rig.create("later", 1)
    until_stable(reader)
    assert reader.has["later"] == [0]
    rig.delete("orders")
    reader.owned = {
        t: p for t, p in reader.owned.items() if t in rig.node.broker.image.topics_by_id
    }
    until_stable(reader)
    assert reader.has == {"later": [0]}


def test_a_pattern_takes_up_topics_as_they_come(rig):
    reader = Reader(rig, "g", "a", regex="ord.*|pay[^x]+")
    reader.beat()
    assert reader.has == {"orders": [0, 1, 2, 3]}
    rig.create("payments", 1)
    rig.create("other", 1)
    rig.create("unpayments", 1)
    until_stable(reader)
    assert reader.has == {"orders": [0, 1, 2, 3], "payments": [0]}
    reader.more["regex"] = "oth.*"
    until_stable(reader)
    assert reader.has == {"other": [0]}
    assert describe(rig).members[0].subscribed_topic_regex == "oth.*"


def test_a_hostile_pattern_costs_no_more_than_another(rig):
    rig.create("a" * 200, 1)
    reader = Reader(rig, "g", "a", regex="(a*)*" * 20 + "b")
    assert reader.beat().error_code == E.NONE
    assert reader.has == {}
    greedy = Reader(rig, "g", "b", regex="(((a{100}){100}){100}){100}")
    assert greedy.beat().error_code == E.INVALID_REGULAR_EXPRESSION
    long = Reader(rig, "g", "b", regex="a" * 10_001)
    assert long.beat().error_code == E.INVALID_REGULAR_EXPRESSION


# ---- static members


def test_a_static_member_that_leaves_for_a_moment_gets_its_partitions_back(rig):
    one = Reader(rig, "g", "a", "orders", instance="one")
    two = Reader(rig, "g", "b", "orders", instance="two")
    one.beat()
    two.beat()
    until_stable(one, two)
    had = one.has
    one.leave(epoch=-2)
    until_stable(two)
    assert len(two.has["orders"]) == 2
    again = Reader(rig, "g", "c", "orders", instance="one")
    again.beat()
    assert again.has == had
    assert one.beat(epoch=3).error_code == E.FENCED_INSTANCE_ID
    thief = Reader(rig, "g", "d", "orders", instance="one")
    assert thief.beat().error_code == E.UNRELEASED_INSTANCE_ID


# ---- offsets


def test_members_commit_with_their_epoch(rig):
    reader = Reader(rig, "g", "a", "orders")
    reader.beat()
    assert rig.commit("g", "orders", 3, member=("a", 2)) == E.NONE
    assert rig.commit("g", "orders", 4, member=("a", 1)) == E.STALE_MEMBER_EPOCH
    assert rig.commit("g", "orders", 4, member=("a", 2), version=8) == E.UNSUPPORTED_VERSION
    assert rig.commit("g", "orders", 4, member=("b", 2)) == E.UNKNOWN_MEMBER_ID
    assert rig.commit("g", "orders", 4) == E.UNKNOWN_MEMBER_ID
    assert rig.committed("g", "orders") == 3


def test_a_group_may_have_timeouts_of_its_own(rig):
    rig.alter(GROUP, "g", consumer_heartbeat_interval_ms=7_000)
    assert Reader(rig, "g", "a", "orders").beat().heartbeat_interval_ms == 7_000
    assert Reader(rig, "h", "a", "orders").beat().heartbeat_interval_ms == 5_000


def test_bounds_that_are_narrowed_later_hold_for_what_groups_have_set(rig, tmp_path):
    rig.alter(GROUP, "g", consumer_session_timeout_ms=50_000)
    rig.stop()
    rig = GroupRig(tmp_path / "data", group_consumer_max_session_timeout_ms=46_000)
    Reader(rig, "g", "a", "orders").beat()
    rig.advance(45_900)
    assert [member.member_id for member in describe(rig).members] == ["a"]
    rig.advance(200)
    assert describe(rig).members == []


def test_a_crowd_is_shared_out_to_together(tmp_path):
    rig = GroupRig(tmp_path / "data", group_consumer_assignment_interval_ms=1_000)
    rig.find("g")
    rig.create("orders", 4)
    first, *others = [Reader(rig, "g", name, "orders") for name in "abcd"]
    assert first.beat().heartbeat_interval_ms == 5_000
    assert first.has == {"orders": [0, 1, 2, 3]}
    rig.advance(400)
    for reader in others:
        assert reader.beat().heartbeat_interval_ms == 600, "then it gets its part"
        assert reader.has == {}
    assert describe(rig).group_state == "Assigning"
    first.beat()
    assert first.has == {"orders": [0, 1, 2, 3]}, "nothing is given up yet"
    rig.advance(600)
    for _ in range(3):
        for reader in (first, *others):
            assert reader.beat().heartbeat_interval_ms == 5_000
        require_no_overlap(first, *others)
    assert [len(reader.has["orders"]) for reader in (first, *others)] == [1, 1, 1, 1]
    assert describe(rig).assignment_epoch == 5, "each arrival counted, all shared out to at once"
    assert len({reader.epoch for reader in (first, *others)}) == 1


def test_the_last_one_left_does_not_wait_for_a_crowd(tmp_path):
    rig = GroupRig(tmp_path / "data", group_consumer_assignment_interval_ms=1_000)
    rig.find("g")
    rig.create("orders", 4)
    Reader(rig, "g", "a", "orders").beat()
    Reader(rig, "g", "a", "orders").leave()
    alone = Reader(rig, "g", "b", "orders")
    alone.beat()
    assert alone.has == {"orders": [0, 1, 2, 3]}


# ---- after a restart


def test_a_consumer_group_goes_on_after_a_restart(rig, tmp_path):
    readers = [Reader(rig, "g", name, "orders") for name in "ab"]
    for reader in readers:
        reader.beat()
    until_stable(*readers)
    again = GroupRig(tmp_path / "data")
    for reader in readers:
        reader.rig = again
        assert reader.beat(owned=None).assignment is None
    assert describe(again).group_state == "Stable"
    again.advance(45_001)
    assert describe(again).group_state == "Empty"


# ---- between the protocols


def classic_member(rig, group, member_id, generation, *, owned=()):
    """A cooperative classic member that follows the group: its id, generation and partitions."""
    joined = rig.join(group, member_id)
    assert joined.error_code == E.NONE, joined
    synced = rig.sync(group, joined.member_id, joined.generation_id)
    return joined.member_id, joined.generation_id, synced


def test_a_classic_group_becomes_a_consumer_group_and_back(rig):
    assignment = (
        b"\0\0\0\0\0\1\0\6orders\0\0\0\4"
        + b"".join(n.to_bytes(4, "big") for n in range(4))
        + b"\xff\xff\xff\xff"
    )
    old, generation = rig.stable_group("g", assignment)
    new = Reader(rig, "g", "new", "orders")
    assert new.beat().error_code == E.NONE
    assert describe(rig).group_state == "Reconciling"
    assert {member.member_type for member in describe(rig).members} == {0, 1}
    assert rig.heartbeat("g", old, generation) == E.REBALANCE_IN_PROGRESS
    _, epoch, synced = classic_member(rig, "g", old, generation)
    assert len(synced.assignment) < len(assignment)
    until_stable(new)
    _, epoch, synced = classic_member(rig, "g", old, epoch)
    until_stable(new)
    assert len(new.has["orders"]) == 2
    assert rig.heartbeat("g", old, epoch) == E.NONE
    assert describe(rig).group_state == "Stable"
    new.leave()
    [listed] = rig.ask(list_groups, list_groups.ListGroupsRequest()).groups
    assert (listed.group_type, listed.group_state) == ("classic", "PreparingRebalance")
    answer = rig.join("g", old)
    assert (answer.error_code, answer.leader) == (E.NONE, old)


def test_the_last_of_one_protocol_leaves_the_group_to_the_other(rig):
    reader = Reader(rig, "g", "a", "orders")
    reader.beat()
    rig.commit("g", "orders", 7, member=("a", 2))
    reader.leave()
    member, _ = rig.stable_group("g")
    assert rig.committed("g", "orders") == 7
    rig.leave("g", member)
    again = Reader(rig, "g", "b", "orders")
    assert again.beat().error_code == E.NONE
    assert rig.committed("g", "orders") == 7


def test_garbled_subscriptions_are_refused_where_they_must_be_read(rig):
    Reader(rig, "g", "a", "orders").beat()
    for garbled in (
        b"",
        b"\0",
        b"\0\0\xff",
        b"\0\0\x7f\xff\xff\xff",
        b"\xff\xff" + subscription()[2:],
    ):
        joined = rig.join("g", "m", protocols={"range": garbled})
        assert joined.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    rig.find("c")
    member, _, joined = rig.member("c", protocols={"range": b"\0\0\xff"})
    assert joined.error_code == E.NONE  # nobody here needs to read it
    assert Reader(rig, "c", "a", "orders").beat().error_code == E.GROUP_ID_NOT_FOUND
