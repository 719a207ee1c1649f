"""Classic groups as their members see them: joining, syncing, heartbeats, leaving, time."""

import pytest

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import (
    delete_groups,
    describe_groups,
    join_group,
    leave_group,
    list_groups,
    offset_fetch,
    sync_group,
)
from headrace.server.real_disk import RealFile
from tests.unit.broker.bench import PARKED
from tests.unit.broker.group_bench import GroupBench, subscription

E = ErrorCode


@pytest.fixture
def bench(tmp_path):
    bench = GroupBench(tmp_path / "data")
    bench.find("g")
    return bench


def state_of(bench, group="g", version=5):
    request = describe_groups.DescribeGroupsRequest([group])
    return bench.ask(describe_groups, request, version=version).groups[0]


def test_the_offsets_topic_comes_into_being_when_somebody_asks_for_a_coordinator(tmp_path):
    bench = GroupBench(tmp_path / "data")
    assert bench.join("g").error_code == E.NOT_COORDINATOR
    [found] = bench.find("g").coordinators
    assert (found.node_id, found.host, found.port, found.error_code) == (1, "127.0.0.1", 9092, 0)
    assert len(bench.node.broker.topics.by_name["__consumer_offsets"].replicas) == 3
    assert bench.find("g", version=0).node_id == 1


def test_a_type_that_no_coordinator_serves_is_refused(bench):
    [found] = bench.find("g", key_type=9).coordinators
    assert found.error_code == E.INVALID_REQUEST


def test_a_new_member_is_given_an_id_first_and_waits_for_nobody_in_a_group_of_one(bench):
    first = bench.join("g")
    assert first.error_code == E.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("bench-")
    answer = bench.join("g", first.member_id)
    assert answer.error_code == E.NONE
    assert (answer.generation_id, answer.protocol_name) == (1, "range")
    assert answer.leader == answer.member_id == first.member_id
    assert [member.metadata for member in answer.members] == [subscription("orders")]


@pytest.mark.parametrize("version", join_group.VERSIONS)
def test_every_version_joins_and_syncs(bench, version):
    member_id = bench.join("g", version=version).member_id if version >= 4 else ""
    answer = bench.join("g", member_id, version=version)
    assert answer.error_code == E.NONE
    part = {answer.member_id: b"all"}
    synced = bench.sync("g", answer.member_id, 1, part, version=min(version, 5))
    assert synced.assignment == b"all"
    assert bench.heartbeat("g", answer.member_id, 1, version=min(version, 4)) == E.NONE
    left = bench.leave("g", answer.member_id, version=min(version, 5))
    assert left.error_code == E.NONE


def test_a_second_member_makes_both_join_anew_and_the_leader_assigns(bench):
    first, generation = bench.stable_group("g")
    second, joining, answer = bench.member("g")
    assert answer == PARKED
    assert bench.heartbeat("g", first, generation) == E.REBALANCE_IN_PROGRESS
    leader = bench.join("g", first)
    assert leader.generation_id == 2
    assert {member.member_id for member in leader.members} == {first, second}
    follower = bench.answer_on(joining, join_group, 9)
    assert (follower.generation_id, follower.leader, follower.members) == (2, first, [])
    syncing = bench.connect()
    assert bench.sync("g", second, 2, session=syncing) == PARKED
    parts = {first: b"a", second: b"b"}
    assert bench.sync("g", first, 2, parts).assignment == b"a"
    assert bench.answer_on(syncing, sync_group, 5).assignment == b"b"
    assert state_of(bench).group_state == "Stable"


def test_another_generation_is_refused(bench):
    member, generation = bench.stable_group("g")
    assert bench.heartbeat("g", member, generation + 1) == E.ILLEGAL_GENERATION
    assert bench.sync("g", member, generation - 1).error_code == E.ILLEGAL_GENERATION
    bench.create("orders")
    assert bench.commit("g", "orders", 1, member=(member, generation - 1)) == E.ILLEGAL_GENERATION
    assert bench.commit("g", "orders", 1, member=(member, generation)) == E.NONE


