"""Classic groups as their members see them: joining, syncing, heartbeats, leaving, time."""

import pytest

from headrace.node.process.folders.real_disk import RealFile
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    delete_groups,
    describe_groups,
    join_group,
    leave_group,
    list_groups,
    offset_fetch,
    sync_group,
)
from tests.unit.node.broker.groups.group_rig import GroupRig, subscription
from tests.unit.node.broker.rig import WAITS

E = ErrorCode


@pytest.fixture
def rig(tmp_path):
    rig = GroupRig(tmp_path / "data")
    rig.find("g")
    return rig


def state_of(rig, group="g", version=5):
    request = describe_groups.DescribeGroupsRequest([group])
    return rig.ask(describe_groups, request, version=version).groups[0]


def test_the_offsets_topic_comes_into_being_when_somebody_asks_for_a_coordinator(tmp_path):
    rig = GroupRig(tmp_path / "data")
    assert rig.join("g").error_code == E.NOT_COORDINATOR
    [found] = rig.find("g").coordinators
    assert (found.node_id, found.host, found.port, found.error_code) == (1, "127.0.0.1", 9092, 0)
    assert len(rig.node.broker.topics.by_name["__consumer_offsets"].replicas) == 3
    assert rig.find("g", version=0).node_id == 1


def test_a_type_that_no_coordinator_serves_is_refused(rig):
    [found] = rig.find("g", key_type=9).coordinators
    assert found.error_code == E.INVALID_REQUEST


def test_a_new_member_is_given_an_id_first_and_waits_for_nobody_in_a_group_of_one(rig):
    first = rig.join("g")
    assert first.error_code == E.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("rig-")
    answer = rig.join("g", first.member_id)
    assert answer.error_code == E.NONE
    assert (answer.generation_id, answer.protocol_name) == (1, "range")
    assert answer.leader == answer.member_id == first.member_id
    assert [member.metadata for member in answer.members] == [subscription("orders")]


@pytest.mark.parametrize("version", join_group.VERSIONS)
def test_every_version_joins_and_syncs(rig, version):
    member_id = rig.join("g", version=version).member_id if version >= 4 else ""
    answer = rig.join("g", member_id, version=version)
    assert answer.error_code == E.NONE
    part = {answer.member_id: b"all"}
    synced = rig.sync("g", answer.member_id, 1, part, version=min(version, 5))
    assert synced.assignment == b"all"
    assert rig.heartbeat("g", answer.member_id, 1, version=min(version, 4)) == E.NONE
    left = rig.leave("g", answer.member_id, version=min(version, 5))
    assert left.error_code == E.NONE


def test_a_second_member_makes_both_join_anew_and_the_leader_assigns(rig):
    first, generation = rig.stable_group("g")
    second, joining, answer = rig.member("g")
    assert answer == WAITS
    assert rig.heartbeat("g", first, generation) == E.REBALANCE_IN_PROGRESS
    leader = rig.join("g", first)
    assert leader.generation_id == 2
    assert {member.member_id for member in leader.members} == {first, second}
    follower = rig.answer_on(joining, join_group, 9)
    assert (follower.generation_id, follower.leader, follower.members) == (2, first, [])
    syncing = rig.connect()
    assert rig.sync("g", second, 2, session=syncing) == WAITS
    parts = {first: b"a", second: b"b"}
    assert rig.sync("g", first, 2, parts).assignment == b"a"
    assert rig.answer_on(syncing, sync_group, 5).assignment == b"b"
    assert state_of(rig).group_state == "Stable"


def test_another_generation_is_refused(rig):
    member, generation = rig.stable_group("g")
    assert rig.heartbeat("g", member, generation + 1) == E.ILLEGAL_GENERATION
    assert rig.sync("g", member, generation - 1).error_code == E.ILLEGAL_GENERATION
    rig.create("orders")
    assert rig.commit("g", "orders", 1, member=(member, generation - 1)) == E.ILLEGAL_GENERATION
    assert rig.commit("g", "orders", 1, member=(member, generation)) == E.NONE


