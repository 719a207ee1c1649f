"""When offsets are forgotten: by time, by kind of group, with their topic, and not too early."""

import pytest

from headrace.node.coordination.group import offset_rules, records
from headrace.node.coordination.shard import Decision
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import delete_groups, list_groups, offset_delete, offset_fetch
from headrace.wire.protocol.messages.offset_commit_value import OffsetCommitValue
from tests.unit.node.broker.groups.group_readers import Reader, until_stable
from tests.unit.node.broker.groups.group_rig import GroupRig

E = ErrorCode
DAY_MS = 24 * 3600 * 1000
PRODUCER = (77, 0)


@pytest.fixture
def rig(tmp_path):
    rig = GroupRig(tmp_path / "data")
    rig.find("g")
    rig.create("orders", 3)
    rig.create("other")
    return rig


def expire(rig, *, after_ms):
    """As if so much time had passed for offsets, and none for sessions."""
    rig.now.wall_ms += after_ms
    for shard in rig.node.broker.groups.shards.values():
        shard.run(
            rig.now,
            lambda machine: Decision(
                offset_rules.expire_offsets(machine, machine.group_ids(), rig.now)
            ),
        )
    rig.until_idle()


def groups_of(rig):
    listed = rig.ask(list_groups, list_groups.ListGroupsRequest()).groups
    return {group.group_id for group in listed}


def open_transaction(rig, offset, topic="orders", group="g"):
    """An offset of a transaction that is not over, as TxnOffsetCommit writes it."""
    record = records.committed_offset(group, topic, 0, OffsetCommitValue(offset))
    shard = rig.node.broker.groups.shard_of(group)
    shard.run(rig.now, lambda machine: Decision([record], True, None, PRODUCER))


def end_transaction(rig, *, committed, group="g"):
    machine = rig.node.broker.groups.shard_of(group).machine
    machine.end_transaction(PRODUCER[0], committed=committed)


def test_a_consumer_group_keeps_what_it_reads_and_forgets_what_it_does_not(rig):
    reader = Reader(rig, "g", "a", "orders")
    reader.beat()
    for topic in ("orders", "other"):
        rig.commit("g", topic, 5, member=("a", reader.epoch))
    expire(rig, after_ms=7 * DAY_MS - 1)
    assert rig.committed("g", "other") == 5
    expire(rig, after_ms=1)
    assert (rig.committed("g", "orders"), rig.committed("g", "other")) == (5, -1)


def test_a_pattern_counts_as_reading(rig):
    reader = Reader(rig, "g", "a", regex="ord.*")
    reader.beat()
    rig.commit("g", "orders", 5, member=("a", reader.epoch))
    rig.commit("g", "other", 5, member=("a", reader.epoch))
    expire(rig, after_ms=8 * DAY_MS)
    assert (rig.committed("g", "orders"), rig.committed("g", "other")) == (5, -1)


def test_an_empty_consumer_group_goes_with_its_last_offset(rig, tmp_path):
    reader = Reader(rig, "g", "a", "orders")
    reader.beat()
    rig.commit("g", "orders", 5, member=("a", reader.epoch))
    reader.leave()
    expire(rig, after_ms=6 * DAY_MS)
    assert groups_of(rig) == {"g"}
    expire(rig, after_ms=DAY_MS)
    assert groups_of(rig) == set()
    assert groups_of(GroupRig(tmp_path / "data")) == set()


def test_a_stable_classic_group_forgets_only_what_it_does_not_read(rig):
    member, generation = rig.stable_group("g")
    for topic in ("orders", "other"):
        rig.commit("g", topic, 5, member=(member, generation))
    expire(rig, after_ms=7 * DAY_MS)
    assert (rig.committed("g", "orders"), rig.committed("g", "other")) == (5, -1)


def test_nothing_is_forgotten_while_a_group_rebalances(rig):
    member, generation = rig.stable_group("g")
    rig.commit("g", "other", 5, member=(member, generation))
    rig.member("g")
    expire(rig, after_ms=8 * DAY_MS)
    assert rig.committed("g", "other") == 5


def test_a_group_of_another_kind_keeps_everything_while_it_has_members(rig):
    """Nobody here can read what connectors subscribe to."""
    options = {"protocol_type": "connect", "protocols": {"default": b"whatever"}}
    member, _, joined = rig.member("g", **options)
    more = {"protocol_type": "connect", "protocol_name": "default"}
    assert rig.sync("g", member, 1, {member: b""}, **more).error_code == E.NONE
    rig.commit("g", "orders", 5, member=(member, 1))
    expire(rig, after_ms=30 * DAY_MS)
    assert rig.committed("g", "orders") == 5
    rig.leave("g", member)
    expire(rig, after_ms=7 * DAY_MS)
    assert rig.committed("g", "orders") == -1


def test_the_time_of_an_empty_classic_group_runs_from_when_it_became_empty(rig):
    member, generation = rig.stable_group("g")
    rig.commit("g", "orders", 5, member=(member, generation))
    rig.now.wall_ms += 30 * DAY_MS
    rig.leave("g", member)
    expire(rig, after_ms=7 * DAY_MS - 1)
    assert rig.committed("g", "orders") == 5
    expire(rig, after_ms=1)
    assert rig.committed("g", "orders") == -1