def test_whoever_is_not_a_member_is_refused(bench):
    bench.stable_group("g")
    assert bench.heartbeat("g", "stranger", 1) == E.UNKNOWN_MEMBER_ID
    assert bench.heartbeat("nobody", "stranger", 1) == E.UNKNOWN_MEMBER_ID
    assert bench.sync("g", "stranger", 1).error_code == E.UNKNOWN_MEMBER_ID
    assert bench.join("g", "stranger").error_code == E.UNKNOWN_MEMBER_ID
    assert bench.join("nobody", "stranger").error_code == E.UNKNOWN_MEMBER_ID
    [left] = bench.leave("g", "stranger").members
    assert left.error_code == E.UNKNOWN_MEMBER_ID
    assert bench.leave("nobody", "stranger", version=2).error_code == E.UNKNOWN_MEMBER_ID
    bench.create("orders")
    assert bench.commit("g", "orders", 1) == E.UNKNOWN_MEMBER_ID


def test_protocols_must_have_one_that_all_know(bench):
    options = {"protocols": {"range": b"r", "roundrobin": b"rr"}}
    first, _, _ = bench.member("g", **options)
    assert bench.join("g", protocols={"sticky": b"s"}).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    other_type = bench.join("g", protocol_type="connect")
    assert other_type.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    second, joining, answer = bench.member("g", protocols={"roundrobin": b"x"})
    assert answer == PARKED
    assert bench.join("g", first, **options).protocol_name == "roundrobin"
    assert bench.join("empty", protocols={}).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert bench.join("empty", protocol_type="").error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert not any("empty" in machine.groups for machine in machines(bench))


def machines(bench):
    return list(bench.node.broker.groups.machines(bench.now))


def test_absurd_timeouts_and_names_are_refused(bench):
    for absurd in (5_999, 1_800_001, -1, 2**31 - 1):
        assert bench.join("g", session_timeout_ms=absurd).error_code == E.INVALID_SESSION_TIMEOUT
    assert bench.join("").error_code == E.INVALID_GROUP_ID
    assert bench.heartbeat("", "m", 1) == E.INVALID_GROUP_ID


def test_a_silent_member_is_out_after_its_session(bench):
    first, _ = bench.stable_group("g")
    second, joining, _ = bench.member("g")
    bench.join("g", first)
    assert bench.sync("g", first, 2, {first: b"a", second: b"b"}).error_code == E.NONE
    assert bench.sync("g", second, 2).assignment == b"b"
    for _ in range(4):
        bench.advance(3_000)
        assert bench.heartbeat("g", first, 2) in (E.NONE, E.REBALANCE_IN_PROGRESS)
    assert bench.heartbeat("g", second, 2) == E.UNKNOWN_MEMBER_ID
    assert bench.join("g", first).generation_id == 3


def test_a_member_whose_request_waits_here_is_not_silent(bench):
    first, _ = bench.stable_group("g")
    second, joining, _ = bench.member("g")
    for _ in range(6):
        bench.advance(4_000)
        bench.heartbeat("g", first, 1)
    assert not joining.outbox
    assert bench.join("g", first).generation_id == 2
    assert bench.answer_on(joining, join_group, 9).error_code == E.NONE


def test_a_rebalance_goes_on_without_those_who_do_not_come(bench):
    first, _ = bench.stable_group("g")
    second, joining, _ = bench.member("g", rebalance_timeout_ms=15_000)
    for _ in range(7):
        bench.heartbeat("g", first, 1)
        bench.advance(5_000)
    answer = bench.answer_on(joining, join_group, 9)
    assert (answer.generation_id, answer.leader) == (2, second)
    assert bench.heartbeat("g", first, 2) == E.UNKNOWN_MEMBER_ID


