"""Classic groups: votes, leaders, who holds a rebalance up, static members that start again."""

import pytest

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import describe_groups, join_group, leave_group, sync_group
from tests.unit.node.broker.groups.group_rig import GroupRig, subscription
from tests.unit.node.broker.rig import WAITS

E = ErrorCode


@pytest.fixture
def rig(tmp_path):
    rig = GroupRig(tmp_path / "data")
    rig.find("g")
    return rig


def described(rig, group="g"):
    request = describe_groups.DescribeGroupsRequest([group])
    return rig.ask(describe_groups, request).groups[0]


def group_of(rig, *instances, protocols=None):
    """A stable group with a member for each of these instances, None for one without; the answers
    to their JoinGroups, the leader's first."""
    options = {"protocols": protocols} if protocols else {}
    sessions, members = [], []
    for instance in instances:
        session = rig.connect()
        answer = rig.join("g", instance=instance, session=session, **options)
        if answer != WAITS and answer.error_code == E.MEMBER_ID_REQUIRED:
            answer = rig.join("g", answer.member_id, session=session, **options)
        sessions.append(session)
        members.append(answer)
    if len(instances) > 1:
        leader = members[0]
        answer = rig.join("g", leader.member_id, instance=instances[0], **options)
        members = [answer, *(rig.answer_on(one, join_group, 9) for one in sessions[1:])]
    parts = {one.member_id: b"part %d" % at for at, one in enumerate(members)}
    generation = members[0].generation_id
    for member, instance in zip(members, instances, strict=True):
        synced = rig.sync(
            "g",
            member.member_id,
            generation,
            parts,
            group_instance_id=instance,
            protocol_name=member.protocol_name,
        )
        assert synced.assignment == parts[member.member_id]
    return members


# ---- votes and leaders


def test_the_protocol_that_most_members_prefer_is_chosen(rig):
    wishes = [
        {"range": b"", "sticky": b""},
        {"sticky": b"", "range": b""},
        {"sticky": b"", "other": b"", "range": b""},
    ]
    sessions = []
    for protocols in wishes:
        member, session, answer = rig.member("g", protocols=protocols)
        sessions.append((member, session, protocols))
    first, _, protocols = sessions[0]
    leader = rig.join("g", first, protocols=protocols)
    assert leader.protocol_name == "sticky"
    for _, session, _ in sessions[1:]:
        assert rig.answer_on(session, join_group, 9).protocol_name == "sticky"


def test_another_leads_when_the_leader_leaves(rig):
    first, second = (one.member_id for one in group_of(rig, None, None))
    rig.leave("g", first)
    answer = rig.join("g", second)
    assert (answer.leader, len(answer.members)) == (second, 1)


def test_another_leads_when_the_leader_does_not_come(rig):
    first, second, third = (one.member_id for one in group_of(rig, None, None, None))
    waiting = [rig.connect(), rig.connect()]
    changed = {"protocols": {"range": subscription("orders", "more")}}
    assert rig.join("g", second, session=waiting[0], **changed) == WAITS
    assert rig.join("g", third, session=waiting[1], **changed) == WAITS
    for _ in range(7):
        rig.heartbeat("g", first, 2)  # lives, and does not join
        rig.advance(5_000)
    answers = [rig.answer_on(one, join_group, 9) for one in waiting]
    assert {answer.leader for answer in answers} == {second}
    assert rig.heartbeat("g", first, 3) == E.UNKNOWN_MEMBER_ID


def test_a_leader_that_joins_again_makes_all_join_a_follower_only_if_something_changed(rig):
    """The leader sees new partitions and topics, and asks for a rebalance in this way."""
    first, second = (one.member_id for one in group_of(rig, None, None))
    same = rig.join("g", second)
    assert (same.error_code, same.generation_id, same.members) == (E.NONE, 2, [])
    assert rig.heartbeat("g", first, 2) == E.NONE
    assert rig.sync("g", second, 2).assignment == b"part 1"
    changed = {"range": subscription("orders", "more")}
    assert rig.join("g", second, protocols=changed) == WAITS
    assert rig.heartbeat("g", first, 2) == E.REBALANCE_IN_PROGRESS
    assert rig.join("g", first).generation_id == 3


def test_a_leader_s_join_alone_starts_a_rebalance(rig):
    first, second = (one.member_id for one in group_of(rig, None, None))
    assert rig.join("g", first) == WAITS
    assert rig.heartbeat("g", second, 2) == E.REBALANCE_IN_PROGRESS


