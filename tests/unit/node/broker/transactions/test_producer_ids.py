"""Producer ids: each is given out once, and one block is asked for at a time."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.environment import Now
from headrace.node.broker.coordinators.producer_ids import PATIENCE_MS, ProducerIds
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.purgatory import Purgatory
from headrace.wire.protocol.errors import ErrorCode, KafkaError


class Story:
    """The controller that is asked; blocks of `size` ids come when it is told to answer."""

    def __init__(self, size: int = 1_000) -> None:
        self.size = size
        self.now, self.purgatory = Now(0, 0), Purgatory()
        self.waiting: dict[WaitingRequest, None] = {}
        self.asked = 0
        self.outcome: Any = None  # True: the block is recorded; KafkaError: it is not
        self.ids = ProducerIds(self, self.purgatory)

    def allocate_producer_ids(self, answer: Any, now: Now) -> Any:
        number, self.asked = self.asked, self.asked + 1

        def attempt(expired: bool) -> Any:
            if isinstance(self.outcome, KafkaError):
                raise self.outcome
            return answer(number * self.size, self.size) if self.outcome else None

        return WaitingRequest(attempt, deadline_ms=60_000, hangs_on=[self])

    def producer(self) -> list[Any]:
        """The list gets its id."""
        answers: list[Any] = []
        found = self.ids.next(lambda producer_id: producer_id, self.now)
        if isinstance(found, WaitingRequest):
            found.complete = answers.append
            self.purgatory.add(found)
        else:
            answers.append(found)
        return answers

    def answered(self, outcome: Any) -> None:
        self.outcome = outcome
        self.purgatory.wake(self)
        self.purgatory.try_woken()
        self.outcome = None


def test_a_crowd_of_new_producers_asks_for_one_block() -> None:
    story = Story()
    crowd = [story.producer() for _ in range(100)]
    assert story.asked == 1
    story.answered(True)
    assert sorted(each[0] for each in crowd) == list(range(100))
    assert story.producer() == [100] and story.asked == 1


def test_a_crowd_larger_than_a_block_gets_the_next_one_too() -> None:
    story = Story(size=3)
    crowd = [story.producer() for _ in range(5)]
    story.answered(True)
    assert story.asked == 2
    story.answered(True)
    assert sorted(each[0] for each in crowd) == [0, 1, 2, 3, 4]


def test_a_client_that_goes_away_keeps_nobody_else_from_the_block() -> None:
    story = Story()
    waiting = story.ids.next(lambda producer_id: producer_id, story.now)
    story.purgatory.add(waiting)
    second = story.producer()
    story.purgatory.forget(waiting)
    story.answered(True)
    assert second == [0]


def test_without_a_block_all_come_again_and_the_next_one_asks_anew() -> None:
    story = Story()
    crowd = [story.producer() for _ in range(3)]
    story.answered(KafkaError(ErrorCode.NOT_CONTROLLER))
    assert [each[0].code for each in crowd] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
    later = story.producer()
    assert story.asked == 2
    story.answered(True)
    assert later == [1_000]


def test_nobody_waits_for_ever() -> None:
    story = Story()
    [*waiting] = [story.producer()]
    story.now.monotonic_ms = PATIENCE_MS
    story.purgatory.expire(PATIENCE_MS)
    assert waiting[0][0].code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    late = story.producer()
    assert story.asked == 1, "the first is still under way"
    story.answered(True)
    assert late == [0]


def test_a_refusal_at_once_is_told_at_once() -> None:
    story = Story()

    def refuse(answer: Any, now: Now) -> Any:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")

    story.allocate_producer_ids = refuse  # type: ignore[method-assign]
    with pytest.raises(KafkaError, match="full") as refusal:
        story.producer()
    assert refusal.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
