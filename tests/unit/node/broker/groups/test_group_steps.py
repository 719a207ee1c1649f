"""The steps of the newer protocol (KIP-848): lost answers, late ones, older epochs, restarts."""

import pytest

from headrace.node.coordination.group import consumer_records
from headrace.node.coordination.shard import Decision
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import offset_fetch
from tests.unit.node.broker.groups.group_readers import (
    Reader,
    describe,
    require_no_overlap,
    until_stable,
)
from tests.unit.node.broker.groups.group_rig import GroupRig

E = ErrorCode


@pytest.fixture
def rig(tmp_path):
    rig = GroupRig(tmp_path / "data")
    rig.find("g")
    rig.create("orders", 4)
    return rig


def two_readers(rig):
    first, second = Reader(rig, "g", "a", "orders"), Reader(rig, "g", "b", "orders")
    first.beat()
    second.beat()
    until_stable(first, second)
    return first, second


# ---- answers that are lost


def test_a_member_whose_first_answer_is_lost_joins_again(rig):
    reader = Reader(rig, "g", "a", "orders")
    reader.miss()
    assert reader.beat().member_epoch == 2
    assert reader.has == {"orders": [0, 1, 2, 3]}
    assert len(describe(rig).members) == 1


def test_a_member_that_was_fenced_joins_anew_at_once_and_is_told_what_is_its_own(rig):
    """It has abandoned everything; it need not wait until its session is over."""
    first, second = two_readers(rig)
    had = first.has
    assert first.beat(epoch=first.epoch + 7).error_code == E.FENCED_MEMBER_EPOCH
    first.epoch, first.owned = 0, {}
    assert first.beat().error_code == E.NONE
    assert first.has == had
    until_stable(first, second)
    assert len(describe(rig).members) == 2


def test_a_static_member_must_have_gone_before_it_joins_again(rig):
    """Also under its own id, as in Apache Kafka; or its session must be over."""
    reader = Reader(rig, "g", "a", "orders", instance="one")
    reader.beat()
    again = Reader(rig, "g", "a", "orders", instance="one")
    assert again.beat().error_code == E.UNRELEASED_INSTANCE_ID
    rig.advance(45_001)
    assert again.beat().error_code == E.NONE
    assert again.has == {"orders": [0, 1, 2, 3]}


def test_a_member_that_missed_its_new_epoch_may_say_the_one_before(rig):
    first, second = two_readers(rig)
    second.leave()
    before = first.epoch
    first.miss()
    assert first.ask(owned=None).error_code == E.FENCED_MEMBER_EPOCH, "it must say what it has"
    assert first.beat().error_code == E.NONE
    assert first.epoch > before
    assert first.has == {"orders": [0, 1, 2, 3]}


def test_a_member_that_says_the_epoch_before_and_has_what_is_another_s_is_fenced(rig):
    first, second = two_readers(rig)
    second.leave()
    until_stable(first)
    everything = dict(first.owned)
    third = Reader(rig, "g", "c", "orders")
    third.beat()
    until_stable(first, third)
    assert first.ask(epoch=first.epoch - 1, owned=everything).error_code == E.FENCED_MEMBER_EPOCH
    assert first.ask(epoch=first.epoch, owned=dict(first.owned)).error_code == E.NONE


def test_what_a_member_was_told_to_give_up_stays_its_own_while_the_answer_is_lost(rig):
    first, second = Reader(rig, "g", "a", "orders"), Reader(rig, "g", "b", "orders")
    first.beat()
    second.beat()
    for _ in range(3):
        first.miss()  # it never hears that it has to give up
        second.beat()
        require_no_overlap(first, second)
    assert second.has == {}
    until_stable(first, second)
    assert [len(reader.has["orders"]) for reader in (first, second)] == [2, 2]


# ---- time