def test_whoever_is_not_a_member_is_refused(rig):
    rig.stable_group("g")
    assert rig.heartbeat("g", "stranger", 1) == E.UNKNOWN_MEMBER_ID
    assert rig.heartbeat("nobody", "stranger", 1) == E.UNKNOWN_MEMBER_ID
    assert rig.sync("g", "stranger", 1).error_code == E.UNKNOWN_MEMBER_ID
    assert rig.join("g", "stranger").error_code == E.UNKNOWN_MEMBER_ID
    assert rig.join("nobody", "stranger").error_code == E.UNKNOWN_MEMBER_ID
    [left] = rig.leave("g", "stranger").members
    assert left.error_code == E.UNKNOWN_MEMBER_ID
    assert rig.leave("nobody", "stranger", version=2).error_code == E.UNKNOWN_MEMBER_ID
    rig.create("orders")
    assert rig.commit("g", "orders", 1) == E.UNKNOWN_MEMBER_ID


def test_protocols_must_have_one_that_all_know(rig):
    options = {"protocols": {"range": b"r", "roundrobin": b"rr"}}
    first, _, _ = rig.member("g", **options)
    assert rig.join("g", protocols={"sticky": b"s"}).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    other_type = rig.join("g", protocol_type="connect")
    assert other_type.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    second, joining, answer = rig.member("g", protocols={"roundrobin": b"x"})
    assert answer == WAITS
    assert rig.join("g", first, **options).protocol_name == "roundrobin"
    assert rig.join("empty", protocols={}).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert rig.join("empty", protocol_type="").error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert not any("empty" in machine.groups for machine in machines(rig))


def machines(rig):
    return list(rig.node.broker.groups.machines(rig.now))


def test_absurd_timeouts_and_names_are_refused(rig):
    for absurd in (5_999, 1_800_001, -1, 2**31 - 1):
        assert rig.join("g", session_timeout_ms=absurd).error_code == E.INVALID_SESSION_TIMEOUT
    assert rig.join("").error_code == E.INVALID_GROUP_ID
    assert rig.heartbeat("", "m", 1) == E.INVALID_GROUP_ID


def test_a_silent_member_is_out_after_its_session(rig):
    first, _ = rig.stable_group("g")
    second, joining, _ = rig.member("g")
    rig.join("g", first)
    assert rig.sync("g", first, 2, {first: b"a", second: b"b"}).error_code == E.NONE
    assert rig.sync("g", second, 2).assignment == b"b"
    for _ in range(4):
        rig.advance(3_000)
        assert rig.heartbeat("g", first, 2) in (E.NONE, E.REBALANCE_IN_PROGRESS)
    assert rig.heartbeat("g", second, 2) == E.UNKNOWN_MEMBER_ID
    assert rig.join("g", first).generation_id == 3


def test_a_member_whose_request_waits_here_is_not_silent(rig):
    first, _ = rig.stable_group("g")
    second, joining, _ = rig.member("g")
    for _ in range(6):
        rig.advance(4_000)
        rig.heartbeat("g", first, 1)
    assert not joining.outbox
    assert rig.join("g", first).generation_id == 2
    assert rig.answer_on(joining, join_group, 9).error_code == E.NONE


def test_a_rebalance_goes_on_without_those_who_do_not_come(rig):
    first, _ = rig.stable_group("g")
    second, joining, _ = rig.member("g", rebalance_timeout_ms=15_000)
    for _ in range(7):
        rig.heartbeat("g", first, 1)
        rig.advance(5_000)
    answer = rig.answer_on(joining, join_group, 9)
    assert (answer.generation_id, answer.leader) == (2, second)
    assert rig.heartbeat("g", first, 2) == E.UNKNOWN_MEMBER_ID


