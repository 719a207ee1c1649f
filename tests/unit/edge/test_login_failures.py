"""How failed logins are counted."""

from __future__ import annotations

from headrace.edge.login_failures import LoginFailures


def test_failures_count_within_their_window_and_by_their_key() -> None:
    failures = LoginFailures(window_s=60, most_keys=10)
    for at_s in (0, 10, 20):
        failures.note("ann", at_s, most=3)
    assert failures.wait_s("ann", 25, most=3) == 35
    assert failures.wait_s("ann", 25, most=4) == failures.wait_s("bob", 25, most=1) == 0
    assert failures.recent("ann", 60) == [10, 20]
    assert failures.wait_s("ann", 60, most=3) == 0


def test_only_the_newest_failures_and_keys_are_kept() -> None:
    failures = LoginFailures(window_s=60, most_keys=2)
    for at_s in range(5):
        failures.note("ann", at_s, most=3)
    assert failures.recent("ann", 5) == [2, 3, 4]
    failures.note("bob", 5, most=3)
    failures.note("ann", 6, most=3)
    failures.note("eve", 7, most=3)
    assert not failures.recent("bob", 8) and failures.recent("ann", 8) == [3, 4, 6]


def test_a_failure_can_be_taken_back_once() -> None:
    failures = LoginFailures(window_s=60, most_keys=2)
    failures.note("ann", 1, most=3)
    failures.note("ann", 2, most=3)
    for _ in range(2):
        failures.take_back("ann", 1)
    failures.take_back("bob", 1)
    assert failures.recent("ann", 3) == [2]
    failures.forget("ann")
    assert not failures.recent("ann", 3)
