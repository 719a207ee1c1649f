"""The assignor of share groups: even shares, no partition without a member, few moves."""

import pytest

from headrace.node.coordination.group.assignors.simple import assign_shares

A, B = b"a" * 16, b"b" * 16


def group(count, *topics):
    return {f"member-{number:03}": frozenset(topics) for number in range(count)}


def sizes(given):
    return [sum(map(len, assignment.values())) for assignment in given.values()]


def holders(given, topic, index):
    return sum(index in assignment.get(topic, ()) for assignment in given.values())


@pytest.mark.parametrize("members", [1, 2, 3, 5, 8, 13, 40])
@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 12])
def test_shares_are_even_and_each_partition_has_its_holders(members, partitions):
    given = assign_shares(group(members, A), {}, {A: range(partitions)})
    assert max(sizes(given)) - min(sizes(given)) <= 1 and min(sizes(given)) >= 1
    each = -(-members // partitions)
    assert {holders(given, A, index) for index in range(partitions)} == {each}


def test_members_keep_what_they_have_when_one_joins_and_when_one_leaves():
    before = assign_shares(group(2, A), {}, {A: range(6)})
    after = assign_shares(group(3, A), before, {A: range(6)})
    for member, assignment in before.items():
        assert len(assignment[A] & after[member][A]) == 2
    without = {member: topics for member, topics in group(3, A).items() if member != "member-001"}
    again = assign_shares(without, after, {A: range(6)})
    assert all(after[member][A] <= again[member][A] for member in without)


def test_every_partition_has_a_member_after_any_joins_and_leaves():
    before = {}
    for number in [1, 9, 2, 30, 3, 4, 17, 1]:
        before = assign_shares(group(number, A, B), before, {A: range(5), B: range(3)})
        assert all(holders(before, A, index) for index in range(5))
        assert all(holders(before, B, index) for index in range(3))
        assert max(sizes(before)) - min(sizes(before)) <= 1


def test_members_get_only_topics_that_they_read():
    read = {"one": frozenset({A}), "two": frozenset({A, B}), "three": frozenset()}
    given = assign_shares(read, {}, {A: range(4), B: range(2)})
    assert set(given["one"]) == {A} and given["three"] == {}
    assert given["two"][B] == frozenset({0, 1})
    assert given["one"][A] | given["two"][A] == frozenset(range(4))


def test_partitions_that_cannot_be_assigned_are_left_out():
    before = assign_shares(group(1, A), {}, {A: range(4)})
    given = assign_shares(group(2, A), before, {A: [1, 2]})
    assert sorted(index for one in given.values() for index in one.get(A, ())) == [1, 2]
    assert assign_shares(group(2, A), given, {}) == {"member-000": {}, "member-001": {}}
