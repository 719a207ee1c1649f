"""Requests that wait more than once: for a producer id, then for a log, then for another.

`chain` goes on with what a first wait brought; what it goes on with may wait again. A request that
did not wait goes on at once, so that a node whose appends commit at once never comes here twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.serving.api import Parked
from headrace.serving.purgatory import Purgatory


class Step:
    """The second wait, as the first one sees it."""

    __slots__ = ("inner", "answer", "waiting")

    def __init__(self) -> None:
        self.inner: Parked | None = None
        self.answer: Any = None
        self.waiting: dict[Parked, None] = {}


def chain(
    purgatory: Purgatory, first: Any | Parked, go_on: Callable[[Any], Any | Parked]
) -> Any | Parked:
    """What `go_on` makes of the answer of `first`, now or later."""
    if not isinstance(first, Parked):
        return go_on(first)
    step = Step()
    attempt_first = first.attempt

    def attempt(expired: bool) -> Any | None:
        if step.inner is None:
            found = attempt_first(expired)
            if found is None:
                return None
            after = go_on(found)
            if not isinstance(after, Parked):
                return after
            step.inner = after
            after.complete = complete
            purgatory.park(after)
        if step.answer is None and expired:
            return step.inner.attempt(True)
        if isinstance(step.answer, Exception):
            raise step.answer  # the second wait was refused: that is no answer to go on with
        return step.answer

    def complete(answer: Any) -> None:
        step.answer = answer
        purgatory.wake(step)

    first.attempt = attempt
    first.hangs_on.append(step)
    return first


def or_refused(answer: Any | Parked, refuse: Callable[[ErrorCode], Any]) -> Any | Parked:
    """The answer; if it waits and is refused in the end, what `refuse` makes of that: most answers
    have no place of their own to say so."""
    if isinstance(answer, Parked):
        attempt = answer.attempt

        def attempt_or_refuse(expired: bool) -> Any | None:
            try:
                return attempt(expired)
            except KafkaError as refusal:
                return refuse(refusal.code)

        answer.attempt = attempt_or_refuse
    return answer


def all_of(answers: list[Any | Parked], finish: Callable[[list[Any]], Any]) -> Any | Parked:
    """What `finish` makes of them when all are there; each of them waits for itself and answers
    its own refusals (`or_refused`)."""
    waiting = [answer for answer in answers if isinstance(answer, Parked)]
    if not waiting:
        return finish(answers)

    def attempt(expired: bool) -> Any | None:
        for place, answer in enumerate(answers):
            if isinstance(answer, Parked):
                found = answer.attempt(expired)
                if found is None:
                    return None
                answers[place] = found
        return finish(answers)

    hangs_on = list({id(thing): thing for each in waiting for thing in each.hangs_on}.values())
    return Parked(attempt, deadline_ms=max(each.deadline_ms for each in waiting), hangs_on=hangs_on)


def one_after_the_other(
    purgatory: Purgatory,
    tasks: list[Callable[[], Any | Parked]],
    finish: Callable[[list[Any]], Any],
) -> Any | Parked:
    """Each task begins when the one before has its answer; then all the answers."""
    answers: list[Any] = []

    def go_on() -> Any | Parked:
        while len(answers) < len(tasks):
            found = tasks[len(answers)]()
            if isinstance(found, Parked):
                return chain(purgatory, found, go_on_with)
            answers.append(found)
        return finish(answers)

    def go_on_with(found: Any) -> Any | Parked:
        answers.append(found)
        return go_on()

    return go_on()
