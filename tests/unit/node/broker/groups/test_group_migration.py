"""Living groups between the two protocols, static members among them, and who may do that."""

import pytest

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import join_group, list_groups, sync_group
from tests.unit.node.broker.groups.group_classics import ClassicReader, stable_group
from tests.unit.node.broker.groups.group_readers import Reader, describe, until_stable
from tests.unit.node.broker.groups.group_rig import GroupRig
from tests.unit.node.broker.rig import WAITS

E = ErrorCode
ALL = {("orders", index) for index in range(4)}


@pytest.fixture
def rig(tmp_path):
    return with_orders(tmp_path)


def with_orders(tmp_path, **settings):
    rig = GroupRig(tmp_path / "data", **settings)
    rig.find("g")
    rig.create("orders", 4)
    return rig


def kind_and_state(rig):
    [listed] = rig.ask(list_groups, list_groups.ListGroupsRequest()).groups
    return listed.group_type, listed.group_state


def owned_by(*readers):
    """All that they have, by (topic, partition); nothing is anybody's twice."""
    found = []
    for reader in readers:
        if isinstance(reader, Reader):
            found += [(topic, index) for topic, parts in reader.has.items() for index in parts]
        else:
            found += reader.owned
    assert len(found) == len(set(found)), found
    return set(found)


def come_to_rest(*readers):
    for _ in range(8):
        for reader in readers:
            if isinstance(reader, Reader):
                assert reader.beat().error_code == E.NONE, reader.last
            else:
                reader.follow()
            owned_by(*readers)
    assert owned_by(*readers) == ALL


# ---- static members


def test_a_static_member_that_starts_again_with_the_newer_protocol_keeps_its_place(rig):
    """A rolling restart: nobody waits for a session to run out, and nobody else is moved."""
    one, two = (ClassicReader(rig, "g", "orders", instance=name) for name in ("one", "two"))
    stable_group(rig, one, two)
    had = one.owned
    again = Reader(rig, "g", "new", "orders", instance="one")
    assert again.beat().error_code == E.NONE, again.last.error_message
    assert two.beat() == E.NONE, "the others have nothing to do"
    come_to_rest(again, two)
    assert owned_by(again) == had
    assert one.beat() == E.FENCED_INSTANCE_ID
    last = Reader(rig, "g", "newer", "orders", instance="two")
    assert last.beat().error_code == E.NONE
    come_to_rest(again, last)
    assert owned_by(again) == had
    assert {member.member_type for member in describe(rig).members} == {1}


def test_a_static_member_that_starts_again_with_the_classic_protocol_keeps_its_place(rig):
    one = Reader(rig, "g", "a", "orders", instance="one")
    two = Reader(rig, "g", "b", "orders", instance="two")
    one.beat()
    two.beat()
    until_stable(one, two)
    had = owned_by(one)
    again = ClassicReader(rig, "g", "orders", instance="one")
    assert again.join().error_code == E.NONE
    assert again.sync().error_code == E.NONE
    come_to_rest(again, two)
    assert again.owned == had
    assert one.beat().error_code == E.FENCED_INSTANCE_ID
    assert kind_and_state(rig) == ("consumer", "Stable")


def test_the_last_static_member_to_go_back_takes_the_group_along_and_moves_nobody(rig, tmp_path):
    one = Reader(rig, "g", "a", "orders", instance="one")
    two = Reader(rig, "g", "b", "orders", instance="two")
    one.beat()
    two.beat()
    until_stable(one, two)
    had = {1: owned_by(one), 2: owned_by(two)}
    first = ClassicReader(rig, "g", "orders", instance="one")
    first.join()
    first.sync()
    second = ClassicReader(rig, "g", "orders", instance="two")
    assert second.join().error_code == E.NONE
    assert kind_and_state(rig) == ("classic", "Stable")
    assert second.sync().error_code == E.NONE
    assert {1: first.owned, 2: second.owned} == had
    assert first.beat() == E.NONE or first.join().generation_id == second.generation
    assert second.beat() == E.NONE
    again = GroupRig(tmp_path / "data")
    assert kind_and_state(again) == ("classic", "Stable")


