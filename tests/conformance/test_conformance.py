"""Every story is told to Apache Kafka and to Headrace; their answers agree field by field."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.differences import DIFFERENCES, DOCUMENT, Difference, covering, rendered
from tests.conformance.plain import compare
from tests.conformance.stage import play
from tests.conformance.stories import STORIES
from tests.interop.brokers import TARGET, Node

seen: set[str] = set()
told: set[str] = set()


@pytest.mark.parametrize("name", STORIES)
def test_both_answer_alike(name: str, apache: Node, ours: Node) -> None:
    theirs, their_stop = play(STORIES[name], apache)
    last = next(reversed(theirs), None)
    assert their_stop is None, f"the script fails at Apache Kafka after {last!r}: {their_stop!r}"
    ours.revive()
    mine, my_stop = play(STORIES[name], ours)
    unexpected = [
        f"{name}: {line}\n    {field or 'answer'}\n    Apache:   {left!r}\n    Headrace: {right!r}"
        for line, field, left, right in differing(theirs, mine)
        if not allowed(f"{name}: {line}", field, left, right)
    ]
    told.add(name)
    if not ours.is_running():
        unexpected.append(f"the broker ended:\n{ours.log_text()[-1500:]}")
    if my_stop is not None:
        unexpected.append(f"the script stopped at Headrace: {my_stop!r}")
    if unexpected:
        pytest.fail(f"{len(unexpected)} differences\n" + "\n".join(unexpected), pytrace=False)


def differing(theirs: dict[str, Any], mine: dict[str, Any]) -> list[tuple[str, str, Any, Any]]:
    return [
        (line, field, left, right)
        for line, answer in theirs.items()
        if line in mine  # a script that stopped early is reported as such
        for field, left, right in compare(answer, mine[line])
    ]


def allowed(line: str, field: str, left: Any, right: Any) -> bool:
    difference = covering(line, field, left, right)
    if difference is not None:
        seen.add(difference.title)
    return difference is not None


@pytest.mark.skipif(TARGET == "apache", reason="Apache Kafka does not differ from itself")
@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.title)
def test_every_allowed_difference_still_occurs(difference: Difference) -> None:
    if told == set(STORIES):  # nothing can be said after a part of the stories
        assert difference.title in seen


def test_the_document_names_every_allowed_difference() -> None:
    assert rendered() in DOCUMENT.read_text(encoding="utf-8")