def test_a_member_that_missed_the_answer_to_its_join_hears_it_again(rig):
    first, _ = rig.stable_group("g")
    second, lost, _ = rig.member("g")
    rig.join("g", first)
    assert rig.answer_on(lost, join_group, 9).generation_id == 2
    again = rig.join("g", second)
    assert (again.error_code, again.generation_id, again.members) == (E.NONE, 2, [])
    leader = rig.join("g", first)
    assert (leader.generation_id, len(leader.members)) == (2, 2)


def test_a_member_that_changes_while_the_leader_assigns_makes_all_join_anew(rig):
    first, _ = rig.stable_group("g")
    second, _, _ = rig.member("g")
    third, _, _ = rig.member("g")
    rig.join("g", first)
    syncing = rig.connect()
    assert rig.sync("g", third, 2, session=syncing) == WAITS
    assert rig.join("g", second, protocols={"range": subscription("more")}) == WAITS
    assert rig.answer_on(syncing, sync_group, 5).error_code == E.REBALANCE_IN_PROGRESS
    assert rig.heartbeat("g", first, 2) == E.REBALANCE_IN_PROGRESS


# ---- those who hold a rebalance up


def test_an_id_that_was_promised_holds_a_rebalance_up_until_its_session_is_over(rig):
    first, _ = rig.stable_group("g")
    _, joining, _ = rig.member("g")
    promised = rig.join("g").member_id
    rejoining = rig.connect()
    assert rig.join("g", first, session=rejoining) == WAITS
    rig.advance(9_000)
    assert not rejoining.outbox
    rig.advance(1_001)
    assert rig.answer_on(rejoining, join_group, 9).generation_id == 2
    assert rig.answer_on(joining, join_group, 9).error_code == E.NONE
    assert rig.join("g", promised).error_code == E.UNKNOWN_MEMBER_ID


def test_an_id_that_was_promised_and_given_back_holds_nobody_up(rig):
    first, _ = rig.stable_group("g")
    rig.member("g")
    promised = rig.join("g").member_id
    rejoining = rig.connect()
    assert rig.join("g", first, session=rejoining) == WAITS
    [left] = rig.leave("g", promised).members
    assert left.error_code == E.NONE
    assert rig.answer_on(rejoining, join_group, 9).generation_id == 2


def test_a_group_that_is_larger_than_it_may_be_is_gathered_anew(rig, tmp_path):
    """The limit was lowered: who joins in time stays, up to it."""
    members = [one.member_id for one in group_of(rig, None, None, None)]
    again = GroupRig(tmp_path / "data", group_max_size=2)
    for member in members:
        assert again.heartbeat("g", member, 2) == E.REBALANCE_IN_PROGRESS
    sessions = [again.connect() for _ in range(2)]
    for member, session in zip(members, sessions, strict=False):
        assert again.join("g", member, session=session) == WAITS
    assert again.join("g", members[2]).error_code == E.GROUP_MAX_SIZE_REACHED
    again.advance(30_001)
    for session in sessions:
        assert again.answer_on(session, join_group, 9).generation_id == 3


def test_the_delay_of_a_first_rebalance_is_not_cut_short_by_one_before(tmp_path):
    """The first one ended early, when its last member was gone; its time must not count again."""
    rig = GroupRig(tmp_path / "data", group_initial_rebalance_delay_ms=60_000)
    rig.find("g")
    first, waiting, answer = rig.member("g", rebalance_timeout_ms=60_000)
    assert answer == WAITS
    assert rig.join("g").error_code == E.MEMBER_ID_REQUIRED  # an id is promised
    rig.leave("g", first)
    rig.advance(10_001)  # the promise is over, and with it the rebalance: nobody is there
    assert described(rig).group_state == "Empty"
    rig.advance(40_000)
    _, waiting, answer = rig.member("g", rebalance_timeout_ms=90_000)
    assert answer == WAITS
    rig.advance(11_000)
    assert not waiting.outbox
    rig.advance(49_000)
    assert rig.answer_on(waiting, join_group, 9).error_code == E.NONE


# ---- static members


