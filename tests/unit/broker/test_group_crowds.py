"""Crowds: 200 members that come, go and fall silent, many groups, large groups."""

import random

import pytest

from headrace.coordination.group.machine import GroupMachine
from headrace.protocol.errors import ErrorCode
from tests.unit.broker.group_bench import GroupBench
from tests.unit.broker.test_group_consumer_protocol import Reader, require_no_overlap

E = ErrorCode
PARTITIONS = 120


@pytest.fixture
def bench(tmp_path):
    bench = GroupBench(tmp_path / "data")
    bench.find("g")
    bench.create("orders", PARTITIONS)
    return bench


def test_no_partition_has_two_owners_while_200_members_come_go_and_fall_silent(bench):
    chance = random.Random(848)
    readers = [Reader(bench, "g", f"m{n}", "orders") for n in range(200)]
    alive = []
    for reader in readers:
        reader.beat()
        alive.append(reader)
        beat_some(chance, alive, 3)
    for _ in range(60):
        gone = alive.pop(chance.randrange(len(alive)))
        if chance.random() < 0.5:
            gone.leave()
            gone.owned = {}
        beat_some(chance, alive, 10)
        require_no_overlap(*alive)
    for _ in range(4):
        bench.advance(12_000)
        for reader in alive:
            assert reader.beat().error_code == E.NONE
        require_no_overlap(*alive)
    for _ in range(6):
        for reader in alive:
            reader.beat()
    require_no_overlap(*alive)
    assert sum(len(parts) for reader in alive for parts in reader.owned.values()) == PARTITIONS
    [group] = [m.groups["g"] for m in bench.node.broker.groups.machines(bench.now) if m.groups]
    assert group.state == "Stable"


def beat_some(chance, alive, count):
    for reader in chance.sample(alive, min(count, len(alive))):
        if reader.beat().error_code != E.NONE:
            reader.epoch, reader.owned = 0, {}
            reader.beat()


def test_a_member_that_stalls_keeps_only_its_own_partitions_from_others(bench):
    readers = [Reader(bench, "g", f"m{n}", "orders") for n in range(10)]
    for reader in readers:
        reader.beat()
    for _ in range(4):
        for reader in readers:
            reader.beat()
    stalled, late = readers[0], Reader(bench, "g", "late", "orders")
    held = sum(map(len, stalled.owned.values()))
    late.beat()
    for _ in range(4):
        for reader in [*readers[1:], late]:
            reader.beat()
    owned = sum(len(parts) for r in [*readers[1:], late] for parts in r.owned.values())
    assert owned == PARTITIONS - held


def test_a_classic_group_of_200_balances(bench):
    ids, sessions = [], []
    for _ in range(200):
        member_id = bench.join("g").member_id
        session = bench.connect()
        answer = bench.join("g", member_id, session=session)
        ids.append(member_id)
        sessions.append(session)
    assert answer == "parked"
    answer = bench.join("g", ids[0])
    assert len(answer.members) == 200
    assert (
        bench.sync("g", ids[0], answer.generation_id, dict.fromkeys(ids, b"part")).error_code == 0
    )
    synced = [bench.sync("g", member, answer.generation_id).assignment for member in ids[1:]]
    assert synced == [b"part"] * 199


def test_a_group_that_outgrows_one_record_is_refused(bench):
    huge = {"range": b"\0\0" + bytes(2_000_000)}
    member_id, _, joined = bench.member("g", protocols=huge)
    synced = bench.sync("g", member_id, joined.generation_id, {member_id: b"part"})
    assert synced.error_code == E.UNKNOWN_SERVER_ERROR


def test_a_bug_in_what_is_due_ends_nothing_but_the_wait(bench, monkeypatch):
    member, generation = bench.stable_group("g")
    bench.commit("g", "orders", 5, member=(member, generation))

    def broken(self, now):
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(GroupMachine, "due", broken)
        bench.advance(10_001)
    assert bench.heartbeat("g", member, generation) == E.NONE
    assert bench.committed("g", "orders") == 5