def test_a_member_that_never_syncs_is_out(bench):
    member, _, joined = bench.member("g")
    for _ in range(7):
        bench.heartbeat("g", member, 1)
        bench.advance(5_000)
    assert bench.heartbeat("g", member, 1) == E.UNKNOWN_MEMBER_ID
    assert state_of(bench).group_state == "Empty"


def test_a_follower_is_freed_when_the_leader_dies_before_it_assigns(bench):
    first, _ = bench.stable_group("g")
    second, joining, _ = bench.member("g")
    bench.join("g", first)
    syncing = bench.connect()
    assert bench.sync("g", second, 2, session=syncing) == PARKED
    bench.advance(11_000)
    answer = bench.answer_on(syncing, sync_group, 5)
    assert answer.error_code == E.REBALANCE_IN_PROGRESS
    assert bench.join("g", second).leader == second


def test_leaving_is_noticed_at_once(bench):
    first, _ = bench.stable_group("g")
    second, joining, _ = bench.member("g")
    [left] = bench.leave("g", first).members
    assert left.error_code == E.NONE
    assert bench.answer_on(joining, join_group, 9).leader == second
    bench.leave("g", second)
    described = state_of(bench)
    assert (described.group_state, described.members) == ("Empty", [])


def test_ids_that_are_never_used_leave_nothing_behind(bench):
    for n in range(500):
        assert bench.join(f"made-up-{n}").error_code == E.MEMBER_ID_REQUIRED
    assert sum(len(machine.groups) for machine in machines(bench)) == 500
    bench.advance(10_001)
    assert sum(len(machine.groups) for machine in machines(bench)) == 0
    assert all(len(machine.deadlines.at) == 1 for machine in machines(bench))


def test_a_group_has_only_so_many_members(tmp_path):
    bench = GroupBench(tmp_path / "data", group_max_size=1)
    bench.stable_group("g")
    assert bench.join("g").error_code == E.GROUP_MAX_SIZE_REACHED


def test_the_first_rebalance_waits_for_others_to_appear(tmp_path):
    bench = GroupBench(tmp_path / "data", group_initial_rebalance_delay_ms=3_000)
    bench.find("g")
    first, waiting, answer = bench.member("g")
    assert answer == PARKED
    bench.advance(2_000)
    second, waiting_too, _ = bench.member("g")
    bench.advance(1_500)
    assert not waiting.outbox  # the delay goes on, as somebody came
    bench.advance(3_000)
    answer = bench.answer_on(waiting, join_group, 9)
    assert {member.member_id for member in answer.members} == {first, second}
    assert bench.answer_on(waiting_too, join_group, 9).generation_id == 1


# ---- static members


def static_group(bench, *instances):
    """The members by instance id, all with their parts."""
    sessions = {name: bench.connect() for name in instances}
    members = {}
    for name in instances:
        answer = bench.join("g", instance=name, session=sessions[name])
        if answer != PARKED:
            members[name] = answer
            continue
        first = instances[0]
        members[first] = bench.join("g", members[first].member_id, instance=first)
        members[name] = bench.answer_on(sessions[name], join_group, 9)
    parts = {answer.member_id: name.encode() for name, answer in members.items()}
    for name in instances:
        bench.sync("g", members[name].member_id, len(instances), parts, group_instance_id=name)
    return members


def test_a_static_member_that_starts_again_gets_its_part_without_a_rebalance(bench):
    members = static_group(bench, "one", "two")
    again = bench.join("g", instance="two")
    assert again.error_code == E.NONE
    assert again.generation_id == 2
    assert again.member_id != members["two"].member_id
    synced = bench.sync("g", again.member_id, 2, group_instance_id="two")
    assert synced.assignment == b"two"
    assert bench.heartbeat("g", members["one"].member_id, 2) == E.NONE
    old = members["two"].member_id
    assert bench.heartbeat("g", old, 2, instance="two") == E.FENCED_INSTANCE_ID


