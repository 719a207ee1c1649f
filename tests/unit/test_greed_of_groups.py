"""Hostile members of groups: names without end, garbled bytes, times that nobody can mean.

What a client makes up is bounded in bytes, not only in number, or goes with its session; bytes that
cannot be read are refused with a code and change nothing for others.
"""

from __future__ import annotations

import random

import pytest

from headrace.node.broker.coordinators import coordinators
from headrace.node.coordination.group import promised_ids
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import join_group, offset_delete, offset_fetch
from tests.unit.node.broker.groups.group_readers import Reader
from tests.unit.node.broker.groups.group_rig import GroupRig, subscription

E = ErrorCode
SEED = 4
MB = 1 << 20
HOUR_MS = 3_600_000
LONGEST_NAME = 32_767


@pytest.fixture
def rig(tmp_path):
    rig = GroupRig(tmp_path / "data", offsets_topic_num_partitions=1)
    rig.find("g")
    rig.create("orders", 3)
    return rig


def machine_of(rig):
    [machine] = rig.node.broker.groups.machines(rig.now)
    return machine


# ---- names ---------------------------------------------------------------------------------------


def test_ids_that_are_promised_to_long_names_are_bounded_in_bytes(rig, monkeypatch):
    """1,000 names of 32 KB in each of 50 partitions would be gigabytes."""
    monkeypatch.setattr(promised_ids, "MOST_BYTES", MB)
    for number in range(300):
        name = f"{number}-".ljust(LONGEST_NAME, "n")
        answer = rig.join(name, session_timeout_ms=1_800_000)
        assert answer.error_code == E.MEMBER_ID_REQUIRED
    rig.advance(1_000)
    machine = machine_of(rig)
    held = sum(len(group) for group in machine.groups)
    assert 0 < held <= MB
    assert len(machine.deadlines.at) == len(machine.groups) + 1
    assert rig.join(name, answer.member_id).generation_id == 1, "the latest may still join"


def test_ids_that_were_used_or_given_back_make_room_for_others(rig, monkeypatch):
    monkeypatch.setattr(promised_ids, "MOST_PROMISED", 2)
    kept = rig.join("kept").member_id
    for number in range(5):
        member_id = rig.join(f"joins-{number}").member_id
        assert rig.join(f"joins-{number}", member_id).error_code == E.NONE
        member_id = rig.join(f"leaves-{number}").member_id
        assert rig.leave(f"leaves-{number}", member_id).members[0].error_code == E.NONE
    rig.advance(1_000)
    assert rig.join("kept", kept).error_code == E.NONE, "there was room all the time"


def test_long_names_that_are_only_asked_for_are_not_remembered(rig):
    for number in range(200):
        name = f"{number}-".ljust(LONGEST_NAME, "n")
        wanted = offset_fetch.OffsetFetchRequestGroup(name, None, -1, None)
        request = offset_fetch.OffsetFetchRequest(groups=[wanted])
        assert rig.ask(offset_fetch, request, version=9).groups[0].error_code == E.NONE
    places = rig.node.broker.groups._shards_by_key
    assert sum(map(len, places)) < MB
    for number in range(coordinators.MOST_KEYS_REMEMBERED + 10):
        rig.node.broker.groups.shard_of(f"short-{number}")
    assert len(places) <= coordinators.MOST_KEYS_REMEMBERED


# ---- what goes with its session ------------------------------------------------------------------


def test_made_up_groups_with_members_go_when_their_members_have_gone_silent(rig):
    """As older clients join: at once, without an id first. Nothing is left of them in the end."""
    before = len(machine_of(rig).deadlines.at)
    for number in range(500):
        answer = rig.join(f"old-{number}", version=3, session_timeout_ms=6_000)
        assert answer.error_code == E.NONE
        static = rig.join(f"static-{number}", instance="i", session_timeout_ms=6_000)
        assert static.error_code == E.NONE
        assert Reader(rig, f"new-{number}", "m", "orders").beat().error_code == E.NONE
    machine = machine_of(rig)
    assert len(machine.groups) == 1_500
    rig.advance(60_000)
    assert not any(group.members for group in machine.groups.values())
    rig.advance(HOUR_MS)
    assert not machine.groups and len(machine.deadlines.at) == before
    answer = rig.join("old-0", version=3)
    assert answer.generation_id == 1, "it is a new group"


