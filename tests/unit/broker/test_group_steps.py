"""The steps of the newer protocol (KIP-848): lost answers, late ones, older epochs, restarts."""

import pytest

from headrace.coordination.group import consumer_records
from headrace.coordination.shard import Decision
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import offset_fetch
from tests.unit.broker.group_bench import GroupBench
from tests.unit.broker.group_readers import Reader, describe, require_no_overlap, settle

E = ErrorCode


@pytest.fixture
def bench(tmp_path):
    bench = GroupBench(tmp_path / "data")
    bench.find("g")
    bench.create("orders", 4)
    return bench


def two_readers(bench):
    first, second = Reader(bench, "g", "a", "orders"), Reader(bench, "g", "b", "orders")
    first.beat()
    second.beat()
    settle(first, second)
    return first, second


# ---- answers that are lost


def test_a_member_whose_first_answer_is_lost_joins_again(bench):
    reader = Reader(bench, "g", "a", "orders")
    reader.miss()
    assert reader.beat().member_epoch == 2
    assert reader.has == {"orders": [0, 1, 2, 3]}
    assert len(describe(bench).members) == 1


def test_a_member_that_was_fenced_joins_anew_at_once_and_is_told_what_is_its_own(bench):
    """It has abandoned everything; it need not wait until its session is over."""
    first, second = two_readers(bench)
    had = first.has
    assert first.beat(epoch=first.epoch + 7).error_code == E.FENCED_MEMBER_EPOCH
    first.epoch, first.owned = 0, {}
    assert first.beat().error_code == E.NONE
    assert first.has == had
    settle(first, second)
    assert len(describe(bench).members) == 2


def test_a_static_member_must_have_gone_before_it_joins_again(bench):
    """Also under its own id, as in Apache Kafka; or its session must be over."""
    reader = Reader(bench, "g", "a", "orders", instance="one")
    reader.beat()
    again = Reader(bench, "g", "a", "orders", instance="one")
    assert again.beat().error_code == E.UNRELEASED_INSTANCE_ID
    bench.advance(45_001)
    assert again.beat().error_code == E.NONE
    assert again.has == {"orders": [0, 1, 2, 3]}


def test_a_member_that_missed_its_new_epoch_may_say_the_one_before(bench):
    first, second = two_readers(bench)
    second.leave()
    before = first.epoch
    first.miss()
    assert first.ask(owned=None).error_code == E.FENCED_MEMBER_EPOCH, "it must say what it has"
    assert first.beat().error_code == E.NONE
    assert first.epoch > before
    assert first.has == {"orders": [0, 1, 2, 3]}


def test_a_member_that_says_the_epoch_before_and_has_what_is_another_s_is_fenced(bench):
    first, second = two_readers(bench)
    second.leave()
    settle(first)
    everything = dict(first.owned)
    third = Reader(bench, "g", "c", "orders")
    third.beat()
    settle(first, third)
    assert first.ask(epoch=first.epoch - 1, owned=everything).error_code == E.FENCED_MEMBER_EPOCH
    assert first.ask(epoch=first.epoch, owned=dict(first.owned)).error_code == E.NONE


def test_what_a_member_was_told_to_give_up_stays_its_own_while_the_answer_is_lost(bench):
    first, second = Reader(bench, "g", "a", "orders"), Reader(bench, "g", "b", "orders")
    first.beat()
    second.beat()
    for _ in range(3):
        first.miss()  # it never hears that it has to give up
        second.beat()
        require_no_overlap(first, second)
    assert second.has == {}
    settle(first, second)
    assert [len(reader.has["orders"]) for reader in (first, second)] == [2, 2]


# ---- time