def test_a_member_that_gives_up_what_it_must_is_never_late(rig):
    """Each step has its time: one rebalance after the other does not add up to a lateness."""
    first, *others = [Reader(rig, "g", name, "orders") for name in "abcd"]
    first.beat()
    others[0].beat()
    first.beat()
    assert len(first.has["orders"]) == 2, "it has 20 s to give up the other two"
    rig.advance(15_000)
    for other in others:
        other.beat()
    first.beat()
    assert len(first.has["orders"]) == 1, "it has, and 20 s more for the next"
    rig.advance(15_000)
    assert first.beat().error_code == E.NONE
    until_stable(first, *others)


def test_a_static_member_that_went_for_a_moment_while_it_had_to_give_up_may_come_back(rig):
    """What it had to give up is free at once; its time to give up does not run against it."""
    first = Reader(rig, "g", "a", "orders", instance="one", rebalance_timeout_ms=6_000)
    first.beat()
    second = Reader(rig, "g", "b", "orders")
    second.beat()
    first.beat(owned=dict(first.owned))
    kept = len(first.has["orders"])
    assert kept == 2
    first.leave(epoch=-2)
    until_stable(second)
    assert len(second.has["orders"]) == 2
    rig.advance(7_000)
    second.beat()
    assert {member.member_id for member in describe(rig).members} == {"a", "b"}
    again = Reader(rig, "g", "c", "orders", instance="one")
    again.beat()
    until_stable(again, second)
    assert len(again.has["orders"]) == 2


def test_a_static_member_that_does_not_come_back_is_out_after_its_session(rig):
    first = Reader(rig, "g", "a", "orders", instance="one")
    second = Reader(rig, "g", "b", "orders", instance="two")
    first.beat()
    second.beat()
    until_stable(first, second)
    first.leave(epoch=-2)
    for _ in range(4):
        rig.advance(12_000)
        second.beat()
    until_stable(second)
    assert second.has == {"orders": [0, 1, 2, 3]}
    assert Reader(rig, "g", "c", "orders", instance="one").beat().error_code == E.NONE


def test_a_static_member_may_come_back_under_its_old_name(rig):
    first = Reader(rig, "g", "a", "orders", instance="one")
    first.beat()
    first.leave(epoch=-2)
    again = Reader(rig, "g", "a", "orders", instance="one")
    again.beat()
    assert again.has == {"orders": [0, 1, 2, 3]}
    for _ in range(6):
        rig.advance(12_000)
        assert again.beat().error_code == E.NONE
    rig.advance(45_001)
    assert describe(rig).members == [], "its session is watched as before"


# ---- older epochs (KIP-1251)


def test_a_commit_on_its_way_counts_though_the_member_has_a_new_epoch(rig):
    """It was the member's at the epoch that the commit names, and is still."""
    first, second = two_readers(rig)
    old = first.epoch
    before = first.has["orders"]
    kept = before[0]
    second.leave()
    until_stable(first)
    gained = next(p for p in first.has["orders"] if p not in before)
    assert first.epoch > old

    def commit(partition, epoch, name="a"):
        return rig.commit("g", "orders", 7, partition=partition, member=(name, epoch))

    assert commit(kept, first.epoch) == E.NONE
    assert commit(kept, old) == E.NONE
    assert commit(gained, first.epoch) == E.NONE
    assert commit(gained, old) == E.STALE_MEMBER_EPOCH, "then it was another's"
    assert commit(kept, first.epoch + 1) == E.STALE_MEMBER_EPOCH
    assert commit(kept, old, "b") == E.UNKNOWN_MEMBER_ID


def test_a_commit_of_what_is_being_given_up_counts_until_it_is_given_up(rig):
    first, second = Reader(rig, "g", "a", "orders"), Reader(rig, "g", "b", "orders")
    first.beat()
    second.beat()
    before = first.epoch
    first.beat(owned=None)
    lost = next(p for p in range(4) if p not in first.has["orders"])
    member = ("a", before)
    assert rig.commit("g", "orders", 1, partition=lost, member=member) == E.NONE
    until_stable(first, second)
    assert rig.commit("g", "orders", 2, partition=lost, member=member) == E.STALE_MEMBER_EPOCH
    kept = first.has["orders"][0]
    assert rig.commit("g", "orders", 2, partition=kept, member=member) == E.NONE