def test_a_static_leader_that_starts_again_is_told_to_skip_the_assignment(bench):
    members = static_group(bench, "one", "two")
    again = bench.join("g", instance="one")
    assert (again.leader, again.skip_assignment) == (again.member_id, True)
    assert len(again.members) == 2
    older = bench.join("g", instance="one", version=8)
    assert older.leader == again.member_id  # its old id, so that it does not assign
    assert older.member_id != older.leader
    assert members


def test_a_static_member_leaves_by_its_instance(bench):
    static_group(bench, "one", "two")
    [left] = bench.leave("g", "", instance="two").members
    assert left.error_code == E.NONE
    [left] = bench.leave("g", "", instance="two").members
    assert left.error_code == E.UNKNOWN_MEMBER_ID


def test_a_static_member_is_out_after_its_session(bench):
    members = static_group(bench, "one", "two")
    bench.advance(9_000)
    one = members["one"].member_id
    bench.heartbeat("g", one, 2, instance="one")
    bench.advance(2_000)
    assert bench.heartbeat("g", one, 2, instance="one") == E.REBALANCE_IN_PROGRESS


# ---- looking at groups and deleting them


def test_groups_are_listed_by_state_and_type(bench):
    bench.create("orders")
    bench.stable_group("g")
    bench.commit("offsets-only", "orders", 1)

    def listed(*states, types=()):
        request = list_groups.ListGroupsRequest(list(states), list(types))
        found = bench.ask(list_groups, request).groups
        return {(group.group_id, group.group_state, group.protocol_type) for group in found}

    stable, empty = ("g", "Stable", "consumer"), ("offsets-only", "Empty", "")
    assert listed() == {stable, empty}
    assert listed("stable") == {stable}
    assert listed("Empty", types=["classic"]) == {empty}
    assert listed(types=["consumer"]) == set()


def test_a_group_is_described_with_its_members(bench):
    member, _ = bench.stable_group("g")
    described = state_of(bench)
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    [found] = described.members
    assert (found.member_id, found.client_id, found.client_host) == (member, "bench", "/127.0.0.1")
    assert (found.member_metadata, found.member_assignment) == (subscription("orders"), b"part")
    missing = state_of(bench, "never-was")
    assert (missing.error_code, missing.group_state) == (E.NONE, "Dead")
    assert state_of(bench, "never-was", version=6).error_code == E.GROUP_ID_NOT_FOUND


def test_only_groups_without_members_are_deleted(bench):
    bench.create("orders")
    member, generation = bench.stable_group("g")
    bench.commit("g", "orders", 7, member=(member, generation))

    def delete(*names):
        request = delete_groups.DeleteGroupsRequest(list(names))
        results = bench.ask(delete_groups, request).results
        return {result.group_id: result.error_code for result in results}

    assert delete("g", "never-was") == {"g": E.NON_EMPTY_GROUP, "never-was": E.GROUP_ID_NOT_FOUND}
    bench.leave("g", member)
    assert delete("g") == {"g": E.NONE}
    assert bench.committed("g", "orders") == -1
    assert state_of(bench).group_state == "Dead"


# ---- after a restart


def test_members_go_on_after_a_restart(bench, tmp_path):
    bench.create("orders")
    member, generation = bench.stable_group("g", b"my part")
    bench.commit("g", "orders", 7, member=(member, generation))
    again = GroupBench(tmp_path / "data")  # as after kill -9: nothing was closed
    assert again.heartbeat("g", member, generation) == E.NONE
    assert again.sync("g", member, generation).assignment == b"my part"
    assert again.committed("g", "orders") == 7
    assert state_of(again).members[0].client_host == "/127.0.0.1"
    again.advance(10_001)
    assert state_of(again).group_state == "Empty"


def test_a_static_member_keeps_its_place_over_a_restart_of_both(bench, tmp_path):
    static_group(bench, "one", "two")
    again = GroupBench(tmp_path / "data")
    joined = again.join("g", instance="two")
    assert again.sync("g", joined.member_id, 2, group_instance_id="two").assignment == b"two"