def test_a_member_that_gives_up_what_it_must_is_never_late(bench):
    """Each step has its time: one rebalance after the other does not add up to a lateness."""
    first, *others = [Reader(bench, "g", name, "orders") for name in "abcd"]
    first.beat()
    others[0].beat()
    first.beat()
    assert len(first.has["orders"]) == 2, "it has 20 s to give up the other two"
    bench.advance(15_000)
    for other in others:
        other.beat()
    first.beat()
    assert len(first.has["orders"]) == 1, "it has, and 20 s more for the next"
    bench.advance(15_000)
    assert first.beat().error_code == E.NONE
    settle(first, *others)


def test_a_static_member_that_went_for_a_moment_while_it_had_to_give_up_may_come_back(bench):
    """What it had to give up is free at once; its time to give up does not run against it."""
    first = Reader(bench, "g", "a", "orders", instance="one", rebalance_timeout_ms=6_000)
    first.beat()
    second = Reader(bench, "g", "b", "orders")
    second.beat()
    first.beat(owned=dict(first.owned))
    kept = len(first.has["orders"])
    assert kept == 2
    first.leave(epoch=-2)
    settle(second)
    assert len(second.has["orders"]) == 2
    bench.advance(7_000)
    second.beat()
    assert {member.member_id for member in describe(bench).members} == {"a", "b"}
    again = Reader(bench, "g", "c", "orders", instance="one")
    again.beat()
    settle(again, second)
    assert len(again.has["orders"]) == 2


def test_a_static_member_that_does_not_come_back_is_out_after_its_session(bench):
    first = Reader(bench, "g", "a", "orders", instance="one")
    second = Reader(bench, "g", "b", "orders", instance="two")
    first.beat()
    second.beat()
    settle(first, second)
    first.leave(epoch=-2)
    for _ in range(4):
        bench.advance(12_000)
        second.beat()
    settle(second)
    assert second.has == {"orders": [0, 1, 2, 3]}
    assert Reader(bench, "g", "c", "orders", instance="one").beat().error_code == E.NONE


def test_a_static_member_may_come_back_under_its_old_name(bench):
    first = Reader(bench, "g", "a", "orders", instance="one")
    first.beat()
    first.leave(epoch=-2)
    again = Reader(bench, "g", "a", "orders", instance="one")
    again.beat()
    assert again.has == {"orders": [0, 1, 2, 3]}
    for _ in range(6):
        bench.advance(12_000)
        assert again.beat().error_code == E.NONE
    bench.advance(45_001)
    assert describe(bench).members == [], "its session is watched as before"


# ---- older epochs (KIP-1251)


def test_a_commit_on_its_way_counts_though_the_member_has_a_new_epoch(bench):
    """It was the member's at the epoch that the commit names, and is still."""
    first, second = two_readers(bench)
    old = first.epoch
    before = first.has["orders"]
    kept = before[0]
    second.leave()
    settle(first)
    gained = next(p for p in first.has["orders"] if p not in before)
    assert first.epoch > old

    def commit(partition, epoch, name="a"):
        return bench.commit("g", "orders", 7, partition=partition, member=(name, epoch))

    assert commit(kept, first.epoch) == E.NONE
    assert commit(kept, old) == E.NONE
    assert commit(gained, first.epoch) == E.NONE
    assert commit(gained, old) == E.STALE_MEMBER_EPOCH, "then it was another's"
    assert commit(kept, first.epoch + 1) == E.STALE_MEMBER_EPOCH
    assert commit(kept, old, "b") == E.UNKNOWN_MEMBER_ID


def test_a_commit_of_what_is_being_given_up_counts_until_it_is_given_up(bench):
    first, second = Reader(bench, "g", "a", "orders"), Reader(bench, "g", "b", "orders")
    first.beat()
    second.beat()
    before = first.epoch
    first.beat(owned=None)
    lost = next(p for p in range(4) if p not in first.has["orders"])
    member = ("a", before)
    assert bench.commit("g", "orders", 1, partition=lost, member=member) == E.NONE
    settle(first, second)
    assert bench.commit("g", "orders", 2, partition=lost, member=member) == E.STALE_MEMBER_EPOCH
    kept = first.has["orders"][0]
    assert bench.commit("g", "orders", 2, partition=kept, member=member) == E.NONE


