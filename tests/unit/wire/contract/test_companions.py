"""Which topics belong to another one, by their names."""

from __future__ import annotations

from headrace.wire.contract.companions import with_companions


def test_companions_of_companions_are_the_topics_own() -> None:
    names = ["a", "a.delay", "a.g.retry", "a.g.retry.delay", "a.g.retry.delay.outcomes", "a.g.dead"]
    assert with_companions(names) == {"a": sorted(name[1:] for name in names[1:])}


def test_a_name_alone_is_no_companion() -> None:
    for alone in ("a.delay", "a.g.dead", ".delay", "a.b.c.dead", "delay", "a..dead"):
        assert with_companions([alone]) == {alone: []}
    assert with_companions(["a", "a.b", "a.b.delay"]) == {"a": [], "a.b": [".delay"]}
    assert with_companions(["a", "a.b.c.dead"]) == {"a": [], "a.b.c.dead": []}