def test_the_waiting_request_of_a_static_member_that_was_replaced_is_fenced(rig):
    one, two = group_of(rig, "one", "two")
    waiting = rig.connect()
    assert rig.join("g", one.member_id, instance="one", session=waiting) == WAITS
    again = rig.join("g", instance="one", session=rig.connect())
    assert again == WAITS
    answer = rig.answer_on(waiting, join_group, 9)
    assert (answer.error_code, answer.member_id) == (E.FENCED_INSTANCE_ID, one.member_id)
    assert rig.join("g", two.member_id, instance="two").generation_id == 3


def test_the_waiting_sync_of_a_static_member_that_was_replaced_is_fenced(rig):
    one, two = group_of(rig, "one", "two")
    joining = rig.connect()
    assert rig.join("g", one.member_id, instance="one", session=joining) == WAITS
    rig.join("g", two.member_id, instance="two")
    syncing = rig.connect()
    more = {"group_instance_id": "two", "session": syncing}
    assert rig.sync("g", two.member_id, 3, **more) == WAITS
    assert rig.join("g", instance="two") == WAITS, "it is too late to give it a part"
    assert rig.answer_on(syncing, sync_group, 5).error_code == E.FENCED_INSTANCE_ID
    assert rig.heartbeat("g", one.member_id, 3, instance="one") == E.REBALANCE_IN_PROGRESS


def test_a_static_member_that_starts_again_and_reads_other_topics_moves_nobody(rig):
    """As in Apache Kafka: the leader's client looks after that."""
    one, _ = group_of(rig, "one", "two")
    changed = {"range": subscription("orders", "more")}
    again = rig.join("g", instance="two", protocols=changed)
    assert (again.error_code, again.generation_id) == (E.NONE, 2)
    assert rig.heartbeat("g", one.member_id, 2, instance="one") == E.NONE
    members = described(rig).members
    metadata = {member.group_instance_id: member.member_metadata for member in members}
    assert metadata == {"one": subscription("orders"), "two": changed["range"]}


def test_a_static_member_that_starts_again_with_other_protocols_may_change_the_choice(rig):
    both = {"range": subscription("orders"), "sticky": subscription("orders")}
    one, _ = group_of(rig, "one", "two", protocols=both)
    only = {"sticky": subscription("orders")}
    waiting = rig.connect()
    assert rig.join("g", instance="two", protocols=only, session=waiting) == WAITS
    assert rig.heartbeat("g", one.member_id, 2, instance="one") == E.REBALANCE_IN_PROGRESS
    assert rig.join("g", one.member_id, instance="one", protocols=both).protocol_name == "sticky"
    assert rig.answer_on(waiting, join_group, 9).generation_id == 3


def test_a_static_member_that_starts_again_with_no_common_protocol_is_refused(rig):
    one, _ = group_of(rig, "one", "two")
    refused = rig.join("g", instance="two", protocols={"sticky": b""})
    assert refused.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert rig.heartbeat("g", one.member_id, 2, instance="one") == E.NONE


def test_a_static_member_that_does_not_come_to_a_rebalance_keeps_its_place(rig):
    """Its session ends it, not the rebalance: it may be starting again."""
    one, two = group_of(rig, "one", "two")
    assert rig.join("g", one.member_id, instance="one") == WAITS
    _, joining, _ = rig.member("g")
    for _ in range(4):
        rig.heartbeat("g", two.member_id, 2, instance="two")
        rig.advance(8_000)
    answer = rig.answer_on(joining, join_group, 9)
    assert answer.generation_id == 3
    assert len(described(rig).members) == 3
    assert rig.join("g", instance="two") == WAITS, "all join once more, now with its new id"


def test_a_static_member_that_was_replaced_cannot_leave_commit_or_join(rig):
    rig.create("orders")
    _, two = group_of(rig, "one", "two")
    again = rig.join("g", instance="two")
    old, new = two.member_id, again.member_id
    [left] = rig.leave("g", old, instance="two").members
    assert left.error_code == E.FENCED_INSTANCE_ID
    who = {"member": (old, 2), "instance": "two"}
    assert rig.commit("g", "orders", 1, **who) == E.FENCED_INSTANCE_ID
    assert rig.join("g", old, instance="two").error_code == E.FENCED_INSTANCE_ID
    assert rig.sync("g", old, 2, group_instance_id="two").error_code == E.FENCED_INSTANCE_ID
    assert rig.commit("g", "orders", 1, member=(new, 2), instance="two") == E.NONE
    [left] = rig.leave("g", new, instance="two").members
    assert left.error_code == E.NONE


