"""From a batch to calls: filtered, cut by size, split around a bad one, held while it is down."""

import asyncio
from typing import Any

import pytest

from headrace.app.message import Message, PartialFailure
from headrace.app.retry import TryLater
from headrace.app.triggers.calling import Calling, CallRefused, Failed
from headrace.app.triggers.filters import Filter
from headrace.app.triggers.settings import BatchSettings, Trigger
from headrace.app.triggers.targets import Failure, TargetFailed
from headrace.client.records import TopicPartition


def message(number, value=b"{}"):
    place = TopicPartition("orders", 0)
    return Message("orders", 0, number, b"k", value, [], 0, f"orders/0/{number}", 1, place, number)


class Endpoint:
    """Stands for the user's endpoint: remembers its calls, fails as told."""

    def __init__(self, answer=lambda ids: []):
        self.calls = []
        self.answer = answer

    async def call(self, events):
        ids = [int(event.id.rpartition("/")[2]) for event in events]
        self.calls.append(ids)
        return self.answer(ids)

    async def close(self):
        pass


class Clock:
    def __init__(self):
        self.now_ms = 0
        self.slept = []

    def __call__(self):
        return self.now_ms

    async def pass_by(self, seconds):
        self.slept.append(seconds)
        self.now_ms += round(seconds * 1000)


def call(endpoint, messages, clock=None, **settings):
    clock = clock or Clock()
    calling = Calling(
        Trigger("hook", topic="orders", **settings), endpoint, now_ms=clock, sleep=clock.pass_by
    )
    asyncio.run(calling(messages))
    return calling


def test_what_the_filter_refuses_is_done_without_a_call():
    endpoint = Endpoint()
    messages = [message(n, b'{"n": %d}' % n) for n in range(6)]
    calling = call(endpoint, messages, filter=Filter("value.n > 3"))
    assert endpoint.calls == [[4, 5]]
    assert calling.filtered == 4


def test_a_call_has_no_more_bytes_than_it_may():
    endpoint = Endpoint()
    sizes = [40, 40, 40, 500, 10]
    messages = [message(n, b"x" * size) for n, size in enumerate(sizes)]
    call(endpoint, messages, batch=BatchSettings(bytes=100))
    assert endpoint.calls == [[0, 1], [2], [3], [4]]


def test_what_the_target_names_fails_and_the_rest_is_done():
    endpoint = Endpoint(lambda ids: [Failure("orders/0/1", "no stock")])
    with pytest.raises(PartialFailure) as failure:
        call(endpoint, [message(n) for n in range(3)])
    assert failure.value.failed == (1,)


def test_a_name_that_is_not_in_the_call_fails_all_of_it():
    """Which record is meant cannot be known: none of them counts as done."""
    endpoint = Endpoint(lambda ids: [Failure("orders/0/1", "no stock"), Failure("typo", "")])
    with pytest.raises(PartialFailure) as failure:
        call(endpoint, [message(n) for n in range(3)])
    assert failure.value.failed == (0, 1, 2)
    assert "'typo'" in str(failure.value.errors[0]) and str(failure.value.errors[1]) == "no stock"
    assert isinstance(failure.value.errors[1], Failed)
    assert str(failure.value.errors[1]) == "no stock"


def test_a_batch_that_is_refused_is_split_until_the_bad_record_is_alone():
    def answer(ids):
        if 5 in ids:
            raise TargetFailed("400", retriable=False)
        return []

    endpoint = Endpoint(answer)
    with pytest.raises(PartialFailure) as failure:
        call(endpoint, [message(n) for n in range(8)])
    assert failure.value.failed == (5,)
    assert isinstance(failure.value.errors[5], CallRefused)
    done = [n for ids in endpoint.calls if 5 not in ids for n in ids]
    assert sorted(done) == [0, 1, 2, 3, 4, 6, 7]


def test_an_endpoint_that_stays_down_costs_no_attempts_once_the_breaker_is_open():
    def answer(ids):
        raise TargetFailed("503", retriable=True, target_is_down=True)

    endpoint, clock = Endpoint(answer), Clock()
    calling = Calling(Trigger("hook"), endpoint, now_ms=clock, sleep=clock.pass_by)
    kinds = []
    for _ in range(8):
        with pytest.raises(PartialFailure) as failure:
            asyncio.run(calling([message(0)]))
        kinds.append(type(failure.value.errors[0]))
    assert kinds == [Failed] * 4 + [TryLater] * 4
    assert clock.slept == [5, 10, 20]  # nobody called in between
    assert len(endpoint.calls) == 8


def test_a_pause_that_the_endpoint_asks_for_is_kept_and_not_counted():
    def answer(ids):
        raise TargetFailed("429", retriable=True, target_is_down=True, retry_after_ms=7_000)

    with pytest.raises(PartialFailure) as failure:
        call(Endpoint(answer), [message(0)])
    error: Any = failure.value.errors[0]
    assert error.after_ms == 7_000


def test_calls_keep_to_their_rate():
    endpoint, clock = Endpoint(), Clock()
    messages = [message(n, b"x" * 100) for n in range(4)]
    call(endpoint, messages, clock, rate=10, batch=BatchSettings(bytes=100))
    assert clock.now_ms == 300


def test_a_call_that_breaks_in_our_own_hands_does_not_close_the_endpoint_for_ever():
    """It was the one trial of the breaker; the others would wait for its answer."""
    broken = iter([TargetFailed("down", retriable=True, target_is_down=True)] * 5 + [KeyError()])

    def answer(ids):
        problem = next(broken, None)
        if problem is not None:
            raise problem
        return []

    clock, endpoint = Clock(), Endpoint(answer)
    calling = Calling(Trigger("hook", topic="orders"), endpoint, now_ms=clock, sleep=clock.pass_by)
    for _ in range(5):
        with pytest.raises(PartialFailure):
            asyncio.run(calling([message(1)]))
    with pytest.raises(KeyError):
        asyncio.run(calling([message(1)]))
    before_ms = clock.now_ms
    asyncio.run(calling([message(1)]))
    assert clock.now_ms == before_ms
