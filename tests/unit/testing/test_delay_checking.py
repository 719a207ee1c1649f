"""The checker of delayed messages finds each kind of fault, and nothing where there is none."""

from __future__ import annotations

from dataclasses import replace

from headrace.wire.contract import headers
from tests.soak.delay_checking import Taken, judge

MINUTE = 60_000


def asked(offset: int, delay_ms: int, **said: str) -> Taken:
    given = {name: value.encode() for name, value in said.items()}
    given["headrace-delay"] = b"%d" % delay_ms
    return Taken(0, offset, 1_000, b"k", b"v%d" % offset, given | {"own": b"kept"})


def named(offset: int, delay_ms: int) -> Taken:
    return asked(offset, delay_ms, **{headers.ID: "n"})


def cancel(offset: int) -> Taken:
    return Taken(0, offset, 1_000, b"k", None, {headers.CANCEL: b"n"})


def came(one: Taken, offset: int, late_ms: int = 0) -> Taken:
    said = {
        headers.DUE_AT: b"%d" % one.due_ms,
        headers.SOURCE: b"t.delay/0/%d" % one.offset,
        "own": b"kept",
    }
    if (name := one.text(headers.ID)) is not None:
        said[headers.MESSAGE_ID] = f"{name}@{one.due_ms}".encode()
    return Taken(0, offset, one.due_ms + late_ms, one.key, one.value, said)


def answer(of: int, what: str) -> Taken:
    said = {headers.SOURCE: b"t.delay/0/%d" % of, headers.OUTCOME: what.encode()}
    return Taken(0, 0, 0, b"k", b"n", said)


def faults(intake: list[Taken], deliveries: list[Taken], *outcomes: Taken) -> list[str]:
    return list(judge("t.delay", intake, deliveries, list(outcomes), []).wrong)


FIRST, SECOND = asked(0, MINUTE), asked(1, 2 * MINUTE)


def test_what_comes_once_when_it_is_due_is_right() -> None:
    assert faults([FIRST, SECOND], [came(FIRST, 0), came(SECOND, 1, late_ms=5)]) == []


def test_each_fault_has_its_name() -> None:
    both = [FIRST, SECOND]
    assert faults(both, [came(FIRST, 0)]) == ["lost"]
    assert faults([FIRST], [came(FIRST, 0), came(FIRST, 1)]) == ["doubled"]
    assert faults([FIRST], [came(FIRST, 0, late_ms=-1)]) == ["early"]
    assert faults([FIRST], [came(FIRST, 0), came(SECOND, 1)]) == ["invented"]
    assert faults(both, [came(SECOND, 0), came(FIRST, 1)]) == ["out of order"]
    assert faults([FIRST], [replace(came(FIRST, 0), value=b"other")]) == ["changed"]
    assert faults([FIRST], [replace(came(FIRST, 0), partition=1)]) == ["changed"]


def test_equal_due_times_come_as_they_arrived() -> None:
    twins = [asked(0, MINUTE), asked(1, MINUTE)]
    assert faults(twins, [came(twins[0], 0), came(twins[1], 1)]) == []
    assert faults(twins, [came(twins[1], 0), came(twins[0], 1)]) == ["out of order"]


def test_a_cancel_is_answered_once_and_truly() -> None:
    chain = [named(0, MINUTE), cancel(1)]
    delivered = [came(chain[0], 0)]
    assert faults(chain, [], answer(1, headers.CANCELLED)) == []
    assert faults(chain, delivered, answer(1, headers.TOO_LATE)) == []
    assert faults(chain, delivered, answer(1, headers.CANCELLED)) == ["wrong answer"]
    assert faults(chain, [], answer(1, headers.TOO_LATE)) == ["wrong answer"]
    assert faults(chain, delivered, answer(1, headers.UNKNOWN)) == ["wrong answer"]
    assert "cancel without an answer" in faults(chain, [])
    twice = [answer(1, headers.CANCELLED)] * 2
    assert faults(chain, [], *twice) == ["answered twice"]


def test_the_last_of_an_id_comes_and_those_before_may_have_come() -> None:
    chain = [named(0, MINUTE), named(1, 2 * MINUTE)]
    assert faults(chain, [came(chain[1], 0)]) == []
    assert faults(chain, [came(chain[0], 0), came(chain[1], 1)]) == []
    assert faults(chain, [came(chain[0], 0)]) == ["lost"]