def test_a_commit_without_membership_starts_its_time_anew(rig):
    rig.commit("g", "orders", 5)
    expire(rig, after_ms=6 * DAY_MS)
    rig.commit("g", "orders", 6)
    expire(rig, after_ms=6 * DAY_MS)
    assert rig.committed("g", "orders") == 6


# ---- transactions


def test_an_offset_that_a_transaction_may_change_is_not_forgotten(rig):
    rig.commit("g", "orders", 5)
    open_transaction(rig, 9)
    expire(rig, after_ms=8 * DAY_MS)
    assert rig.committed("g", "orders") == 5
    end_transaction(rig, committed=False)
    expire(rig, after_ms=0)
    assert rig.committed("g", "orders") == -1


def test_a_group_with_nothing_but_an_open_transaction_is_not_forgotten(rig):
    rig.commit("g", "other", 5)
    open_transaction(rig, 9)
    expire(rig, after_ms=8 * DAY_MS)
    assert rig.committed("g", "other") == -1
    end_transaction(rig, committed=True)
    assert rig.committed("g", "orders") == 9


def test_what_is_deleted_does_not_come_back_with_the_transaction(rig):
    open_transaction(rig, 9)
    rig.delete("orders")
    rig.create("orders", 3)
    end_transaction(rig, committed=True)
    assert rig.committed("g", "orders") == -1


@pytest.mark.parametrize("version", [7, 9, 10])
def test_offsets_that_a_transaction_may_change_are_told_as_such_if_stable_ones_are_wanted(
    rig, version
):
    rig.commit("g", "orders", 5)
    rig.commit("g", "other", 6)
    open_transaction(rig, 9)
    codes = {}
    for name, topic in rig.node.broker.image.topics.items():
        if name.startswith("o"):
            [part] = fetched(rig, topic, version)
            codes[name] = (part.error_code, part.committed_offset)
    assert codes == {"orders": (E.UNSTABLE_OFFSET_COMMIT, -1), "other": (E.NONE, 6)}


def fetched(rig, topic, version):
    if version < 8:
        topics = [offset_fetch.OffsetFetchRequestTopic(topic.name, [0])]
        request = offset_fetch.OffsetFetchRequest("g", topics, require_stable=True)
        return rig.ask(offset_fetch, request, version=version).topics[0].partitions
    topics = [offset_fetch.OffsetFetchRequestTopics(topic.name, topic.id, [0])]
    group = offset_fetch.OffsetFetchRequestGroup("g", None, -1, topics)
    request = offset_fetch.OffsetFetchRequest(groups=[group], require_stable=True)
    return rig.ask(offset_fetch, request, version=version).groups[0].topics[0].partitions


# ---- topics of the same name


@pytest.mark.parametrize("version", [5, 9, 10])
def test_a_place_in_a_topic_that_is_gone_is_none_in_another_of_its_name(rig, monkeypatch, version):
    """The disk was full when it should have been forgotten; records would be skipped unread."""
    rig.commit("g", "orders", 5)
    groups = rig.node.broker.groups
    monkeypatch.setattr(type(groups), "forget_topics", lambda self, topics: None)
    rig.delete("orders")
    rig.create("orders", 3)
    topic = rig.node.broker.image.topics["orders"]
    [part] = fetched(rig, topic, version)
    assert (part.committed_offset, part.error_code) == (-1, E.NONE)
    rig.commit("g", "orders", 1)
    [part] = fetched(rig, topic, version)
    assert part.committed_offset == 1


def test_a_group_of_which_a_read_topic_is_deleted_goes_on_with_the_others(rig):
    reader = Reader(rig, "g", "a", "orders", "other")
    reader.beat()
    rig.commit("g", "other", 5, member=("a", reader.epoch))
    gone = rig.node.broker.image.topics["orders"].id
    rig.delete("orders")
    reader.owned.pop(gone)
    until_stable(reader)
    assert reader.has == {"other": [0]}
    assert rig.committed("g", "other") == 5
    rig.create("orders", 2)
    until_stable(reader)
    assert reader.has == {"orders": [0, 1], "other": [0]}
    assert rig.committed("g", "orders") == -1


def test_a_group_is_deleted_with_what_its_open_transaction_would_bring(rig):
    rig.commit("g", "other", 5)
    open_transaction(rig, 9)
    request = delete_groups.DeleteGroupsRequest(["g"])
    assert rig.ask(delete_groups, request).results[0].error_code == E.NONE
    end_transaction(rig, committed=True)
    assert (rig.committed("g", "orders"), rig.committed("g", "other")) == (-1, -1)
    assert groups_of(rig) == set()


def test_offsets_of_a_group_of_another_kind_are_deleted_only_when_it_is_empty(rig):
    options = {"protocol_type": "connect", "protocols": {"default": b"whatever"}}
    member, _, _ = rig.member("g", **options)
    part = offset_delete.OffsetDeleteRequestPartition(0)
    topics = [offset_delete.OffsetDeleteRequestTopic("orders", [part])]
    request = offset_delete.OffsetDeleteRequest("g", topics)
    assert rig.ask(offset_delete, request).error_code == E.NON_EMPTY_GROUP
    rig.leave("g", member)
    rig.commit("g", "orders", 5)
    assert rig.ask(offset_delete, request).error_code == E.NONE
    assert rig.committed("g", "orders") == -1