def test_the_last_static_member_that_goes_back_and_reads_more_makes_all_join_anew(rig):
    rig.create("payments", 2)
    one = Reader(rig, "g", "a", "orders", instance="one")
    one.beat()
    other = ClassicReader(rig, "g", "orders")
    other.join()
    other.sync()
    come_to_rest(one, other)
    again = ClassicReader(rig, "g", "orders", "payments", instance="one")
    assert again.join().error_code == E.NONE
    assert kind_and_state(rig) == ("classic", "PreparingRebalance")
    assert again.sync().error_code == E.REBALANCE_IN_PROGRESS
    assert again.join() == WAITS
    other.join()
    assert {again.hear() == WAITS, other.leads or again.leads} == {False, True}


def test_a_static_classic_member_that_starts_again_in_the_middle_of_a_move_goes_on_with_it(rig):
    """What is another's by now must not stay with it."""
    one = ClassicReader(rig, "g", "orders", instance="one")
    stable_group(rig, one)
    new = Reader(rig, "g", "new", "orders")
    new.beat()
    assert new.has == {}
    again = ClassicReader(rig, "g", "orders", instance="one")
    again.join()
    again.sync()
    come_to_rest(again, new)
    assert len(again.owned) == len(owned_by(new)) == 2


def test_a_static_member_that_nobody_knows_any_more_is_told_so(rig):
    Reader(rig, "g", "a", "orders").beat()
    stranger = ClassicReader(rig, "g", "orders", instance="one")
    stranger.id = "one-of-before"
    assert stranger.join().error_code == E.UNKNOWN_MEMBER_ID
    stranger.id = ""
    assert stranger.join().error_code == E.NONE


# ---- members without a name of their own


@pytest.mark.parametrize("eager", [False, True])
def test_a_group_goes_over_member_by_member(rig, eager):
    old = [ClassicReader(rig, "g", "orders", eager=eager) for _ in range(2)]
    stable_group(rig, *old)
    new = []
    for number, gone in enumerate(old):
        new.append(Reader(rig, "g", f"new-{number}", "orders"))
        new[-1].beat()
        come_to_rest(*old[number:], *new)
        rig.leave("g", gone.id)
        gone.owned = set()
    come_to_rest(*new)
    assert kind_and_state(rig) == ("consumer", "Stable")


def test_who_waits_in_a_rebalance_is_told_to_join_anew_when_the_group_goes_over(rig):
    one, two = ClassicReader(rig, "g", "orders"), ClassicReader(rig, "g", "orders")
    stable_group(rig, one, two)
    three = ClassicReader(rig, "g", "orders")
    assert three.join() == WAITS
    new = Reader(rig, "g", "new", "orders")
    assert new.beat().error_code == E.NONE
    assert rig.answer_on(three.session, join_group, 9).error_code == E.REBALANCE_IN_PROGRESS
    assert three.join().error_code == E.NONE
    three.sync()
    come_to_rest(one, two, three, new)
    assert sorted(map(len, (one.owned, two.owned, three.owned, owned_by(new)))) == [1] * 4


def test_who_waits_for_the_leader_is_told_to_join_anew_when_the_group_goes_over(rig):
    one, two = ClassicReader(rig, "g", "orders"), ClassicReader(rig, "g", "orders")
    stable_group(rig, one, two)
    one.join()
    two.join()
    one.hear()
    assert two.sync() == WAITS
    new = Reader(rig, "g", "new", "orders")
    assert new.beat().error_code == E.NONE
    assert rig.answer_on(two.session, sync_group, 5).error_code == E.REBALANCE_IN_PROGRESS
    one.owned = two.owned = set()  # what they had before the assignment that never came
    come_to_rest(one, two, new)


def test_a_mixed_group_goes_on_after_a_restart(rig, tmp_path):
    old, new = ClassicReader(rig, "g", "orders"), Reader(rig, "g", "new", "orders")
    stable_group(rig, old)
    new.beat()
    come_to_rest(old, new)
    again = GroupRig(tmp_path / "data")
    old.rig = new.rig = again
    assert old.beat() == E.NONE
    assert new.beat(owned=None).assignment is None
    again.advance(10_001)  # the session that the classic member asked for
    come_to_rest(new)
    assert old.beat() == E.UNKNOWN_MEMBER_ID


def test_the_group_goes_back_when_the_last_of_the_newer_protocol_falls_silent(rig):
    old, new = ClassicReader(rig, "g", "orders"), Reader(rig, "g", "new", "orders")
    stable_group(rig, old)
    new.beat()
    come_to_rest(old, new)
    for _ in range(9):
        rig.advance(6_000)
        old.beat()
    assert kind_and_state(rig) == ("classic", "PreparingRebalance")
    assert old.join().error_code == E.NONE
    assert old.leads


# ---- classic members in a group of the newer protocol: their time