def test_a_member_that_never_syncs_is_out(rig):
    member, _, joined = rig.member("g")
    for _ in range(7):
        rig.heartbeat("g", member, 1)
        rig.advance(5_000)
    assert rig.heartbeat("g", member, 1) == E.UNKNOWN_MEMBER_ID
    assert state_of(rig).group_state == "Empty"


def test_a_follower_is_freed_when_the_leader_dies_before_it_assigns(rig):
    first, _ = rig.stable_group("g")
    second, joining, _ = rig.member("g")
    rig.join("g", first)
    syncing = rig.connect()
    assert rig.sync("g", second, 2, session=syncing) == WAITS
    rig.advance(11_000)
    answer = rig.answer_on(syncing, sync_group, 5)
    assert answer.error_code == E.REBALANCE_IN_PROGRESS
    assert rig.join("g", second).leader == second


def test_leaving_is_noticed_at_once(rig):
    first, _ = rig.stable_group("g")
    second, joining, _ = rig.member("g")
    [left] = rig.leave("g", first).members
    assert left.error_code == E.NONE
    assert rig.answer_on(joining, join_group, 9).leader == second
    rig.leave("g", second)
    described = state_of(rig)
    assert (described.group_state, described.members) == ("Empty", [])


def test_ids_that_are_never_used_leave_nothing_behind(rig):
    for n in range(500):
        assert rig.join(f"made-up-{n}").error_code == E.MEMBER_ID_REQUIRED
    assert sum(len(machine.groups) for machine in machines(rig)) == 500
    rig.advance(10_001)
    assert sum(len(machine.groups) for machine in machines(rig)) == 0
    assert all(len(machine.deadlines.at) == 1 for machine in machines(rig))


def test_a_group_has_only_so_many_members(tmp_path):
    rig = GroupRig(tmp_path / "data", group_max_size=1)
    rig.stable_group("g")
    assert rig.join("g").error_code == E.GROUP_MAX_SIZE_REACHED


def test_the_first_rebalance_waits_for_others_to_appear(tmp_path):
    rig = GroupRig(tmp_path / "data", group_initial_rebalance_delay_ms=3_000)
    rig.find("g")
    first, waiting, answer = rig.member("g")
    assert answer == WAITS
    rig.advance(2_000)
    second, waiting_too, _ = rig.member("g")
    rig.advance(1_500)
    assert not waiting.outbox  # the delay goes on, as somebody came
    rig.advance(3_000)
    answer = rig.answer_on(waiting, join_group, 9)
    assert {member.member_id for member in answer.members} == {first, second}
    assert rig.answer_on(waiting_too, join_group, 9).generation_id == 1


# ---- static members


def static_group(rig, *instances):
    """The members by instance id, all with their parts."""
    sessions = {name: rig.connect() for name in instances}
    members = {}
    for name in instances:
        answer = rig.join("g", instance=name, session=sessions[name])
        if answer != WAITS:
            members[name] = answer
            continue
        first = instances[0]
        members[first] = rig.join("g", members[first].member_id, instance=first)
        members[name] = rig.answer_on(sessions[name], join_group, 9)
    parts = {answer.member_id: name.encode() for name, answer in members.items()}
    for name in instances:
        rig.sync("g", members[name].member_id, len(instances), parts, group_instance_id=name)
    return members


def test_a_static_member_that_starts_again_gets_its_part_without_a_rebalance(rig):
    members = static_group(rig, "one", "two")
    again = rig.join("g", instance="two")
    assert again.error_code == E.NONE
    assert again.generation_id == 2
    assert again.member_id != members["two"].member_id
    synced = rig.sync("g", again.member_id, 2, group_instance_id="two")
    assert synced.assignment == b"two"
    assert rig.heartbeat("g", members["one"].member_id, 2) == E.NONE
    old = members["two"].member_id
    assert rig.heartbeat("g", old, 2, instance="two") == E.FENCED_INSTANCE_ID


