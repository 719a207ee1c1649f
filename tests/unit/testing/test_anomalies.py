"""The checker of the long runs finds each kind of anomaly, and nothing where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.soak.anomalies import Seen, Written, find, told

WRITTEN = [Written(0, "a"), Written(0, "b"), Written(1, "x"), Written(0, "c")]
A, B, C, X = Seen(0, "a"), Seen(0, "b"), Seen(0, "c"), Seen(1, "x")


def kinds(*seen: Seen, written: list[Written] = WRITTEN, **known: Any) -> list[str]:
    return [anomaly.kind for anomaly in find(written, seen, **known)]


def in_transaction(of: int) -> list[Seen]:
    return [replace(record, transaction="t", of=of) for record in (A, B, C, X)]


def test_what_was_written_once_in_order_is_right() -> None:
    assert kinds(A, B, C, X) == []
    assert kinds(X, A, B, C) == [], "there is no order between partitions"
    assert kinds(*in_transaction(4), committed=["t"]) == []


def test_each_anomaly_has_its_name() -> None:
    assert kinds(A, C, X) == ["lost"]
    assert kinds(A, B, B, C, X) == ["duplicate"]
    assert kinds(A, B, A, C, X) == ["duplicate"]
    assert kinds(A, C, B, X) == ["reordered"]
    assert kinds(C, A, B, X) == ["reordered"]
    assert kinds(A, B, C, X, Seen(1, "y")) == ["unknown"]
    assert kinds(A, B, C, Seen(0, "x")) == ["misplaced"]
    assert kinds(*in_transaction(4), aborted=["t"]) == ["aborted read"]
    assert kinds(*in_transaction(5)) == ["torn"]
    assert kinds(A, B, C, X, committed=["t"]) == ["lost"], "a transaction of which nothing is there"


def test_the_order_of_each_writer_counts_and_not_the_order_between_them() -> None:
    written = [
        Written(0, "a1", writer="a"),
        Written(0, "b1", writer="b"),
        Written(0, "a2", writer="a"),
    ]
    assert kinds(Seen(0, "b1"), Seen(0, "a1"), Seen(0, "a2"), written=written) == []
    assert kinds(Seen(0, "a2"), Seen(0, "b1"), Seen(0, "a1"), written=written) == ["reordered"]


def test_a_record_lies_where_its_writer_was_told() -> None:
    written = [Written(0, "a", offset=0), Written(0, "b", offset=3)]
    assert kinds(Seen(0, "a", offset=0), Seen(0, "b", offset=3), written=written) == []
    assert kinds(Seen(0, "a", offset=0), Seen(0, "b", offset=2), written=written) == ["misplaced"]
    back = [Seen(0, "a", offset=5), Seen(0, "b", offset=5)]
    assert kinds(*back, written=[Written(0, "a"), Written(0, "b")]) == ["reordered"]


def test_a_value_under_another_key_is_another_record() -> None:
    written = [Written(0, "a", key="k")]
    assert kinds(Seen(0, "a", key="k"), written=written) == []
    assert kinds(Seen(0, "a", key="other"), written=written) == ["lost", "unknown"]


def test_what_nobody_was_told_of_may_be_there_or_not_but_not_in_part() -> None:
    written = [Written(0, "a", acknowledged=False)]
    assert kinds(written=written) == kinds(A, written=written) == []
    open_one = [Written(0, "a", transaction="t"), Written(0, "b", transaction="t")]
    both = [Seen(0, value, transaction="t", of=2) for value in "ab"]
    assert kinds(written=open_one) == kinds(*both, written=open_one) == []
    assert kinds(both[0], written=open_one) == ["torn"]
    assert kinds(written=open_one, committed=["t"]) == ["lost", "lost"]


def test_aborted_records_are_there_for_those_who_read_uncommitted() -> None:
    written = [Written(0, "a", transaction="t"), Written(0, "b", transaction="t")]
    both = [Seen(0, value, transaction="t", of=2) for value in "ab"]
    assert kinds(*both, written=written, aborted=["t"], isolation="read_uncommitted") == []
    assert kinds(both[0], written=written, aborted=["t"], isolation="read_uncommitted") == []
    assert kinds(*both, written=written, aborted=["t"]) == ["aborted read"]
    assert kinds(written=written, aborted=["t"]) == []


def test_a_value_written_twice_could_not_be_told_apart() -> None:
    with pytest.raises(AssertionError, match="one value twice"):
        find([Written(0, "a"), Written(1, "a")], [])


def test_it_is_told_by_kind() -> None:
    assert told(find(WRITTEN, [A, X])) == (
        "2 lost:\n  lost in partition 0: b\n  lost in partition 0: c"
    )
    twice = [replace(A, offset=1), replace(A, offset=9)]
    assert told(find([Written(0, "a")], twice)) == (
        "1 duplicate:\n  duplicate in partition 0: a, 2 times (offsets 1, 9)"
    )