# ---- bytes that cannot be read -------------------------------------------------------------------

GOOD = subscription("orders")
GIVEN = b"\0\0" + b"\0\0\0\1" + b"\0\x06orders" + b"\0\0\0\2" + bytes(4) + b"\0\0\0\1" + b"\xff" * 4
LENGTHS = {
    "a count too large": b"\0\0\x7f\xff\xff\xff\0\x06orders",
    "a negative count": b"\0\0\xff\xff\xff\xfe\0\x06orders",
    "a name without length": b"\0\0\0\0\0\1\xff\xff\xff\xff\xff\xff",
    "a name longer than all": b"\0\0\0\0\0\1\x7f\xfforders",
    "a name that is no text": b"\0\0\0\0\0\1\0\2\xff\xfe\xff\xff\xff\xff",
    "nothing": b"",
}


def garbled(chance, good):
    """Good bytes with a few changed, cut or added: almost right is where readers go wrong."""
    data = bytearray(good)
    for _ in range(chance.randrange(1, 4)):
        match chance.randrange(3):
            case 0:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            case 1:
                del data[chance.randrange(len(data)) + 1 :]
            case _:
                data += chance.randbytes(chance.randrange(1, 9))
    return bytes(data)


@pytest.mark.parametrize("data", LENGTHS.values(), ids=LENGTHS)
def test_a_classic_group_takes_any_subscription_and_goes_on(rig, data):
    """It hands them from member to member; what it would like to know of them it does not."""
    member_id, _, joined = rig.member("g", protocols={"range": data})
    assert joined.error_code == E.NONE
    assert rig.sync("g", member_id, 1, {member_id: b"part"}).assignment == b"part"
    assert rig.heartbeat("g", member_id, 1) == E.NONE
    part = offset_delete.OffsetDeleteRequestPartition(0)
    topic = offset_delete.OffsetDeleteRequestTopic("orders", [part])
    request = offset_delete.OffsetDeleteRequest("g", [topic])
    [answer] = rig.ask(offset_delete, request).topics
    assert answer.partitions[0].error_code == E.GROUP_SUBSCRIBED_TO_TOPIC, "it may read it"
    assert Reader(rig, "g", "new", "orders").beat().error_code == E.GROUP_ID_NOT_FOUND
    assert rig.heartbeat("g", member_id, 1) == E.NONE, "nothing has changed for it"


def test_garbled_subscriptions_and_assignments_are_taken_or_refused_and_nothing_else(rig):
    """Groups of classic members with such bytes, changed over by a member of the newer protocol."""
    chance = random.Random(SEED)
    seen = set()
    for number in range(600):
        group = f"g{number}"
        protocols = {"range": garbled(chance, GOOD) if number % 3 else GOOD}
        member_id, _, joined = rig.member(group, protocols=protocols)
        assert joined.error_code == E.NONE
        part = garbled(chance, GIVEN) if number % 2 else GIVEN
        assert rig.sync(group, member_id, 1, {member_id: part}).error_code == E.NONE
        answer = Reader(rig, group, "new", "orders").beat()
        seen.add(answer.error_code)
        code = rig.heartbeat(group, member_id, 1)
        assert code in (E.NONE, E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION)
    assert seen == {E.NONE, E.GROUP_ID_NOT_FOUND}


def test_garbled_classic_members_of_a_consumer_group_are_refused(rig):
    reader = Reader(rig, "g", "m", "orders")
    reader.beat()
    chance = random.Random(SEED)
    seen = set()
    for number in range(600):
        data = garbled(chance, GOOD)
        answer = rig.join("g", f"stranger-{number}", protocols={"range": data})
        seen.add(answer.error_code)
        if answer.error_code == E.NONE:
            rig.sync("g", answer.member_id, answer.generation_id)
            rig.leave("g", answer.member_id)
    assert seen == {E.NONE, E.INCONSISTENT_GROUP_PROTOCOL}
    assert reader.beat().error_code == E.NONE


def test_partitions_that_nobody_has_are_not_believed(rig):
    """Of a member that says it owns them, and of a leader that gave them away."""
    reader = Reader(rig, "g", "m", "orders")
    reader.beat()
    made_up = {b"\x13" * 16: {0}, bytes(16): {1}, next(iter(reader.owned)): {-1, 99}}
    reader.beat(owned=made_up)
    other = Reader(rig, "g", "n", "orders")
    other.beat()
    for _ in range(4):
        reader.beat()
        other.beat()
    assert sorted([*reader.has["orders"], *other.has["orders"]]) == [0, 1, 2]


