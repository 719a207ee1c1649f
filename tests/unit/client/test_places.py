"""How far a program has come, against a plain reckoning."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message

from headrace.client.consumer.fetched import Fetched
from headrace.client.consumer.places import Positions
from headrace.client.errors import Misuse
from headrace.client.records import TopicPartition, as_names

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_what_is_given_is_to_be_committed_once() -> None:
    places = Positions()
    places.gave(*A, 4)
    places.gave(*A, 5)
    places.gave(*B, 0)
    assert places.uncommitted() == {A: 6, B: 1}
    places.committed({A: 6})
    assert places.uncommitted() == {B: 1}
    places.committed({B: 0})
    assert places.uncommitted() == {B: 1}, "an older commit covers less"
    places.give_up()
    assert places.uncommitted() == {}
    assert places.next == {A: 6, B: 1}


def test_going_back_to_what_is_committed_or_to_the_beginning() -> None:
    places = Positions()
    for offset in (4, 5, 6):
        places.gave(*A, offset)
        places.gave(*B, offset)
    assert places.before({A: 5, B: None}) == {A: 5, B: 4}
    places.sought(A, 5)
    places.gave(*A, 5)
    assert places.before({}) == {A: 5, B: 4}


def test_a_seek_to_an_end_is_unknown_until_a_record_comes() -> None:
    places = Positions()
    places.gave(*A, 4)
    places.sought(A, -1)
    assert places.next == {}
    assert places.uncommitted() == {}
    places.gave(*A, 9)
    assert places.before({}) == {A: 9}


def message(partition: int, offset: int) -> Message:
    return Message(topic="t", partition=partition, offset=offset)


def test_fetched_records_are_held_released_and_forgotten() -> None:
    fetched = Fetched()
    fetched.add([message(0, 1), message(1, 1), message(0, 2)])
    fetched.hold([A])
    fetched.add([message(0, 3), message(1, 2)])
    assert [(m.partition(), m.offset()) for m in fetched.ready] == [(1, 1), (1, 2)]
    fetched.release([A])
    assert [(m.partition(), m.offset()) for m in fetched.ready][2:] == [(0, 1), (0, 2), (0, 3)]
    fetched.forget({A})
    assert {m.partition() for m in fetched.ready} == {1}


def test_errors_are_neither_held_nor_forgotten() -> None:
    fetched = Fetched()
    fetched.hold([A])
    trouble = Message(topic="t", partition=0, error=KafkaError(KafkaError._MAX_POLL_EXCEEDED))
    fetched.add([trouble])
    fetched.forget({A})
    assert list(fetched.ready) == [trouble]


@pytest.mark.parametrize("topics", ["t", ["a\0b"], ["\ud800"], ["t", "^x\udfff"]])
def test_names_that_would_end_the_process_are_refused(topics: list[str]) -> None:
    with pytest.raises(Misuse):
        as_names(topics)
    assert as_names(["t", "^ä.*"]) == ["t", "^ä.*"]
