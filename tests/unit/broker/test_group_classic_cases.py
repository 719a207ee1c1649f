"""Classic groups: votes, leaders, who holds a rebalance up, static members that start again."""

import pytest

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import describe_groups, join_group, leave_group, sync_group
from tests.unit.broker.bench import PARKED
from tests.unit.broker.group_bench import GroupBench, subscription

E = ErrorCode


@pytest.fixture
def bench(tmp_path):
    bench = GroupBench(tmp_path / "data")
    bench.find("g")
    return bench


def described(bench, group="g"):
    request = describe_groups.DescribeGroupsRequest([group])
    return bench.ask(describe_groups, request).groups[0]


def group_of(bench, *instances, protocols=None):
    """A stable group with a member for each of these instances, None for one without; the answers
    to their JoinGroups, the leader's first."""
    options = {"protocols": protocols} if protocols else {}
    sessions, members = [], []
    for instance in instances:
        session = bench.connect()
        answer = bench.join("g", instance=instance, session=session, **options)
        if answer != PARKED and answer.error_code == E.MEMBER_ID_REQUIRED:
            answer = bench.join("g", answer.member_id, session=session, **options)
        sessions.append(session)
        members.append(answer)
    if len(instances) > 1:
        leader = members[0]
        answer = bench.join("g", leader.member_id, instance=instances[0], **options)
        members = [answer, *(bench.answer_on(one, join_group, 9) for one in sessions[1:])]
    parts = {one.member_id: b"part %d" % at for at, one in enumerate(members)}
    generation = members[0].generation_id
    for member, instance in zip(members, instances, strict=True):
        synced = bench.sync(
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


def test_the_protocol_that_most_members_prefer_is_chosen(bench):
    wishes = [
        {"range": b"", "sticky": b""},
        {"sticky": b"", "range": b""},
        {"sticky": b"", "other": b"", "range": b""},
    ]
    sessions = []
    for protocols in wishes:
        member, session, answer = bench.member("g", protocols=protocols)
        sessions.append((member, session, protocols))
    first, _, protocols = sessions[0]
    leader = bench.join("g", first, protocols=protocols)
    assert leader.protocol_name == "sticky"
    for _, session, _ in sessions[1:]:
        assert bench.answer_on(session, join_group, 9).protocol_name == "sticky"


def test_another_leads_when_the_leader_leaves(bench):
    first, second = (one.member_id for one in group_of(bench, None, None))
    bench.leave("g", first)
    answer = bench.join("g", second)
    assert (answer.leader, len(answer.members)) == (second, 1)


def test_another_leads_when_the_leader_does_not_come(bench):
    first, second, third = (one.member_id for one in group_of(bench, None, None, None))
    waiting = [bench.connect(), bench.connect()]
    changed = {"protocols": {"range": subscription("orders", "more")}}
    assert bench.join("g", second, session=waiting[0], **changed) == PARKED
    assert bench.join("g", third, session=waiting[1], **changed) == PARKED
    for _ in range(7):
        bench.heartbeat("g", first, 2)  # lives, and does not join
        bench.advance(5_000)
    answers = [bench.answer_on(one, join_group, 9) for one in waiting]
    assert {answer.leader for answer in answers} == {second}
    assert bench.heartbeat("g", first, 3) == E.UNKNOWN_MEMBER_ID


def test_a_leader_that_joins_again_makes_all_join_a_follower_only_if_something_changed(bench):
    """The leader sees new partitions and topics, and asks for a rebalance in this way."""
    first, second = (one.member_id for one in group_of(bench, None, None))
    same = bench.join("g", second)
    assert (same.error_code, same.generation_id, same.members) == (E.NONE, 2, [])
    assert bench.heartbeat("g", first, 2) == E.NONE
    assert bench.sync("g", second, 2).assignment == b"part 1"
    changed = {"range": subscription("orders", "more")}
    assert bench.join("g", second, protocols=changed) == PARKED
    assert bench.heartbeat("g", first, 2) == E.REBALANCE_IN_PROGRESS
    assert bench.join("g", first).generation_id == 3


def test_a_leader_s_join_alone_starts_a_rebalance(bench):
    first, second = (one.member_id for one in group_of(bench, None, None))
    assert bench.join("g", first) == PARKED
    assert bench.heartbeat("g", second, 2) == E.REBALANCE_IN_PROGRESS


def test_a_member_that_missed_the_answer_to_its_join_hears_it_again(bench):
    first, _ = bench.stable_group("g")
    second, lost, _ = bench.member("g")
    bench.join("g", first)
    assert bench.answer_on(lost, join_group, 9).generation_id == 2
    again = bench.join("g", second)
    assert (again.error_code, again.generation_id, again.members) == (E.NONE, 2, [])
    leader = bench.join("g", first)
    assert (leader.generation_id, len(leader.members)) == (2, 2)


def test_a_member_that_changes_while_the_leader_assigns_makes_all_join_anew(bench):
    first, _ = bench.stable_group("g")
    second, _, _ = bench.member("g")
    third, _, _ = bench.member("g")
    bench.join("g", first)
    syncing = bench.connect()
    assert bench.sync("g", third, 2, session=syncing) == PARKED
    assert bench.join("g", second, protocols={"range": subscription("more")}) == PARKED
    assert bench.answer_on(syncing, sync_group, 5).error_code == E.REBALANCE_IN_PROGRESS
    assert bench.heartbeat("g", first, 2) == E.REBALANCE_IN_PROGRESS


# ---- those who hold a rebalance up


def test_an_id_that_was_promised_holds_a_rebalance_up_until_its_session_is_over(bench):
    first, _ = bench.stable_group("g")
    _, joining, _ = bench.member("g")
    promised = bench.join("g").member_id
    rejoining = bench.connect()
    assert bench.join("g", first, session=rejoining) == PARKED
    bench.advance(9_000)
    assert not rejoining.outbox
    bench.advance(1_001)
    assert bench.answer_on(rejoining, join_group, 9).generation_id == 2
    assert bench.answer_on(joining, join_group, 9).error_code == E.NONE
    assert bench.join("g", promised).error_code == E.UNKNOWN_MEMBER_ID


def test_an_id_that_was_promised_and_given_back_holds_nobody_up(bench):
    first, _ = bench.stable_group("g")
    bench.member("g")
    promised = bench.join("g").member_id
    rejoining = bench.connect()
    assert bench.join("g", first, session=rejoining) == PARKED
    [left] = bench.leave("g", promised).members
    assert left.error_code == E.NONE
    assert bench.answer_on(rejoining, join_group, 9).generation_id == 2


def test_a_group_that_is_larger_than_it_may_be_is_gathered_anew(bench, tmp_path):
    """The limit was lowered: who joins in time stays, up to it."""
    members = [one.member_id for one in group_of(bench, None, None, None)]
    again = GroupBench(tmp_path / "data", group_max_size=2)
    for member in members:
        assert again.heartbeat("g", member, 2) == E.REBALANCE_IN_PROGRESS
    sessions = [again.connect() for _ in range(2)]
    for member, session in zip(members, sessions, strict=False):
        assert again.join("g", member, session=session) == PARKED
    assert again.join("g", members[2]).error_code == E.GROUP_MAX_SIZE_REACHED
    again.advance(30_001)
    for session in sessions:
        assert again.answer_on(session, join_group, 9).generation_id == 3


def test_the_delay_of_a_first_rebalance_is_not_cut_short_by_one_before(tmp_path):
    """The first one ended early, when its last member was gone; its time must not count again."""
    bench = GroupBench(tmp_path / "data", group_initial_rebalance_delay_ms=60_000)
    bench.find("g")
    first, waiting, answer = bench.member("g", rebalance_timeout_ms=60_000)
    assert answer == PARKED
    assert bench.join("g").error_code == E.MEMBER_ID_REQUIRED  # an id is promised
    bench.leave("g", first)
    bench.advance(10_001)  # the promise is over, and with it the rebalance: nobody is there
    assert described(bench).group_state == "Empty"
    bench.advance(40_000)
    _, waiting, answer = bench.member("g", rebalance_timeout_ms=90_000)
    assert answer == PARKED
    bench.advance(11_000)
    assert not waiting.outbox
    bench.advance(49_000)
    assert bench.answer_on(waiting, join_group, 9).error_code == E.NONE


# ---- static members


def test_the_waiting_request_of_a_static_member_that_was_replaced_is_fenced(bench):
    one, two = group_of(bench, "one", "two")
    waiting = bench.connect()
    assert bench.join("g", one.member_id, instance="one", session=waiting) == PARKED
    again = bench.join("g", instance="one", session=bench.connect())
    assert again == PARKED
    answer = bench.answer_on(waiting, join_group, 9)
    assert (answer.error_code, answer.member_id) == (E.FENCED_INSTANCE_ID, one.member_id)
    assert bench.join("g", two.member_id, instance="two").generation_id == 3


def test_the_waiting_sync_of_a_static_member_that_was_replaced_is_fenced(bench):
    one, two = group_of(bench, "one", "two")
    joining = bench.connect()
    assert bench.join("g", one.member_id, instance="one", session=joining) == PARKED
    bench.join("g", two.member_id, instance="two")
    syncing = bench.connect()
    more = {"group_instance_id": "two", "session": syncing}
    assert bench.sync("g", two.member_id, 3, **more) == PARKED
    assert bench.join("g", instance="two") == PARKED, "it is too late to give it a part"
    assert bench.answer_on(syncing, sync_group, 5).error_code == E.FENCED_INSTANCE_ID
    assert bench.heartbeat("g", one.member_id, 3, instance="one") == E.REBALANCE_IN_PROGRESS


def test_a_static_member_that_starts_again_and_reads_other_topics_moves_nobody(bench):
    """As in Apache Kafka: the leader's client looks after that."""
    one, _ = group_of(bench, "one", "two")
    changed = {"range": subscription("orders", "more")}
    again = bench.join("g", instance="two", protocols=changed)
    assert (again.error_code, again.generation_id) == (E.NONE, 2)
    assert bench.heartbeat("g", one.member_id, 2, instance="one") == E.NONE
    members = described(bench).members
    metadata = {member.group_instance_id: member.member_metadata for member in members}
    assert metadata == {"one": subscription("orders"), "two": changed["range"]}


def test_a_static_member_that_starts_again_with_other_protocols_may_change_the_choice(bench):
    both = {"range": subscription("orders"), "sticky": subscription("orders")}
    one, _ = group_of(bench, "one", "two", protocols=both)
    only = {"sticky": subscription("orders")}
    waiting = bench.connect()
    assert bench.join("g", instance="two", protocols=only, session=waiting) == PARKED
    assert bench.heartbeat("g", one.member_id, 2, instance="one") == E.REBALANCE_IN_PROGRESS
    assert bench.join("g", one.member_id, instance="one", protocols=both).protocol_name == "sticky"
    assert bench.answer_on(waiting, join_group, 9).generation_id == 3


def test_a_static_member_that_starts_again_with_no_common_protocol_is_refused(bench):
    one, _ = group_of(bench, "one", "two")
    refused = bench.join("g", instance="two", protocols={"sticky": b""})
    assert refused.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert bench.heartbeat("g", one.member_id, 2, instance="one") == E.NONE


def test_a_static_member_that_does_not_come_to_a_rebalance_keeps_its_place(bench):
    """Its session ends it, not the rebalance: it may be starting again."""
    one, two = group_of(bench, "one", "two")
    assert bench.join("g", one.member_id, instance="one") == PARKED
    _, joining, _ = bench.member("g")
    for _ in range(4):
        bench.heartbeat("g", two.member_id, 2, instance="two")
        bench.advance(8_000)
    answer = bench.answer_on(joining, join_group, 9)
    assert answer.generation_id == 3
    assert len(described(bench).members) == 3
    assert bench.join("g", instance="two") == PARKED, "all join once more, now with its new id"


def test_a_static_member_that_was_replaced_cannot_leave_commit_or_join(bench):
    bench.create("orders")
    _, two = group_of(bench, "one", "two")
    again = bench.join("g", instance="two")
    old, new = two.member_id, again.member_id
    [left] = bench.leave("g", old, instance="two").members
    assert left.error_code == E.FENCED_INSTANCE_ID
    who = {"member": (old, 2), "instance": "two"}
    assert bench.commit("g", "orders", 1, **who) == E.FENCED_INSTANCE_ID
    assert bench.join("g", old, instance="two").error_code == E.FENCED_INSTANCE_ID
    assert bench.sync("g", old, 2, group_instance_id="two").error_code == E.FENCED_INSTANCE_ID
    assert bench.commit("g", "orders", 1, member=(new, 2), instance="two") == E.NONE
    [left] = bench.leave("g", new, instance="two").members
    assert left.error_code == E.NONE


def test_several_static_members_are_removed_by_one_request(bench):
    one, _, _ = group_of(bench, "one", "two", "three")
    members = [leave_group.MemberIdentity("", name) for name in ("two", "three", "four")]
    request = leave_group.LeaveGroupRequest("g", "", members)
    answers = bench.ask(leave_group, request).members
    assert [left.error_code for left in answers] == [E.NONE, E.NONE, E.UNKNOWN_MEMBER_ID]
    answer = bench.join("g", one.member_id, instance="one")
    assert (answer.generation_id, len(answer.members)) == (3, 1)


def test_a_static_leader_that_does_not_come_to_a_rebalance_is_followed_by_one_that_did(bench):
    one, two = group_of(bench, "one", "two")
    waiting = bench.connect()
    changed = {"range": subscription("orders", "more")}
    joining = {"instance": "two", "protocols": changed, "session": waiting}
    assert bench.join("g", two.member_id, **joining) == PARKED
    for _ in range(4):
        bench.heartbeat("g", one.member_id, 2, instance="one")
        bench.advance(8_000)
    answer = bench.answer_on(waiting, join_group, 9)
    assert (answer.generation_id, answer.leader) == (3, two.member_id)
    assert {member.group_instance_id for member in answer.members} == {"one", "two"}


def test_a_rebalance_to_which_no_static_member_comes_goes_on_until_one_does(bench):
    """Nobody could lead. They live, so they may come yet; their sessions end those that do not."""
    one, two = group_of(bench, "one", "two")
    third, gone, _ = bench.member("g")
    bench.leave("g", third)
    for _ in range(5):
        for member in (one, two):
            code = bench.heartbeat("g", member.member_id, 2, instance=member_name(one, member))
            assert code == E.REBALANCE_IN_PROGRESS
        bench.advance(8_000)
    assert described(bench).group_state == "PreparingRebalance"
    bench.join("g", one.member_id, instance="one")
    assert bench.join("g", two.member_id, instance="two").generation_id == 3
    assert bench.answer_on(gone, join_group, 9).error_code == E.UNKNOWN_MEMBER_ID


def member_name(one, member):
    return "one" if member is one else "two"


def test_a_rebalance_goes_on_at_once_when_the_last_one_it_waits_for_is_out(bench):
    first, second = (one.member_id for one in group_of(bench, None, None))
    waiting = bench.connect()
    assert bench.join("g", first, session=waiting) == PARKED
    bench.advance(10_001)  # the second one's session is over, long before the rebalance's time
    answer = bench.answer_on(waiting, join_group, 9)
    assert (answer.generation_id, len(answer.members)) == (3, 1)
    assert bench.heartbeat("g", second, 2) == E.UNKNOWN_MEMBER_ID


def test_only_the_latest_request_of_a_member_waits(bench):
    """It has given the one before up, and asks again on another connection."""
    first, second = (one.member_id for one in group_of(bench, None, None))
    before, after = bench.connect(), bench.connect()
    assert bench.join("g", first, session=before) == PARKED
    assert bench.join("g", first, session=after) == PARKED
    assert bench.answer_on(before, join_group, 9).error_code == E.UNKNOWN_MEMBER_ID
    assert bench.join("g", second).generation_id == 3
    assert bench.answer_on(after, join_group, 9).generation_id == 3
    before, after = bench.connect(), bench.connect()
    assert bench.sync("g", second, 3, session=before) == PARKED
    assert bench.sync("g", second, 3, session=after) == PARKED
    assert bench.answer_on(before, sync_group, 5).error_code == E.UNKNOWN_MEMBER_ID
    assert bench.sync("g", first, 3, {second: b"mine"}).error_code == E.NONE
    assert bench.answer_on(after, sync_group, 5).assignment == b"mine"


def test_a_commit_between_the_join_and_the_assignment_is_put_off(bench):
    bench.create("orders")
    member, _, joined = bench.member("g")
    who = (member, joined.generation_id)
    assert bench.commit("g", "orders", 1, member=who) == E.REBALANCE_IN_PROGRESS
    bench.sync("g", member, joined.generation_id, {member: b"part"})
    assert bench.commit("g", "orders", 1, member=who) == E.NONE


def test_a_promised_id_cannot_become_a_static_member(bench):
    promised = bench.join("g").member_id
    assert bench.join("g", promised, instance="one").error_code == E.UNKNOWN_MEMBER_ID
