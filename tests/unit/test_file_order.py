"""The order in which the files of the inner ring begin."""

from __future__ import annotations

from tests.file_order import spread


def test_a_few_are_spread_evenly_among_many() -> None:
    assert "".join(spread("xyz", "abcdef")) == "abxcdyefz"
    assert "".join(spread("xyz", "ab")) == "axbyz"


def test_nothing_is_lost_where_one_side_is_empty() -> None:
    assert spread("", "ab") == ["a", "b"]
    assert spread("ab", "") == ["a", "b"]
