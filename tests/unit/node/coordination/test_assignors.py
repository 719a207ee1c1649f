"""The server's assignors: complete, fair, and moving little."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.node.coordination.group.assignors import ASSIGNORS, MemberSpec

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def members(*names, topics=(A,), current=None):
    return {
        name: MemberSpec(None, frozenset(topics), (current or {}).get(name, {})) for name in names
    }


def plain(assignment):
    return {
        name: {topic[:1].decode(): sorted(found) for topic, found in mine.items()}
        for name, mine in assignment.items()
    }


def test_ranges_are_cut_in_the_order_of_members_and_go_together_over_topics():
    given = ASSIGNORS["range"](members("m2", "m1", "m3", topics=(A, B)), {A: 5, B: 3})
    assert plain(given) == {
        "m1": {"a": [0, 1], "b": [0]},
        "m2": {"a": [2, 3], "b": [1]},
        "m3": {"a": [4], "b": [2]},
    }


def test_static_members_stand_first_in_ranges():
    both = {
        "z": MemberSpec("instance", frozenset({A}), {}),
        "a": MemberSpec(None, frozenset({A}), {}),
    }
    assert plain(ASSIGNORS["range"](both, {A: 3})) == {"z": {"a": [0, 1]}, "a": {"a": [2]}}


def test_a_uniform_share_is_kept_and_only_the_surplus_moves():
    current = {"one": {A: frozenset(range(6))}}
    given = plain(ASSIGNORS["uniform"](members("one", "two", current=current), {A: 6}))
    assert given == {"one": {"a": [0, 1, 2]}, "two": {"a": [3, 4, 5]}}


def test_topics_that_are_gone_are_given_back():
    current = {"one": {A: frozenset({0, 7}), B: frozenset({0})}}
    given = plain(ASSIGNORS["uniform"](members("one", current=current), {A: 2}))
    assert given == {"one": {"a": [0, 1]}}


TOPICS = (A, B, C)
groups = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(8)]),
    st.sets(st.sampled_from(TOPICS), min_size=1),
    min_size=1,
)
counts = st.fixed_dictionaries({topic: st.integers(0, 12) for topic in TOPICS})


@given(groups, counts, groups, st.sampled_from(["uniform", "range"]))
def test_every_readable_partition_has_one_reader_that_asked_for_it(before, sizes, now, name):
    assign = ASSIGNORS[name]
    first = assign({n: MemberSpec(None, frozenset(t), {}) for n, t in before.items()}, sizes)
    specs = {n: MemberSpec(None, frozenset(t), first.get(n, {})) for n, t in now.items()}
    result = assign(specs, sizes)
    seen = [
        (topic, index)
        for n, mine in result.items()
        for topic, indexes in mine.items()
        for index in indexes
        if topic in specs[n].topics
    ]
    readable = {topic for spec in specs.values() for topic in spec.topics}
    assert sorted(seen) == sorted((t, i) for t in readable for i in range(sizes[t]))
    assert set(result) == set(now)


@given(st.integers(1, 9), counts, st.integers(1, 9))
def test_uniform_shares_differ_by_one_and_as_little_as_possible_moves(many, sizes, later):
    assign = ASSIGNORS["uniform"]
    first = assign(members(*map(str, range(many)), topics=TOPICS), sizes)
    again = assign(members(*map(str, range(later)), topics=TOPICS, current=first), sizes)
    shares = [sum(map(len, mine.values())) for mine in again.values()]
    assert max(shares) - min(shares) <= 1
    kept = sum(
        len(first.get(name, {}).get(topic, frozenset()) & indexes)
        for name, mine in again.items()
        for topic, indexes in mine.items()
    )
    before = {n: sum(map(len, mine.values())) for n, mine in first.items()}
    could_stay = sum(min(before.get(n, 0), max(shares)) for n in again)
    assert (
        kept >= could_stay - many
    )  # one more or less each, depending on who gets the larger share


def test_who_neither_gains_nor_loses_keeps_its_very_assignment():
    before = ASSIGNORS["uniform"](members(*"abcd"), {A: 8})
    after = ASSIGNORS["uniform"](members(*"abcde", current=before), {A: 8})
    assert plain(after) == {
        "a": {"a": [0, 1]},
        "b": {"a": [2, 3]},
        "c": {"a": [4, 5]},
        "d": {"a": [6]},
        "e": {"a": [7]},
    }
    assert [name for name in before if after[name] is not before[name]] == ["d"]
