"""Crowds: 200 members that come, go and fall silent, many groups, large groups."""

import random

import pytest

from headrace.node.coordination.group import promised_ids
from headrace.node.coordination.group.classic_answers import Client
from headrace.node.coordination.group.machine import GroupMachine
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import join_group
from tests.unit.node.broker.groups.group_cooperation import Cooperation
from tests.unit.node.broker.groups.group_crowd import Crowd
from tests.unit.node.broker.groups.group_readers import Reader, require_no_overlap
from tests.unit.node.broker.groups.group_rig import GroupRig, subscription

E = ErrorCode
PARTITIONS = 120


@pytest.fixture
def rig(tmp_path):
    rig = GroupRig(tmp_path / "data")
    rig.find("g")
    rig.create("orders", PARTITIONS)
    return rig


@pytest.mark.parametrize("seed", [848, pytest.param(849, marks=pytest.mark.full)])
def test_no_partition_has_two_owners_while_200_members_come_go_and_crash(rig, seed):
    """Checked after every answer; those that crashed count until their session is over."""
    crowd = Crowd(
        lambda name: Reader(rig, "g", name, "orders", rebalance_timeout_ms=60_000),
        lambda: rig.now.monotonic_ms,
        45_000,
        seed=seed,
    )
    while len(crowd.alive) < 200:
        crowd.join(4)
        crowd.round(0.05)
    for _ in range(20):
        crowd.leave(2)
        crowd.crash(2)
        crowd.join(3)
        rig.advance(3_000)
        crowd.check()
        crowd.round(0.5)
    assert crowd.crashed, "some are still thought to be alive"
    crowd.lost = 0.0
    for _ in range(5):
        crowd.round()
        rig.advance(12_000)
        crowd.check()
    crowd.comes_to_rest(PARTITIONS)
    assert not crowd.crashed
    sizes = {sum(map(len, reader.owned.values())) for reader in crowd.alive}
    assert sizes <= {0, 1}, "120 partitions among more readers than that"
    [group] = [m.groups["g"] for m in rig.node.broker.groups.machines(rig.now) if m.groups]
    assert group.state == "Stable"


def test_a_member_that_stalls_keeps_only_its_own_partitions_from_others(rig):
    """It lives and is heard, but gives nothing up. The others lose nothing but what they gave."""
    readers = [Reader(rig, "g", f"m{n}", "orders") for n in range(10)]
    for reader in readers:
        reader.beat()
    for _ in range(4):
        for reader in readers:
            reader.beat()
    stalled, late = readers[0], Reader(rig, "g", "late", "orders")
    held, had = dict(stalled.owned), {reader.id: dict(reader.owned) for reader in readers}
    late.beat()
    for _ in range(4):
        assert stalled.ask(owned=held).error_code == E.NONE
        for reader in [*readers[1:], late]:
            assert reader.beat().error_code == E.NONE
            require_no_overlap(stalled, *readers[1:], late)
        rig.advance(4_000)
    owned = sum(len(parts) for r in [*readers[1:], late] for parts in r.owned.values())
    assert owned == PARTITIONS - sum(map(len, held.values()))
    for reader in readers[1:]:
        [(topic, parts)] = reader.owned.items()
        assert parts <= had[reader.id][topic], "nobody was moved for its sake"
        place = min(parts)
        member = (reader.id, reader.epoch)
        assert rig.commit("g", "orders", 7, partition=place, member=member) == E.NONE
    rig.advance(5_000)  # its 20 s are over
    for _ in range(4):
        for reader in [*readers[1:], late]:
            reader.beat()
            require_no_overlap(*readers[1:], late)
    assert stalled.ask(owned=held).error_code == E.UNKNOWN_MEMBER_ID
    owned = sum(len(parts) for r in [*readers[1:], late] for parts in r.owned.values())
    assert owned == PARTITIONS


def test_a_classic_group_of_200_balances(rig):
    ids, sessions = [], []
    for _ in range(200):
        member_id = rig.join("g").member_id
        session = rig.connect()
        answer = rig.join("g", member_id, session=session)
        ids.append(member_id)
        sessions.append(session)
    assert answer == "waits"
    answer = rig.join("g", ids[0])
    assert len(answer.members) == 200
    assert rig.sync("g", ids[0], answer.generation_id, dict.fromkeys(ids, b"part")).error_code == 0
    synced = [rig.sync("g", member, answer.generation_id).assignment for member in ids[1:]]
    assert synced == [b"part"] * 199


