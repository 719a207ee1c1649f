"""Crowds: 200 members that come, go and fall silent, many groups, large groups."""

import random

import pytest

from headrace.coordination.group import promised_ids
from headrace.coordination.group.classic_answers import Client
from headrace.coordination.group.machine import GroupMachine
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import join_group
from tests.unit.broker.bench import PARKED
from tests.unit.broker.group_bench import GroupBench, subscription
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


def test_a_stalled_member_of_a_cooperative_group_costs_only_its_own_partitions(bench):
    """The others keep and commit theirs all the time; its own go to the newcomer."""
    group = CooperativeGroup(bench, "g", "orders", PARTITIONS)
    names = [group.join() for _ in range(3)]
    group.rebalance(*names)
    group.rebalance(*names)
    first, second, stalled = names
    before = {name: group.owned[name] for name in names}
    assert sorted(map(len, before.values())) == [40, 40, 40]
    late = group.join()
    for _ in range(6):  # the rebalance waits 30 s for the one that lives but does not come
        assert bench.heartbeat("g", stalled, group.generation) == E.REBALANCE_IN_PROGRESS
        for name in (first, second):
            assert group.rejoin(name) == PARKED
            assert bench.heartbeat("g", name, group.generation) == E.REBALANCE_IN_PROGRESS
            place = min(group.owned[name])
            member = (name, group.generation)
            assert bench.commit("g", "orders", 7, partition=place, member=member) == E.NONE
        bench.advance(5_000)
    group.answer(first, second, late)
    assert group.owned[first] == before[first] and group.owned[second] == before[second]
    assert group.owned[late] == before[stalled]
    assert bench.heartbeat("g", stalled, group.generation) == E.UNKNOWN_MEMBER_ID


class CooperativeGroup:
    """Members of the classic protocol that give up only what goes to another (KIP-429); the test
    is their leader, and shares out what nobody owns to those that have least."""

    def __init__(self, bench, group, topic, partitions):
        self.bench, self.group, self.topic = bench, group, topic
        self.partitions = range(partitions)
        self.generation, self.leader = 0, ""
        self.owned = {}
        self.sessions = {}

    def join(self):
        protocols = {"cooperative-sticky": subscription(self.topic)}
        name = self.bench.join(self.group, protocols=protocols).member_id
        self.owned[name] = set()
        self.rejoin(name)
        return name

    def rejoin(self, name):
        session = self.sessions[name] = self.bench.connect()
        # What it owns is part of its subscription, so that a rebalance follows from any change.
        owned = bytes(sorted(self.owned[name]))
        protocols = {"cooperative-sticky": subscription(self.topic) + owned}
        answer = self.bench.join(self.group, name, session=session, protocols=protocols)
        if answer != PARKED:
            self.note(answer)
        return answer

    def note(self, joined):
        assert joined.error_code == E.NONE
        self.generation, self.leader = joined.generation_id, joined.leader

    def rebalance(self, *names):
        for name in names:
            self.rejoin(name)
        self.answer(*names)

    def answer(self, *names):
        """All have joined: the leader assigns, each gets its part."""
        for name in names:
            if self.sessions[name].outbox:
                self.note(self.bench.answer_on(self.sessions[name], join_group, 9))
        share = len(self.partitions) // len(names)
        parts = {name: set(sorted(self.owned[name])[:share]) for name in names}
        free = set(self.partitions) - set().union(*(self.owned[name] for name in names))
        for name in sorted(names, key=lambda name: len(parts[name])):
            while free and len(parts[name]) < share:
                parts[name].add(free.pop())
        given = {name: bytes(sorted(mine)) for name, mine in parts.items()}
        for name in (self.leader, *(name for name in names if name != self.leader)):
            assigned = given if name == self.leader else {}
            more = {"protocol_name": "cooperative-sticky"}
            synced = self.bench.sync(self.group, name, self.generation, assigned, **more)
            assert synced.error_code == E.NONE
            self.owned[name] = set(synced.assignment)


def test_100_000_made_up_groups_of_one_client_cost_no_more_than_a_few(bench, monkeypatch):
    """Ids are promised to the latest only; everything else about them is refused and not kept."""
    monkeypatch.setattr(promised_ids, "MOST_PROMISED", 100)
    groups = bench.node.broker.groups
    client = Client("bench", "/127.0.0.1", 9)
    protocols = [join_group.JoinGroupRequestProtocol("range", subscription("orders"))]
    first = None
    for number in range(100_000):
        name = f"made-up-{number}"
        request = join_group.JoinGroupRequest(
            name, 1_800_000, 1_800_000, "", None, "consumer", protocols
        )
        answer = groups.ask(name, bench.now, GroupMachine.join, request, client, bench.now)
        assert answer.error_code == E.MEMBER_ID_REQUIRED
        first = first or answer.member_id
        if not number % 1_000:
            groups.tick(bench.now)  # as the loop does each tenth of a second
    groups.tick(bench.now)
    machines = list(groups.machines(bench.now))
    assert sum(len(machine.groups) for machine in machines) == 300
    assert all(len(machine.deadlines.at) == 101 for machine in machines)
    assert all(not machine.offsets.by_group for machine in machines)
    assert len(groups._places) <= 10_000
    assert bench.join("made-up-0", first).error_code == E.UNKNOWN_MEMBER_ID
    assert bench.join(name, answer.member_id).generation_id == 1, "the latest may still join"
    assert bench.heartbeat("made-up-1", "nobody", 1) == E.UNKNOWN_MEMBER_ID
    assert bench.sync("made-up-1", "nobody", 1).error_code == E.UNKNOWN_MEMBER_ID
    assert bench.committed("made-up-1", "orders") == -1
    assert bench.commit("made-up-1", "orders", 1, member=("x", 3)) == E.GROUP_ID_NOT_FOUND


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