def test_the_epochs_of_partitions_are_found_again(rig, tmp_path):
    first, second = two_readers(rig)
    old, kept = first.epoch, first.has["orders"][0]
    second.leave()
    until_stable(first)
    gained = next(p for p in range(4) if p in second.has["orders"])
    again = GroupRig(tmp_path / "data")
    assert again.commit("g", "orders", 1, partition=kept, member=("a", old)) == E.NONE
    refused = again.commit("g", "orders", 1, partition=gained, member=("a", old))
    assert refused == E.STALE_MEMBER_EPOCH


def test_a_fetch_of_offsets_needs_the_epoch_of_now(rig):
    first, second = two_readers(rig)
    second.leave()
    old = first.epoch
    until_stable(first)
    assert fetch_as(rig, "a", first.epoch) == E.NONE
    assert fetch_as(rig, "a", old) == E.STALE_MEMBER_EPOCH
    assert fetch_as(rig, "b", old) == E.UNKNOWN_MEMBER_ID


def fetch_as(rig, member, epoch):
    group = offset_fetch.OffsetFetchRequestGroup("g", member, epoch, None)
    request = offset_fetch.OffsetFetchRequest(groups=[group])
    return rig.ask(offset_fetch, request, version=9).groups[0].error_code


# ---- what a member reads


def test_what_a_member_does_not_read_any_more_is_taken_from_it_at_once(tmp_path):
    """Also where it is too early to share out anew: nobody is to read what it turned away from."""
    rig = GroupRig(tmp_path / "data", group_consumer_assignment_interval_ms=15_000)
    rig.find("g")
    rig.create("orders", 4)
    rig.create("payments", 2)
    first = Reader(rig, "g", "a", "orders", "payments")
    second = Reader(rig, "g", "b", "orders", "payments")
    first.beat()
    second.beat()
    rig.advance(15_000)
    until_stable(first, second)
    turned, other = (first, second) if "payments" in first.has else (second, first)
    had = turned.has["orders"]
    turned.beat(topics=["orders"])
    assert turned.has == {"orders": had}
    until_stable(turned)
    assert turned.has == {"orders": had}, "and nothing else is moved before it is time"
    rig.advance(15_000)
    until_stable(first, second)
    assert other.has["payments"] == [0, 1]
    assert "payments" not in turned.has


def test_a_group_that_a_member_left_is_not_moved_by_topics_that_only_it_read(rig):
    rig.create("payments", 1)
    first = Reader(rig, "g", "a", "orders")
    second = Reader(rig, "g", "b", "orders", "payments")
    first.beat()
    second.beat()
    until_stable(first, second)
    second.leave()
    until_stable(first)
    epoch = describe(rig).group_epoch
    rig.create("unrelated", 1)
    until_stable(first)
    assert describe(rig).group_epoch == epoch


def test_a_pattern_that_its_last_member_leaves_is_forgotten(rig, tmp_path):
    first = Reader(rig, "g", "a", "orders")
    second = Reader(rig, "g", "b", regex="pay.*")
    first.beat()
    second.beat()
    until_stable(first)
    second.leave()
    epoch = describe(rig).group_epoch
    rig.create("payments", 1)
    until_stable(first)
    assert describe(rig).group_epoch == epoch
    assert first.has == {"orders": [0, 1, 2, 3]}
    again = GroupRig(tmp_path / "data")
    [group] = [m.groups["g"] for m in again.node.broker.groups.machines(again.now) if m.groups]
    assert group.patterns == {}


def test_partitions_that_are_added_are_shared_out_and_nothing_else_moves(rig):
    first, second = two_readers(rig)
    before = {reader.id: set(reader.has["orders"]) for reader in (first, second)}
    rig.grow("orders", 8)
    until_stable(first, second)
    for reader in (first, second):
        assert before[reader.id] < set(reader.has["orders"])
        assert len(reader.has["orders"]) == 4


