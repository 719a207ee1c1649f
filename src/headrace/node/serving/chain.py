"""Requests that wait more than once: for a producer id, then for a log, then for another.

`chain` continues with the result of a first wait; the next step may wait again. If the first
request does not wait, the next step runs at once; so it does on a node whose appends commit at
once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.purgatory import Purgatory
from headrace.wire.protocol.errors import ErrorCode, KafkaError


class Step:
    """The second wait, as the first one handles it."""

    __slots__ = ("inner", "answer", "waiting")

    def __init__(self) -> None:
        self.inner: WaitingRequest | None = None
        self.answer: Any = None
        self.waiting: dict[WaitingRequest, None] = {}


def chain(
    purgatory: Purgatory, first: Any | WaitingRequest, go_on: Callable[[Any], Any | WaitingRequest]
) -> Any | WaitingRequest:
    """Returns the result of `go_on` for the answer of `first`, now or later."""
    if not isinstance(first, WaitingRequest):
        return go_on(first)
    step = Step()
    attempt_first = first.attempt

    def attempt(expired: bool) -> Any | None:
        if step.inner is None:
            found = attempt_first(expired)
            if found is None:
                return None
            after = go_on(found)
            if not isinstance(after, WaitingRequest):
                return after
            step.inner = after
            after.complete = complete
            purgatory.add(after)
        if step.answer is None and expired:
            return step.inner.attempt(True)
        if isinstance(step.answer, Exception):
            raise step.answer  # the second wait was refused: there is no answer to continue with
        return step.answer

    def complete(answer: Any) -> None:
        step.answer = answer
        purgatory.wake(step)

    first.attempt = attempt
    first.hangs_on.append(step)
    return first


def or_refused(
    answer: Any | WaitingRequest, refuse: Callable[[ErrorCode], Any]
) -> Any | WaitingRequest:
    """Returns the answer. If it waits and is refused in the end, `refuse` makes an answer of the
    code: most answers have no field of their own for the error."""
    if isinstance(answer, WaitingRequest):
        attempt = answer.attempt

        def attempt_or_refuse(expired: bool) -> Any | None:
            try:
                return attempt(expired)
            except KafkaError as refusal:
                return refuse(refusal.code)

        answer.attempt = attempt_or_refuse
    return answer


def all_of(
    answers: list[Any | WaitingRequest], finish: Callable[[list[Any]], Any]
) -> Any | WaitingRequest:
    """Returns the result of `finish` when all answers are there; each of them waits and answers its
    own refusals (`or_refused`)."""
    waiting = [answer for answer in answers if isinstance(answer, WaitingRequest)]
    if not waiting:
        return finish(answers)

    def attempt(expired: bool) -> Any | None:
        for index, answer in enumerate(answers):
            if isinstance(answer, WaitingRequest):
                found = answer.attempt(expired)
                if found is None:
                    return None
                answers[index] = found
        return finish(answers)

    hangs_on = list({id(thing): thing for each in waiting for thing in each.hangs_on}.values())
    return WaitingRequest(
        attempt, deadline_ms=max(each.deadline_ms for each in waiting), hangs_on=hangs_on
    )


def one_after_the_other(
    purgatory: Purgatory,
    tasks: list[Callable[[], Any | WaitingRequest]],
    finish: Callable[[list[Any]], Any],
) -> Any | WaitingRequest:
    """Begins each task when the one before has its answer; returns all the answers."""
    answers: list[Any] = []

    def go_on() -> Any | WaitingRequest:
        while len(answers) < len(tasks):
            found = tasks[len(answers)]()
            if isinstance(found, WaitingRequest):
                return chain(purgatory, found, go_on_with)
            answers.append(found)
        return finish(answers)

    def go_on_with(found: Any) -> Any | WaitingRequest:
        answers.append(found)
        return go_on()

    return go_on()