def test_the_epochs_of_partitions_are_found_again(bench, tmp_path):
    first, second = two_readers(bench)
    old, kept = first.epoch, first.has["orders"][0]
    second.leave()
    settle(first)
    gained = next(p for p in range(4) if p in second.has["orders"])
    again = GroupBench(tmp_path / "data")
    assert again.commit("g", "orders", 1, partition=kept, member=("a", old)) == E.NONE
    refused = again.commit("g", "orders", 1, partition=gained, member=("a", old))
    assert refused == E.STALE_MEMBER_EPOCH


def test_a_fetch_of_offsets_needs_the_epoch_of_now(bench):
    first, second = two_readers(bench)
    second.leave()
    old = first.epoch
    settle(first)
    assert fetch_as(bench, "a", first.epoch) == E.NONE
    assert fetch_as(bench, "a", old) == E.STALE_MEMBER_EPOCH
    assert fetch_as(bench, "b", old) == E.UNKNOWN_MEMBER_ID


def fetch_as(bench, member, epoch):
    group = offset_fetch.OffsetFetchRequestGroup("g", member, epoch, None)
    request = offset_fetch.OffsetFetchRequest(groups=[group])
    return bench.ask(offset_fetch, request, version=9).groups[0].error_code


# ---- what a member reads


def test_what_a_member_does_not_read_any_more_is_taken_from_it_at_once(tmp_path):
    """Also where it is too early to share out anew: nobody is to read what it turned away from."""
    bench = GroupBench(tmp_path / "data", group_consumer_assignment_interval_ms=15_000)
    bench.find("g")
    bench.create("orders", 4)
    bench.create("payments", 2)
    first = Reader(bench, "g", "a", "orders", "payments")
    second = Reader(bench, "g", "b", "orders", "payments")
    first.beat()
    second.beat()
    bench.advance(15_000)
    settle(first, second)
    turned, other = (first, second) if "payments" in first.has else (second, first)
    had = turned.has["orders"]
    turned.beat(topics=["orders"])
    assert turned.has == {"orders": had}
    settle(turned)
    assert turned.has == {"orders": had}, "and nothing else is moved before it is time"
    bench.advance(15_000)
    settle(first, second)
    assert other.has["payments"] == [0, 1]
    assert "payments" not in turned.has


def test_a_group_that_a_member_left_is_not_moved_by_topics_that_only_it_read(bench):
    bench.create("payments", 1)
    first = Reader(bench, "g", "a", "orders")
    second = Reader(bench, "g", "b", "orders", "payments")
    first.beat()
    second.beat()
    settle(first, second)
    second.leave()
    settle(first)
    epoch = describe(bench).group_epoch
    bench.create("unrelated", 1)
    settle(first)
    assert describe(bench).group_epoch == epoch


def test_a_pattern_that_its_last_member_leaves_is_forgotten(bench, tmp_path):
    first = Reader(bench, "g", "a", "orders")
    second = Reader(bench, "g", "b", regex="pay.*")
    first.beat()
    second.beat()
    settle(first)
    second.leave()
    epoch = describe(bench).group_epoch
    bench.create("payments", 1)
    settle(first)
    assert describe(bench).group_epoch == epoch
    assert first.has == {"orders": [0, 1, 2, 3]}
    again = GroupBench(tmp_path / "data")
    [group] = [m.groups["g"] for m in again.node.broker.groups.machines(again.now) if m.groups]
    assert group.patterns == {}


def test_partitions_that_are_added_are_shared_out_and_nothing_else_moves(bench):
    first, second = two_readers(bench)
    before = {reader.id: set(reader.has["orders"]) for reader in (first, second)}
    bench.grow("orders", 8)
    settle(first, second)
    for reader in (first, second):
        assert before[reader.id] < set(reader.has["orders"])
        assert len(reader.has["orders"]) == 4


