"""Requests that wait twice: the second wait may be refused, and then so is the request."""

from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.chain import chain
from headrace.node.serving.purgatory import Purgatory
from headrace.wire.protocol.errors import ErrorCode, KafkaError


class Thing:
    def __init__(self):
        self.waiting = {}
        self.answer = None


def waits_for(thing):
    def attempt(expired):
        if isinstance(thing.answer, KafkaError):
            raise thing.answer
        return thing.answer

    return WaitingRequest(attempt, deadline_ms=1_000, hangs_on=[thing])


def answer(purgatory, thing, found):
    thing.answer = found
    purgatory.wake(thing)
    purgatory.try_woken()


def test_a_second_wait_that_is_refused_refuses_the_request():
    """An InitProducerId whose coordinator was deposed while it waited for its record."""
    purgatory, first, second, answers, seen = Purgatory(), Thing(), Thing(), [], []
    inner = chain(purgatory, waits_for(first), lambda found: waits_for(second))
    outer = chain(purgatory, inner, lambda found: seen.append(found) or "built")
    outer.complete = answers.append
    purgatory.add(outer)
    answer(purgatory, first, "an id")
    assert answers == []
    refusal = KafkaError(ErrorCode.NOT_COORDINATOR)
    answer(purgatory, second, refusal)
    assert answers == [refusal] and seen == [], "a refusal is no answer to go on with"


def test_what_both_waits_bring_is_gone_on_with():
    purgatory, first, second, answers = Purgatory(), Thing(), Thing(), []
    inner = chain(purgatory, waits_for(first), lambda found: waits_for(second))
    outer = chain(purgatory, inner, lambda found: f"built of {found}")
    outer.complete = answers.append
    purgatory.add(outer)
    answer(purgatory, first, "an id")
    answer(purgatory, second, "a record")
    assert answers == ["built of a record"]