# ---- the disk


def test_answers_wait_for_the_disk_where_that_is_promised(tmp_path):
    bench = GroupBench(tmp_path / "data", headrace_durability="disk")
    bench.create("orders")
    bench.find("g")
    member, _, joined = bench.member("g")
    bench.flushes_wait = True
    session = bench.connect()
    assert bench.sync("g", member, 1, {member: b"part"}, session=session) == PARKED
    bench.run_background()
    bench.settle()
    assert bench.answer_on(session, sync_group, 5).assignment == b"part"
    assert bench.commit("g", "orders", 3, member=(member, 1)) == PARKED
    everything = offset_fetch.OffsetFetchRequestGroup("g", None, -1, None)
    request = offset_fetch.OffsetFetchRequest(groups=[everything])
    assert bench.ask(offset_fetch, request, version=9) == PARKED  # not before the disk has it
    bench.run_background()
    bench.flushes_wait = False
    bench.settle()
    assert bench.committed("g", "orders") == 3


@pytest.mark.parametrize("version", [2, 3])
def test_a_leave_waits_for_the_disk_and_is_answered_as_its_version_says_it(tmp_path, version):
    bench = GroupBench(tmp_path / "data", headrace_durability="disk")
    member, _ = bench.stable_group("g")
    bench.flushes_wait = True
    first, again = bench.connect(), bench.connect()
    assert bench.leave("g", member, version=version, session=first) == PARKED
    assert bench.leave("g", member, version=version, session=again) == PARKED
    bench.run_background()
    bench.flushes_wait = False
    bench.settle()
    for session, code in ((first, E.NONE), (again, E.UNKNOWN_MEMBER_ID)):
        answer = bench.answer_on(session, leave_group, version)
        said = [answer.error_code, *(one.error_code for one in answer.members)]
        assert said == ([code] if version < 3 else [E.NONE, code])
    assert state_of(bench).group_state == "Empty"


@pytest.mark.parametrize(
    ("messages", "request_"),
    [
        (describe_groups, describe_groups.DescribeGroupsRequest(["g"])),
        (list_groups, list_groups.ListGroupsRequest()),
    ],
)
def test_nobody_is_told_of_a_group_that_the_disk_does_not_have_yet(tmp_path, messages, request_):
    bench = GroupBench(tmp_path / "data", headrace_durability="disk")
    bench.find("g")
    member, _, joined = bench.member("g")
    bench.flushes_wait = True
    assert bench.sync("g", member, 1, {member: b"part"}) == PARKED
    session = bench.connect()
    assert bench.ask(messages, request_, session=session) == PARKED
    bench.run_background()
    bench.flushes_wait = False
    bench.settle()
    [group] = bench.answer_on(session, messages).groups
    assert (group.group_id, group.group_state) == ("g", "Stable")


def test_a_refused_assignment_is_told_to_all_who_wait_for_it(bench, monkeypatch):
    """Else the others would wait until their requests time out."""
    first, _ = bench.stable_group("g")
    second, _, _ = bench.member("g")
    bench.join("g", first)
    waiting = bench.connect()
    assert bench.sync("g", second, 2, session=waiting) == PARKED

    def no_space(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(RealFile, "append", no_space)
        refused = bench.sync("g", first, 2, {first: b"x" * 4_000})
    assert refused.error_code == E.NOT_COORDINATOR
    assert bench.answer_on(waiting, sync_group, 5).error_code == E.NOT_COORDINATOR
    for member in (first, second):
        assert bench.heartbeat("g", member, 2) == E.REBALANCE_IN_PROGRESS


def test_a_node_that_stops_answers_those_who_wait(bench):
    first, _ = bench.stable_group("g")
    second, joining, _ = bench.member("g")
    bench.node.purgatory.answer_all()
    assert bench.answer_on(joining, join_group, 9).error_code == E.NOT_COORDINATOR