def test_a_static_leader_that_starts_again_is_told_to_skip_the_assignment(rig):
    members = static_group(rig, "one", "two")
    again = rig.join("g", instance="one")
    assert (again.leader, again.skip_assignment) == (again.member_id, True)
    assert len(again.members) == 2
    older = rig.join("g", instance="one", version=8)
    assert older.leader == again.member_id  # its old id, so that it does not assign
    assert older.member_id != older.leader
    assert members


def test_a_static_member_leaves_by_its_instance(rig):
    static_group(rig, "one", "two")
    [left] = rig.leave("g", "", instance="two").members
    assert left.error_code == E.NONE
    [left] = rig.leave("g", "", instance="two").members
    assert left.error_code == E.UNKNOWN_MEMBER_ID


def test_a_static_member_is_out_after_its_session(rig):
    members = static_group(rig, "one", "two")
    rig.advance(9_000)
    one = members["one"].member_id
    rig.heartbeat("g", one, 2, instance="one")
    rig.advance(2_000)
    assert rig.heartbeat("g", one, 2, instance="one") == E.REBALANCE_IN_PROGRESS


# ---- looking at groups and deleting them


def test_groups_are_listed_by_state_and_type(rig):
    rig.create("orders")
    rig.stable_group("g")
    rig.commit("offsets-only", "orders", 1)

    def listed(*states, types=()):
        request = list_groups.ListGroupsRequest(list(states), list(types))
        found = rig.ask(list_groups, request).groups
        return {(group.group_id, group.group_state, group.protocol_type) for group in found}

    stable, empty = ("g", "Stable", "consumer"), ("offsets-only", "Empty", "")
    assert listed() == {stable, empty}
    assert listed("stable") == {stable}
    assert listed("Empty", types=["classic"]) == {empty}
    assert listed(types=["consumer"]) == set()


def test_a_group_is_described_with_its_members(rig):
    member, _ = rig.stable_group("g")
    described = state_of(rig)
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    [found] = described.members
    assert (found.member_id, found.client_id, found.client_host) == (member, "rig", "/127.0.0.1")
    assert (found.member_metadata, found.member_assignment) == (subscription("orders"), b"part")
    missing = state_of(rig, "never-was")
    assert (missing.error_code, missing.group_state) == (E.NONE, "Dead")
    assert state_of(rig, "never-was", version=6).error_code == E.GROUP_ID_NOT_FOUND


def test_only_groups_without_members_are_deleted(rig):
    rig.create("orders")
    member, generation = rig.stable_group("g")
    rig.commit("g", "orders", 7, member=(member, generation))

    def delete(*names):
        request = delete_groups.DeleteGroupsRequest(list(names))
        results = rig.ask(delete_groups, request).results
        return {result.group_id: result.error_code for result in results}

    assert delete("g", "never-was") == {"g": E.NON_EMPTY_GROUP, "never-was": E.GROUP_ID_NOT_FOUND}
    rig.leave("g", member)
    assert delete("g") == {"g": E.NONE}
    assert rig.committed("g", "orders") == -1
    assert state_of(rig).group_state == "Dead"


# ---- after a restart


def test_members_go_on_after_a_restart(rig, tmp_path):
    rig.create("orders")
    member, generation = rig.stable_group("g", b"my part")
    rig.commit("g", "orders", 7, member=(member, generation))
    again = GroupRig(tmp_path / "data")  # as after kill -9: nothing was closed
    assert again.heartbeat("g", member, generation) == E.NONE
    assert again.sync("g", member, generation).assignment == b"my part"
    assert again.committed("g", "orders") == 7
    assert state_of(again).members[0].client_host == "/127.0.0.1"
    again.advance(10_001)
    assert state_of(again).group_state == "Empty"


def test_a_static_member_keeps_its_place_over_a_restart_of_both(rig, tmp_path):
    static_group(rig, "one", "two")
    again = GroupRig(tmp_path / "data")
    joined = again.join("g", instance="two")
    assert again.sync("g", joined.member_id, 2, group_instance_id="two").assignment == b"two"


