"""A crowd whose members read different topics: shared out as evenly as a small group, and each
newcomer moves only what it gets."""

from headrace.node.coordination.group.assignors import ASSIGNORS, MemberSpec

A, B = b"a" * 16, b"b" * 16
MEMBERS, EACH = 1_000, 5_000


def crowd(current):
    """Every second member reads both topics, the others only the first."""
    reads = (frozenset({A, B}), frozenset({A}))
    return {
        name: MemberSpec(None, reads[number % 2], current.get(name, {}))
        for number, name in enumerate(f"m{number:04}" for number in range(MEMBERS))
    }


def partitions(given):
    return {(t, p) for mine in given.values() for t, found in mine.items() for p in found}


def size(mine):
    return sum(map(len, mine.values()))


def test_a_thousand_members_and_two_more():
    counts = {A: EACH, B: EACH}
    members = crowd({})
    given = ASSIGNORS["uniform"](members, counts)
    assert len(partitions(given)) == sum(map(size, given.values())) == 2 * EACH
    assert {size(mine) for mine in given.values()} == {2 * EACH // MEMBERS}
    assert all(mine.keys() <= members[name].topics for name, mine in given.items())

    newcomers = {name: MemberSpec(None, frozenset({A}), {}) for name in ("late", "later")}
    after = ASSIGNORS["uniform"](crowd(given) | newcomers, counts)
    assert partitions(after) == partitions(given)
    assert {size(after[name]) for name in newcomers} == {2 * EACH // (MEMBERS + 2)}
    kept = {
        (t, p)
        for name in given
        for t, found in after[name].items()
        for p in found & given[name].get(t, set())
    }
    assert partitions(given) - kept == partitions({name: after[name] for name in newcomers})
