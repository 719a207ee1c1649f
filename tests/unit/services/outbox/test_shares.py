"""Relays share shards evenly, and nobody is left over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.services.outbox.shares import Lease, Silence, quota, to_give, to_take


@given(st.sets(st.text(min_size=1), min_size=1, max_size=9), st.integers(1, 40))
def test_quotas_make_the_whole_and_differ_by_one(relays: set[str], shards: int) -> None:
    quotas = [quota(relays, me, shards) for me in relays]
    assert sum(quotas) == shards
    assert max(quotas) - min(quotas) <= 1


def test_free_and_expired_leases_are_taken_up_to_the_quota() -> None:
    leases = [Lease(0, None, 0), Lease(1, "b", 900), Lease(2, "b", 2000), Lease(3, None, 0)]
    assert to_take(leases, ["a", "b"], "a", [], 1000) == [0, 1]
    assert to_take(leases, ["a", "b"], "a", [3], 1000) == [0]
    assert to_take(leases, ["a"], "a", [], 1000) == [0, 1, 3]


def test_a_lease_of_mine_without_work_is_taken_again() -> None:
    assert to_take([Lease(0, "a", 9000)], ["a"], "a", [], 1000) == [0]


def test_what_is_beyond_the_quota_is_given_to_those_who_came() -> None:
    assert to_give(4, ["a", "b"], "a", [0, 1, 2, 3]) == [2, 3]
    assert to_give(4, ["a"], "a", [0, 1, 2, 3]) == []
    assert to_give(1, ["a", "b"], "b", [0]) == [0]


def test_a_relay_that_says_nothing_new_for_too_long_is_silent() -> None:
    silence = Silence(longest_s=30.0)
    assert silence.of({"a": 5000, "b": 9000}, now_s=0.0) == []
    assert silence.of({"a": 5000, "b": 9100}, now_s=29.0) == []
    assert silence.of({"a": 5000, "b": 9100}, now_s=31.0) == ["a"]
    assert silence.of({"b": 9200}, now_s=40.0) == []
    assert silence.of({"a": 5000, "b": 9100}, now_s=41.0) == []  # it was away, or is another one