# ---- the disk


def test_answers_wait_for_the_disk_where_that_is_promised(tmp_path):
    rig = GroupRig(tmp_path / "data", headrace_durability="disk")
    rig.create("orders")
    rig.find("g")
    member, _, joined = rig.member("g")
    rig.flushes_wait = True
    session = rig.connect()
    assert rig.sync("g", member, 1, {member: b"part"}, session=session) == WAITS
    rig.run_background()
    rig.until_idle()
    assert rig.answer_on(session, sync_group, 5).assignment == b"part"
    assert rig.commit("g", "orders", 3, member=(member, 1)) == WAITS
    everything = offset_fetch.OffsetFetchRequestGroup("g", None, -1, None)
    request = offset_fetch.OffsetFetchRequest(groups=[everything])
    assert rig.ask(offset_fetch, request, version=9) == WAITS  # not before the disk has it
    rig.run_background()
    rig.flushes_wait = False
    rig.until_idle()
    assert rig.committed("g", "orders") == 3


@pytest.mark.parametrize("version", [2, 3])
def test_a_leave_waits_for_the_disk_and_is_answered_as_its_version_says_it(tmp_path, version):
    rig = GroupRig(tmp_path / "data", headrace_durability="disk")
    member, _ = rig.stable_group("g")
    rig.flushes_wait = True
    first, again = rig.connect(), rig.connect()
    assert rig.leave("g", member, version=version, session=first) == WAITS
    assert rig.leave("g", member, version=version, session=again) == WAITS
    rig.run_background()
    rig.flushes_wait = False
    rig.until_idle()
    for session, code in ((first, E.NONE), (again, E.UNKNOWN_MEMBER_ID)):
        answer = rig.answer_on(session, leave_group, version)
        said = [answer.error_code, *(one.error_code for one in answer.members)]
        assert said == ([code] if version < 3 else [E.NONE, code])
    assert state_of(rig).group_state == "Empty"


@pytest.mark.parametrize(
    ("messages", "request_"),
    [
        (describe_groups, describe_groups.DescribeGroupsRequest(["g"])),
        (list_groups, list_groups.ListGroupsRequest()),
    ],
)
def test_nobody_is_told_of_a_group_that_the_disk_does_not_have_yet(tmp_path, messages, request_):
    rig = GroupRig(tmp_path / "data", headrace_durability="disk")
    rig.find("g")
    member, _, joined = rig.member("g")
    rig.flushes_wait = True
    assert rig.sync("g", member, 1, {member: b"part"}) == WAITS
    session = rig.connect()
    assert rig.ask(messages, request_, session=session) == WAITS
    rig.run_background()
    rig.flushes_wait = False
    rig.until_idle()
    [group] = rig.answer_on(session, messages).groups
    assert (group.group_id, group.group_state) == ("g", "Stable")


def test_a_refused_assignment_is_told_to_all_who_wait_for_it(rig, monkeypatch):
    """Else the others would wait until their requests time out."""
    first, _ = rig.stable_group("g")
    second, _, _ = rig.member("g")
    rig.join("g", first)
    waiting = rig.connect()
    assert rig.sync("g", second, 2, session=waiting) == WAITS

    def no_space(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(RealFile, "append", no_space)
        refused = rig.sync("g", first, 2, {first: b"x" * 4_000})
    assert refused.error_code == E.NOT_COORDINATOR
    assert rig.answer_on(waiting, sync_group, 5).error_code == E.NOT_COORDINATOR
    for member in (first, second):
        assert rig.heartbeat("g", member, 2) == E.REBALANCE_IN_PROGRESS


def test_a_node_that_stops_answers_those_who_wait(rig):
    first, _ = rig.stable_group("g")
    second, joining, _ = rig.member("g")
    rig.node.purgatory.answer_all()
    assert rig.answer_on(joining, join_group, 9).error_code == E.NOT_COORDINATOR
