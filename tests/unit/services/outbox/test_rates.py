"""Rows per second of each shard, as `headrace outbox status` shows them; how often it is looked."""

from __future__ import annotations

from headrace.services.outbox.databases import poll_pause_s
from headrace.services.outbox.metrics import Rates


def test_a_rate_is_over_a_second_or_more_and_is_told_when_it_changes() -> None:
    rates = Rates()
    assert rates.changed({0: 0}, 10.0) == {}
    assert rates.changed({0: 500}, 10.5) == {}
    assert rates.changed({0: 3000}, 12.0) == {0: 1500.0}
    assert rates.changed({0: 4500}, 13.0) == {}  # as before
    assert rates.changed({0: 4500}, 15.0) == {0: 0.0}
    assert rates.changed({0: 4500}, 17.0) == {}


def test_a_shard_that_is_given_away_and_comes_back_begins_anew() -> None:
    rates = Rates()
    rates.changed({0: 0, 1: 0}, 10.0)
    assert rates.changed({0: 100, 1: 50}, 11.0) == {0: 100.0, 1: 50.0}
    assert rates.changed({1: 100}, 12.0) == {}
    assert rates.changed({0: 7, 1: 150}, 13.0) == {}
    assert rates.changed({0: 17, 1: 150}, 14.0) == {0: 10.0, 1: 0.0}


def test_a_worker_that_was_begun_anew_counts_from_zero() -> None:
    rates = Rates()
    rates.changed({0: 100}, 10.0)
    assert rates.changed({0: 5}, 11.0) == {}
    assert rates.changed({0: 25}, 13.0) == {0: 10.0}


def test_an_outbox_at_rest_is_looked_at_less_often() -> None:
    assert [poll_pause_s(0.005, idle_s) for idle_s in (0, 1, 4, 10, 3600)] == [
        0.005,
        0.005,
        0.02,
        0.05,
        0.05,
    ]