def mixed(rig):
    old, new = ClassicReader(rig, "g", "orders"), Reader(rig, "g", "new", "orders")
    stable_group(rig, old)
    new.beat()
    come_to_rest(old, new)
    return old, new


def test_a_classic_member_that_does_not_join_anew_in_time_is_out(rig):
    old, new = mixed(rig)
    Reader(rig, "g", "newer", "orders").beat()
    for _ in range(7):
        rig.advance(5_000)
        new.beat()
        code = old.beat()
    assert code == E.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_never_asks_for_its_part_is_out(rig):
    old, new = mixed(rig)
    newer = Reader(rig, "g", "newer", "orders")
    newer.beat()
    assert old.beat() == E.REBALANCE_IN_PROGRESS
    for _ in range(2):
        old.join()  # goes on joining, and gets as far as it can
        new.beat()
        newer.beat()
    for _ in range(7):
        rig.advance(5_000)
        for reader in (new, newer):
            reader.beat()
        code = old.beat()
    assert code == E.UNKNOWN_MEMBER_ID


def test_members_of_the_newer_protocol_are_removed_by_an_operator(rig):
    """What `kafka-consumer-groups` and admin clients send is LeaveGroup, whatever the protocol."""
    one = Reader(rig, "g", "a", "orders", instance="one")
    two, three = Reader(rig, "g", "b", "orders"), Reader(rig, "g", "c", "orders")
    for reader in (one, two, three):
        reader.beat()
    until_stable(one, two, three)
    [left] = rig.leave("g", "", instance="one").members
    assert left.error_code == E.NONE
    [left] = rig.leave("g", "b").members
    assert left.error_code == E.NONE
    [left] = rig.leave("g", "b").members
    assert left.error_code == E.UNKNOWN_MEMBER_ID
    until_stable(three)
    assert owned_by(three) == ALL
    assert two.beat().error_code == E.UNKNOWN_MEMBER_ID


# ---- who may


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade", "bidirectional"])
def test_the_policy_says_which_way_groups_may_go(tmp_path, policy):
    rig = with_orders(tmp_path, group_consumer_migration_policy=policy)
    old = ClassicReader(rig, "g", "orders")
    stable_group(rig, old)
    up = Reader(rig, "g", "new", "orders").beat().error_code
    assert up == (E.NONE if policy in ("upgrade", "bidirectional") else E.GROUP_ID_NOT_FOUND)
    new = Reader(rig, "h", "new", "orders")
    new.beat()
    other = ClassicReader(rig, "h", "orders")
    other.join()
    new.leave()
    groups = rig.ask(list_groups, list_groups.ListGroupsRequest()).groups
    kinds = {group.group_id: group.group_type for group in groups}
    down = policy in ("downgrade", "bidirectional")
    assert kinds["h"] == ("classic" if down else "consumer")


def test_a_group_that_is_too_large_for_the_other_protocol_stays_what_it_is(tmp_path):
    rig = with_orders(tmp_path, group_consumer_max_size=1, group_max_size=1)
    one, two = (ClassicReader(rig, "g", "orders") for _ in range(2))
    stable_group(rig, one)
    assert two.join().error_code == E.GROUP_MAX_SIZE_REACHED
    assert Reader(rig, "g", "new", "orders").beat().error_code == E.GROUP_MAX_SIZE_REACHED
    assert kind_and_state(rig) == ("classic", "Stable")


def test_what_is_refused_to_a_classic_member_in_a_group_of_the_newer_protocol(rig):
    old, new = mixed(rig)
    assert old.sync(generation_id=old.generation - 1).error_code == E.ILLEGAL_GENERATION
    assert old.sync(protocol_name="range").error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert old.sync(protocol_type="connect").error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert rig.sync("g", new.id, new.epoch).error_code == E.UNKNOWN_MEMBER_ID, "not classic"
    assert rig.heartbeat("g", new.id, new.epoch) == E.UNKNOWN_MEMBER_ID
    assert rig.heartbeat("g", old.id, old.generation - 1) == E.ILLEGAL_GENERATION
    assert old.join(protocol_type="connect").error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert old.sync().error_code == E.NONE
    _, index = min(old.owned)
    who = (old.id, old.generation)
    assert rig.commit("g", "orders", 1, partition=index, member=who, version=8) == E.NONE
    late = (old.id, old.generation + 1)
    code = rig.commit("g", "orders", 1, partition=index, member=late)
    assert code == E.ILLEGAL_GENERATION
