"""Where records go, by themselves."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.producer.partitioners import RoundRobin, Sticky, murmur2, resolved
from headrace.wire.protocol import java_hash


@given(st.binary(max_size=40), st.integers(1, 100))
def test_keys_are_hashed_as_java_does(key: bytes, partitions: int) -> None:
    expected = (java_hash.murmur2(key) & 0x7FFFFFFF) % partitions
    assert murmur2("t", key, partitions) == expected
    assert Sticky()("t", key, partitions) == expected


def test_round_robin_counts_per_topic() -> None:
    choose = RoundRobin()
    assert [choose("a", None, 3) for _ in range(4)] == [0, 1, 2, 0]
    assert choose("b", None, 3) == 0


def test_sticky_stays_and_then_moves_on() -> None:
    choose = Sticky(3, seed=1)
    chosen = [choose("a", None, 4) for _ in range(300)]
    runs = [chosen[n : n + 3] for n in range(0, 300, 3)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(one[0] != other[0] for one, other in itertools.pairwise(runs))
    assert set(chosen) == {0, 1, 2, 3}
    assert [choose("a", None, 1) for _ in range(5)] == [0] * 5, "fewer partitions than it knew"


def test_names_go_to_librdkafka_unless_they_are_ours() -> None:
    assert resolved("fnv1a_random") == ("fnv1a_random", None)
    assert isinstance(resolved("round_robin")[1], RoundRobin)
    assert isinstance(resolved("sticky")[1], Sticky)
    assert resolved(murmur2) == ("murmur2_random", murmur2)