def test_no_partition_has_two_owners_in_a_cooperative_crowd_of_200(tmp_path):
    """Classic members come, go and crash; what moves is given up first, all else stays."""
    rig = GroupRig(tmp_path / "data")
    rig.find("g")
    rig.create("orders", 500)
    crowd = Cooperation(rig, "g", "orders", 500)
    crowd.join(200)
    crowd.rebalance()
    assert {len(reader.owned) for reader in crowd.alive} == {2, 3}
    chance = random.Random(429)
    for _ in range(3):
        gone = chance.sample(crowd.alive, 20)
        kept = {reader: reader.owned for reader in crowd.alive if reader not in gone}
        crowd.leave(gone[:10])
        crowd.crash(gone[10:])
        crowd.join(15)
        crowd.rebalance()
        assert crowd.owned() == 500
        assert {len(reader.owned) for reader in crowd.alive} <= {2, 3}
        assert all(owned <= reader.owned for reader, owned in kept.items()), "nobody else is moved"
        crowd.pass_time(5_000)


def test_a_stalled_member_of_a_cooperative_group_costs_only_its_own_partitions(rig):
    """The others keep and commit theirs all the time; its own go on when its time is over."""
    crowd = Cooperation(rig, "g", "orders", PARTITIONS)
    crowd.join(3)
    crowd.rebalance()
    first, second, stalled = crowd.alive
    before = {reader: reader.owned for reader in crowd.alive}
    assert sorted(map(len, before.values())) == [40, 40, 40]
    crowd.join(1)
    late = crowd.alive[-1]
    assert stalled.beat() == E.REBALANCE_IN_PROGRESS
    for reader in (first, second):
        reader.join()
        crowd.joining.append(reader)
        assert reader.beat() == E.REBALANCE_IN_PROGRESS
        place = min(index for _, index in reader.owned)
        member = (reader.id, reader.generation)
        assert rig.commit("g", "orders", 7, partition=place, member=member) == E.NONE
    crowd.stalled = [stalled]
    crowd.rebalance()
    assert stalled not in crowd.alive
    assert crowd.owned() == PARTITIONS
    for reader in (first, second):
        assert reader.owned == before[reader]
    assert late.owned == before[stalled]
    assert stalled.beat() == E.UNKNOWN_MEMBER_ID


def test_made_up_groups_of_one_client_cost_no_more_than_a_few(rig, monkeypatch):
    """Ids are promised to the latest only; everything else about them is refused and not kept."""
    monkeypatch.setattr(promised_ids, "MOST_PROMISED", 100)
    groups = rig.node.broker.groups
    client = Client("rig", "/127.0.0.1", 9)
    protocols = [join_group.JoinGroupRequestProtocol("range", subscription("orders"))]
    first = None
    for number in range(6_000):
        name = f"made-up-{number}"
        request = join_group.JoinGroupRequest(
            name, 1_800_000, 1_800_000, "", None, "consumer", protocols
        )
        answer = groups.ask(name, rig.now, GroupMachine.join, request, client, rig.now)
        assert answer.error_code == E.MEMBER_ID_REQUIRED
        first = first or answer.member_id
        if not number % 1_000:
            groups.tick(rig.now)  # as the loop does each tenth of a second
            rig.until_idle()
    groups.tick(rig.now)
    rig.until_idle()
    machines = list(groups.machines(rig.now))
    assert sum(len(machine.groups) for machine in machines) == 300
    assert all(len(machine.deadlines.at) == 101 for machine in machines)
    assert all(not machine.offsets.by_group for machine in machines)
    assert len(groups._shards_by_key) <= 10_000
    assert rig.join("made-up-0", first).error_code == E.UNKNOWN_MEMBER_ID
    assert rig.join(name, answer.member_id).generation_id == 1, "the latest may still join"
    assert rig.heartbeat("made-up-1", "nobody", 1) == E.UNKNOWN_MEMBER_ID
    assert rig.sync("made-up-1", "nobody", 1).error_code == E.UNKNOWN_MEMBER_ID
    assert rig.committed("made-up-1", "orders") == -1
    assert rig.commit("made-up-1", "orders", 1, member=("x", 3)) == E.GROUP_ID_NOT_FOUND


def test_a_group_that_outgrows_one_record_is_refused(rig):
    huge = {"range": b"\0\0" + bytes(2_000_000)}
    member_id, _, joined = rig.member("g", protocols=huge)
    synced = rig.sync("g", member_id, joined.generation_id, {member_id: b"part"})
    assert synced.error_code == E.UNKNOWN_SERVER_ERROR


def test_a_bug_in_what_is_due_ends_nothing_but_the_wait(rig, monkeypatch):
    member, generation = rig.stable_group("g")
    rig.commit("g", "orders", 5, member=(member, generation))

    def broken(self, now):
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(GroupMachine, "due", broken)
        rig.advance(10_001)
    assert rig.heartbeat("g", member, generation) == E.NONE
    assert rig.committed("g", "orders") == 5