def test_several_static_members_are_removed_by_one_request(rig):
    one, _, _ = group_of(rig, "one", "two", "three")
    members = [leave_group.MemberIdentity("", name) for name in ("two", "three", "four")]
    request = leave_group.LeaveGroupRequest("g", "", members)
    answers = rig.ask(leave_group, request).members
    assert [left.error_code for left in answers] == [E.NONE, E.NONE, E.UNKNOWN_MEMBER_ID]
    answer = rig.join("g", one.member_id, instance="one")
    assert (answer.generation_id, len(answer.members)) == (3, 1)


def test_a_static_leader_that_does_not_come_to_a_rebalance_is_followed_by_one_that_did(rig):
    one, two = group_of(rig, "one", "two")
    waiting = rig.connect()
    changed = {"range": subscription("orders", "more")}
    joining = {"instance": "two", "protocols": changed, "session": waiting}
    assert rig.join("g", two.member_id, **joining) == WAITS
    for _ in range(4):
        rig.heartbeat("g", one.member_id, 2, instance="one")
        rig.advance(8_000)
    answer = rig.answer_on(waiting, join_group, 9)
    assert (answer.generation_id, answer.leader) == (3, two.member_id)
    assert {member.group_instance_id for member in answer.members} == {"one", "two"}


def test_a_rebalance_to_which_no_static_member_comes_goes_on_until_one_does(rig):
    """Nobody could lead. They live, so they may come yet; their sessions end those that do not."""
    one, two = group_of(rig, "one", "two")
    third, gone, _ = rig.member("g")
    rig.leave("g", third)
    for _ in range(5):
        for member in (one, two):
            code = rig.heartbeat("g", member.member_id, 2, instance=member_name(one, member))
            assert code == E.REBALANCE_IN_PROGRESS
        rig.advance(8_000)
    assert described(rig).group_state == "PreparingRebalance"
    rig.join("g", one.member_id, instance="one")
    assert rig.join("g", two.member_id, instance="two").generation_id == 3
    assert rig.answer_on(gone, join_group, 9).error_code == E.UNKNOWN_MEMBER_ID


def member_name(one, member):
    return "one" if member is one else "two"


def test_a_rebalance_goes_on_at_once_when_the_last_one_it_waits_for_is_out(rig):
    first, second = (one.member_id for one in group_of(rig, None, None))
    waiting = rig.connect()
    assert rig.join("g", first, session=waiting) == WAITS
    rig.advance(10_001)  # the second one's session is over, long before the rebalance's time
    answer = rig.answer_on(waiting, join_group, 9)
    assert (answer.generation_id, len(answer.members)) == (3, 1)
    assert rig.heartbeat("g", second, 2) == E.UNKNOWN_MEMBER_ID


def test_only_the_latest_request_of_a_member_waits(rig):
    """It has given the one before up, and asks again on another connection."""
    first, second = (one.member_id for one in group_of(rig, None, None))
    before, after = rig.connect(), rig.connect()
    assert rig.join("g", first, session=before) == WAITS
    assert rig.join("g", first, session=after) == WAITS
    assert rig.answer_on(before, join_group, 9).error_code == E.UNKNOWN_MEMBER_ID
    assert rig.join("g", second).generation_id == 3
    assert rig.answer_on(after, join_group, 9).generation_id == 3
    before, after = rig.connect(), rig.connect()
    assert rig.sync("g", second, 3, session=before) == WAITS
    assert rig.sync("g", second, 3, session=after) == WAITS
    assert rig.answer_on(before, sync_group, 5).error_code == E.UNKNOWN_MEMBER_ID
    assert rig.sync("g", first, 3, {second: b"mine"}).error_code == E.NONE
    assert rig.answer_on(after, sync_group, 5).assignment == b"mine"


def test_a_commit_between_the_join_and_the_assignment_is_put_off(rig):
    rig.create("orders")
    member, _, joined = rig.member("g")
    who = (member, joined.generation_id)
    assert rig.commit("g", "orders", 1, member=who) == E.REBALANCE_IN_PROGRESS
    rig.sync("g", member, joined.generation_id, {member: b"part"})
    assert rig.commit("g", "orders", 1, member=who) == E.NONE


def test_a_promised_id_cannot_become_a_static_member(rig):
    promised = rig.join("g").member_id
    assert rig.join("g", promised, instance="one").error_code == E.UNKNOWN_MEMBER_ID