# ---- times -------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [-(2**31), -1, 0, 5_999, 1_800_001, 2**31 - 1])
def test_sessions_that_cannot_be_are_refused(rig, timeout_ms):
    answer = rig.join("g", session_timeout_ms=timeout_ms)
    assert answer.error_code == E.INVALID_SESSION_TIMEOUT and not machine_of(rig).groups


@pytest.mark.parametrize("timeout_ms", [-(2**31), -1, 0])
def test_who_leaves_no_time_for_a_rebalance_is_out_at_once(rig, timeout_ms):
    member_id, _, joined = rig.member("g", rebalance_timeout_ms=timeout_ms)
    assert joined.error_code == E.NONE
    rig.advance(1_000)
    assert rig.heartbeat("g", member_id, 1) == E.UNKNOWN_MEMBER_ID
    rig.advance(HOUR_MS)
    assert not machine_of(rig).groups


def test_who_asks_for_24_days_is_out_when_its_session_is_over(rig):
    """A rebalance that may take 24 days does not keep a silent member, nor the others waiting."""
    never_ms = 2**31 - 1
    first, _, _ = rig.member("g", rebalance_timeout_ms=never_ms)
    rig.sync("g", first, 1, {first: b"part"})
    second = rig.join("g", rebalance_timeout_ms=never_ms).member_id
    session = rig.connect()
    rig.join("g", second, session=session, rebalance_timeout_ms=never_ms)
    rig.advance(10_001)
    answer = rig.answer_on(session, join_group, 9)
    assert answer.error_code == E.NONE and answer.leader == second
    assert rig.sync("g", second, answer.generation_id, {second: b"all"}).assignment == b"all"


def test_a_member_that_gives_up_nothing_in_no_time_is_out(rig):
    reader = Reader(rig, "g", "m", "orders", rebalance_timeout_ms=0)
    reader.beat()
    reader.more = {}
    other = Reader(rig, "g", "n", "orders")
    other.beat()
    reader.beat()
    rig.advance(1_000)
    assert reader.beat().error_code == E.UNKNOWN_MEMBER_ID
    for _ in range(3):
        other.beat()
    assert other.has["orders"] == [0, 1, 2]


@pytest.mark.parametrize("retention_ms", [-2, 0, 2**62, 2**63 - 1])
def test_offsets_may_be_kept_for_any_time(rig, retention_ms):
    code = rig.commit("g", "orders", 7, version=2, retention_ms=retention_ms)
    assert code == E.NONE and rig.committed("g", "orders") == 7
    rig.advance(HOUR_MS)
    forgotten = retention_ms < HOUR_MS
    assert rig.committed("g", "orders") == (-1 if forgotten else 7)


# ---- sizes -------------------------------------------------------------------------------------


def test_a_member_that_no_record_can_hold_is_refused(rig):
    names = [f"{number:05d}-{'n' * 230}" for number in range(5_500)]
    answer = Reader(rig, "g", "m", *names).beat()
    assert answer.error_code == E.UNKNOWN_SERVER_ERROR
    assert not machine_of(rig).groups
    assert Reader(rig, "g", "m", "orders").beat().error_code == E.NONE


def test_a_static_member_that_comes_back_too_large_leaves_everything_as_it_was(rig):
    first = rig.join("g", instance="i")
    member_id, generation = first.member_id, first.generation_id
    rig.sync("g", member_id, generation, {member_id: b"part"}, group_instance_id="i")
    answer = rig.join("g", instance="i", protocols={"range": b"\0\0" + bytes(1_200_000)})
    assert (answer.error_code, answer.member_id) == (E.UNKNOWN_SERVER_ERROR, "")
    assert rig.heartbeat("g", member_id, generation, instance="i") == E.NONE
    group = machine_of(rig).groups["g"]
    assert group.leader == member_id and group.members[member_id].protocols == {"range": GOOD}
    again = rig.join("g", instance="i")
    assert again.error_code == E.NONE and again.generation_id == generation
    assert rig.heartbeat("g", member_id, generation, instance="i") == E.FENCED_INSTANCE_ID
