"""Requests that wait: woken by what they hang on, or by their deadline, once."""

from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.purgatory import SWEEP_ABOVE, Purgatory


class Thing:
    def __init__(self):
        self.waiting = {}
        self.ready = False


def waiting_on(thing, answers, *, deadline_ms=1000):
    def attempt(expired):
        if thing.ready:
            return "ready"
        return "late" if expired else None

    waiting = WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[thing])
    waiting.complete = answers.append
    return waiting


def test_a_change_answers_what_hangs_on_it():
    purgatory, thing, answers = Purgatory(), Thing(), []
    purgatory.add(waiting_on(thing, answers))
    purgatory.wake(thing)
    purgatory.try_woken()
    assert answers == []  # woken, tried, still not ready
    thing.ready = True
    purgatory.wake(thing)
    purgatory.wake(thing)
    assert len(purgatory.woken) == 1  # however often it is woken, it is tried once
    purgatory.try_woken()
    assert answers == ["ready"]
    assert not thing.waiting and purgatory.waiting == 0


def test_a_deadline_answers_with_what_there_is():
    purgatory, thing, answers = Purgatory(), Thing(), []
    purgatory.add(waiting_on(thing, answers, deadline_ms=20))
    purgatory.add(waiting_on(thing, answers, deadline_ms=10))
    assert purgatory.next_deadline_ms() == 10
    purgatory.expire(9)
    assert answers == []
    purgatory.expire(10)
    assert answers == ["late"]
    assert purgatory.next_deadline_ms() == 20


def test_a_request_whose_connection_is_gone_is_forgotten():
    purgatory, thing, answers = Purgatory(), Thing(), []
    waiting = waiting_on(thing, answers)
    purgatory.add(waiting)
    purgatory.forget(waiting)
    thing.ready = True
    purgatory.wake(thing)
    purgatory.try_woken()
    purgatory.expire(10_000)
    assert answers == [] and not thing.waiting


def test_an_answer_may_wake_another_request_in_the_same_turn():
    purgatory, first, second, answers = Purgatory(), Thing(), Thing(), []

    def attempt(expired):
        second.ready = True
        purgatory.wake(second)
        return "first"

    leading = WaitingRequest(attempt, deadline_ms=1000, hangs_on=[first])
    leading.complete = answers.append
    purgatory.add(waiting_on(second, answers))
    purgatory.add(leading)
    purgatory.wake(first)
    purgatory.try_woken()
    assert answers == ["first", "ready"]


def test_answered_requests_do_not_pile_up_behind_far_deadlines():
    purgatory, thing, answers = Purgatory(), Thing(), []
    thing.ready = True
    for _ in range(20 * SWEEP_ABOVE):
        purgatory.add(waiting_on(thing, answers, deadline_ms=2**31))
        purgatory.wake(thing)
        purgatory.try_woken()
    assert len(purgatory._deadlines) <= SWEEP_ABOVE + 1


def test_a_stopping_node_answers_everybody():
    purgatory, thing, answers = Purgatory(), Thing(), []
    for deadline_ms in (30, 10, 20):
        purgatory.add(waiting_on(thing, answers, deadline_ms=deadline_ms))
    purgatory.answer_all()
    assert answers == ["late"] * 3 and purgatory.waiting == 0