def test_a_rack_is_kept_and_shown(rig):
    reader = Reader(rig, "g", "a", "orders", rack="north")
    reader.beat()
    assert describe(rig).members[0].rack_id == "north"
    del reader.more["rack"]
    epoch = describe(rig).group_epoch
    assert reader.beat(rack="south").error_code == E.NONE
    described = describe(rig)
    assert (described.members[0].rack_id, described.group_epoch) == ("south", epoch)


def test_members_choose_the_assignor_by_majority(rig):
    readers = [
        Reader(rig, "g", "a", "orders", assignor="range"),
        Reader(rig, "g", "b", "orders", assignor="uniform"),
        Reader(rig, "g", "c", "orders", assignor="uniform"),
    ]
    readers[0].beat()
    assert describe(rig).assignor_name == "range"
    for reader in readers[1:]:
        reader.beat()
    until_stable(*readers)
    assert describe(rig).assignor_name == "uniform"


def test_a_static_member_that_comes_back_and_reads_other_topics_is_given_those(rig):
    rig.create("payments", 2)
    one = Reader(rig, "g", "a", "orders", instance="one")
    two = Reader(rig, "g", "b", "orders", instance="two")
    one.beat()
    two.beat()
    until_stable(one, two)
    one.leave(epoch=-2)
    again = Reader(rig, "g", "c", "payments", instance="one")
    again.beat()
    until_stable(again, two)
    assert (again.has, two.has) == ({"payments": [0, 1]}, {"orders": [0, 1, 2, 3]})


def test_what_a_member_turns_away_from_while_it_gives_other_things_up_goes_with_them(tmp_path):
    rig = GroupRig(tmp_path / "data", group_consumer_assignment_interval_ms=15_000)
    rig.find("g")
    rig.create("orders", 4)
    rig.create("payments", 1)
    first = Reader(rig, "g", "a", "orders", "payments")
    second = Reader(rig, "g", "b", "orders")
    first.beat()
    second.beat()
    rig.advance(15_000)
    second.beat()
    held = dict(first.owned)
    first.beat()
    assert set(first.has) == {"orders", "payments"}, "it has to give up some of the orders first"
    first.beat(topics=["payments"], owned=held)
    assert set(first.has) == {"payments"}, "and now the others too"
    for _ in range(3):
        assert first.beat().error_code == E.NONE
        second.beat()
        require_no_overlap(first, second)
    rig.advance(15_000)
    until_stable(first, second)
    assert (first.has, second.has) == ({"payments": [0]}, {"orders": [0, 1, 2, 3]})


def test_a_group_whose_protocol_is_switched_off_is_refused(tmp_path):
    rig = GroupRig(tmp_path / "data", group_coordinator_rebalance_protocols="classic")
    rig.find("g")
    rig.create("orders", 4)
    assert Reader(rig, "g", "a", "orders").beat().error_code == E.UNSUPPORTED_VERSION


def test_the_first_assignor_of_the_settings_is_the_default_and_others_are_refused(tmp_path):
    rig = GroupRig(tmp_path / "data", group_consumer_assignors="range")
    rig.find("g")
    rig.create("orders", 4)
    reader = Reader(rig, "g", "a", "orders")
    assert reader.beat().error_code == E.NONE
    assert describe(rig).assignor_name == "range"
    assert reader.beat(assignor="uniform").error_code == E.UNSUPPORTED_ASSIGNOR


def test_epochs_that_an_older_release_did_not_write_are_the_member_s_own(rig):
    """Then only its present epoch commits; nothing that was another's is taken for its own."""
    first, second = two_readers(rig)
    second.leave()
    until_stable(first)
    shard = rig.node.broker.groups.shard_of("g")
    group = shard.machine.groups["g"]
    record = consumer_records.current("g", group.members["a"])
    for part in record.value.assigned_partitions:
        part.assignment_epochs = []
    shard.run(rig.now, lambda machine: Decision([record], True))
    rig.until_idle()
    assert rig.commit("g", "orders", 1, member=("a", first.epoch)) == E.NONE
    for index in range(4):
        code = rig.commit("g", "orders", 1, partition=index, member=("a", first.epoch - 1))
        assert code == E.STALE_MEMBER_EPOCH
