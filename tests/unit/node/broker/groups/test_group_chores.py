"""What many groups and offsets cost is done in parts: lists, deletions, expiry."""

from itertools import pairwise

import pytest

from headrace.node.broker.coordinators import groups as coordinator
from headrace.node.broker.handlers import delete_groups as delete_handler
from headrace.node.broker.handlers import list_groups as list_handler
from headrace.node.coordination.group import offset_rules
from headrace.node.coordination.group import views as group_views
from headrace.node.coordination.group.offsets import OffsetCopies
from headrace.wire.protocol.messages import delete_groups, delete_topics, list_groups
from tests.unit.node.broker.groups.group_rig import GroupRig

GROUPS = [f"g{number}" for number in range(8)]


@pytest.fixture
def rig(tmp_path):
    rig = GroupRig(tmp_path / "data", offsets_topic_num_partitions=1)
    rig.find(*GROUPS)
    rig.create("orders", 3)
    for group in GROUPS:
        for index in range(3):
            assert rig.commit(group, "orders", 5, partition=index) == 0
    return rig


def machine_of(rig):
    [shard] = rig.node.broker.groups.shards.values()
    return shard.machine


def test_groups_are_listed_between_other_requests(rig, monkeypatch):
    monkeypatch.setattr(list_handler, "GROUPS_PER_STEP", 2)
    listed = []
    list_some = group_views.list_groups

    def note(machine, names):
        listed.append(len(names))
        return list_some(machine, names)

    monkeypatch.setattr(group_views, "list_groups", note)
    session = rig.send(list_groups, list_groups.ListGroupsRequest(), version=5)
    assert listed == []
    while not session.outbox:
        before = len(listed)
        rig.node.work(lambda: True)
        assert len(listed) - before <= 1
    found = rig.answer_on(session, list_groups).groups
    assert listed == [2] * 4 and sorted(one.group_id for one in found) == GROUPS


def test_groups_with_many_offsets_are_deleted_one_in_each_step(rig, monkeypatch):
    monkeypatch.setattr(delete_handler, "OFFSETS_AT_ONCE", 5)
    request = delete_groups.DeleteGroupsRequest([*GROUPS, "unknown"])
    session = rig.send(delete_groups, request, version=2)
    kept = machine_of(rig).offsets.by_group
    while not session.outbox:
        before = len(kept)
        rig.node.work(lambda: True)
        assert before - len(kept) <= 1
    answer = rig.answer_on(session, delete_groups)
    assert [bool(one.error_code) for one in answer.results] == [False] * 8 + [True]
    assert not kept


def delete_only(rig, topic):
    state = delete_topics.DeleteTopicState(topic)
    return rig.send(delete_topics, delete_topics.DeleteTopicsRequest([state], [], 1000), version=6)


def offsets_kept(rig):
    return sum(map(len, machine_of(rig).offsets.by_group.values()))


def test_offsets_of_a_deleted_topic_are_forgotten_in_parts(rig, monkeypatch):
    monkeypatch.setattr(coordinator, "OFFSETS_PER_STEP", 4)
    delete_only(rig, "orders")
    seen = [offsets_kept(rig)]
    for _ in range(200):
        rig.node.work(lambda: True)
        rig.node.purgatory.try_woken()
        rig.node.end_turn()
        seen.append(offsets_kept(rig))
        while rig.background:
            work, done = rig.background.popleft()
            work()
            done(None)
    assert max(a - b for a, b in pairwise(seen)) <= 4
    assert seen[0] == 24 and seen[-1] == 0


def test_the_offsets_of_other_topics_are_looked_through_in_parts_too(rig, monkeypatch):
    """136,000 of them held the loop for 50 ms before the first one was forgotten."""
    monkeypatch.setattr(coordinator, "OFFSETS_PER_STEP", 4)
    rig.create("empty", 1)
    looked_at = []
    of_topics = OffsetCopies.of_topics

    def note(self, topics, per_part):
        for part in of_topics(self, topics, per_part):
            looked_at.append(len(part))
            yield part

    monkeypatch.setattr(OffsetCopies, "of_topics", note)
    delete_only(rig, "empty")
    rig.until_idle()
    assert len(looked_at) == 6 and offsets_kept(rig) == 24


def test_what_is_committed_to_a_topic_made_again_stays(rig, monkeypatch):
    monkeypatch.setattr(coordinator, "OFFSETS_PER_STEP", 4)
    before = machine_of(rig).offsets.copies()
    assert rig.commit("g7", "orders", 9, partition=2) == 0
    [shard] = rig.node.broker.groups.shards.values()
    for _ in rig.node.broker.groups._forget_places(shard, before, frozenset({"orders"})):
        pass
    assert offsets_kept(rig) == 1 and rig.committed("g7", "orders", 2) == 9


def test_offsets_expire_in_parts(rig, monkeypatch):
    monkeypatch.setattr(offset_rules, "OFFSETS_AT_ONCE", 4)
    [shard] = rig.node.broker.groups.shards.values()
    rig.now.wall_ms += 8 * 24 * 3600 * 1000
    rig.now.monotonic_ms += 600_000
    looks = 0
    while offsets_kept(rig):
        before = offsets_kept(rig)
        shard.run_due(rig.now)
        assert before - offsets_kept(rig) <= 6, "two groups at most"
        rig.now.monotonic_ms += 1
        looks += 1
        assert looks < 20
    assert looks >= 4
