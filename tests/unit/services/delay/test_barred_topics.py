"""A topic that may not be written to waits alone; whoever stands beside it flows."""

from __future__ import annotations

from headrace.services.delay.obstacles.barred_topics import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    UNNAMED,
    Barring,
)

ALL = ["a", "b", "c"]


def transactions(barring: Barring, *due: str) -> list[list[str]]:
    return list(barring.apart(due, lambda each: each))


def test_at_first_everything_is_in_one_transaction() -> None:
    assert transactions(Barring(), *ALL) == [ALL]


def test_one_that_is_named_waits_and_the_others_stay_together() -> None:
    barring = Barring()
    barring.failed(ALL, {"b": "no permission"}, 100.0)
    assert barring.why("b", 100.0) == "no permission"
    assert barring.why("a", 100.0) is None
    assert transactions(barring, "a", "c") == [["a", "c"]]


def test_if_none_is_named_each_is_tried_alone_and_the_guilty_one_waits() -> None:
    barring = Barring()
    barring.failed(ALL, {}, 100.0)
    assert [barring.why(each, 100.0) for each in ALL] == [None, None, None]
    assert transactions(barring, *ALL, "d") == [["a"], ["b"], ["c"], ["d"]]
    barring.succeeded(["a"])
    barring.failed(["b"], {}, 100.0)
    assert barring.why("b", 100.0) == UNNAMED
    assert transactions(barring, "a", "c", "d") == [["c"], ["a", "d"]]
    barring.succeeded(["c"])
    assert transactions(barring, "a", "c", "d") == [["a", "c", "d"]]


def test_one_that_waits_is_tried_again_alone_and_less_and_less_often() -> None:
    barring, now_s = Barring(), 0.0
    waits = []
    for _ in range(8):
        barring.failed(["b"], {"b": "no permission"}, now_s)
        waited = 0.0
        while barring.why("b", now_s + waited) is not None:
            waited += 0.5
        waits.append(waited)
        now_s += waited
        assert transactions(barring, *ALL)[0] == ["b"]
    assert waits[0] == FIRST_WAIT_S and waits[-1] == LONGEST_WAIT_S
    assert waits == sorted(waits)
    barring.succeeded(["b"])
    assert transactions(barring, *ALL) == [ALL]
    barring.failed(["b"], {"b": "again"}, now_s)
    assert barring.why("b", now_s + FIRST_WAIT_S) is None, "it begins anew"
