"""The checker of the long runs finds each kind of anomaly, and nothing where there is none."""

from __future__ import annotations

from tests.soak.anomalies import Seen, find, told

WRITTEN = {0: ["a", "b", "c"], 1: ["x"]}


def kinds(*seen: Seen, **known: list[str]) -> list[str]:
    return [anomaly.kind for anomaly in find(WRITTEN, seen, **known)]


def whole(**how: object) -> list[Seen]:
    return [Seen(p, v, **how) for p, values in WRITTEN.items() for v in values]  # type: ignore[arg-type]


def test_what_was_written_once_in_order_is_right() -> None:
    assert kinds(*whole()) == []
    assert kinds(*whole(transaction="t", of=4), committed=["t"]) == []


def test_each_anomaly_has_its_name() -> None:
    a, b, c, x = whole()
    assert kinds(a, c, x) == ["lost"]
    assert kinds(a, b, b, c, x) == ["duplicate"]
    assert kinds(a, c, b, x) == ["reordered"]
    assert kinds(a, b, c, x, Seen(1, "y")) == ["unknown"]
    assert kinds(*whole(transaction="t", of=4), aborted=["t"]) == ["aborted read"]
    assert kinds(*whole(transaction="t", of=5)) == ["torn"]
    assert kinds(*whole(), committed=["t"]) == ["lost"]


def test_it_is_told_by_kind() -> None:
    a, _, _, x = whole()
    assert (
        told(find(WRITTEN, [a, x])) == "2 lost:\n  lost in partition 0: b\n  lost in partition 0: c"
    )