def test_a_rack_is_kept_and_shown(bench):
    reader = Reader(bench, "g", "a", "orders", rack="north")
    reader.beat()
    assert describe(bench).members[0].rack_id == "north"
    del reader.more["rack"]
    epoch = describe(bench).group_epoch
    assert reader.beat(rack="south").error_code == E.NONE
    described = describe(bench)
    assert (described.members[0].rack_id, described.group_epoch) == ("south", epoch)


def test_members_choose_the_assignor_by_majority(bench):
    readers = [
        Reader(bench, "g", "a", "orders", assignor="range"),
        Reader(bench, "g", "b", "orders", assignor="uniform"),
        Reader(bench, "g", "c", "orders", assignor="uniform"),
    ]
    readers[0].beat()
    assert describe(bench).assignor_name == "range"
    for reader in readers[1:]:
        reader.beat()
    settle(*readers)
    assert describe(bench).assignor_name == "uniform"


def test_a_static_member_that_comes_back_and_reads_other_topics_is_given_those(bench):
    bench.create("payments", 2)
    one = Reader(bench, "g", "a", "orders", instance="one")
    two = Reader(bench, "g", "b", "orders", instance="two")
    one.beat()
    two.beat()
    settle(one, two)
    one.leave(epoch=-2)
    again = Reader(bench, "g", "c", "payments", instance="one")
    again.beat()
    settle(again, two)
    assert (again.has, two.has) == ({"payments": [0, 1]}, {"orders": [0, 1, 2, 3]})


def test_what_a_member_turns_away_from_while_it_gives_other_things_up_goes_with_them(tmp_path):
    bench = GroupBench(tmp_path / "data", group_consumer_assignment_interval_ms=15_000)
    bench.find("g")
    bench.create("orders", 4)
    bench.create("payments", 1)
    first = Reader(bench, "g", "a", "orders", "payments")
    second = Reader(bench, "g", "b", "orders")
    first.beat()
    second.beat()
    bench.advance(15_000)
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
    bench.advance(15_000)
    settle(first, second)
    assert (first.has, second.has) == ({"payments": [0]}, {"orders": [0, 1, 2, 3]})


def test_a_group_whose_protocol_is_switched_off_is_refused(tmp_path):
    bench = GroupBench(tmp_path / "data", group_coordinator_rebalance_protocols="classic")
    bench.find("g")
    bench.create("orders", 4)
    assert Reader(bench, "g", "a", "orders").beat().error_code == E.UNSUPPORTED_VERSION


def test_the_first_assignor_of_the_settings_is_the_default_and_others_are_refused(tmp_path):
    bench = GroupBench(tmp_path / "data", group_consumer_assignors="range")
    bench.find("g")
    bench.create("orders", 4)
    reader = Reader(bench, "g", "a", "orders")
    assert reader.beat().error_code == E.NONE
    assert describe(bench).assignor_name == "range"
    assert reader.beat(assignor="uniform").error_code == E.UNSUPPORTED_ASSIGNOR


def test_epochs_that_an_older_release_did_not_write_are_the_member_s_own(bench):
    """Then only its present epoch commits; nothing that was another's is taken for its own."""
    first, second = two_readers(bench)
    second.leave()
    settle(first)
    shard = bench.node.broker.groups.shard_of("g")
    group = shard.machine.groups["g"]
    record = consumer_records.current("g", group.members["a"])
    for part in record.value.assigned_partitions:
        part.assignment_epochs = []
    shard.run(bench.now, lambda machine: Decision([record], True))
    bench.settle()
    assert bench.commit("g", "orders", 1, member=("a", first.epoch)) == E.NONE
    for index in range(4):
        code = bench.commit("g", "orders", 1, partition=index, member=("a", first.epoch - 1))
        assert code == E.STALE_MEMBER_EPOCH
