"""A delivery is a concurrent future, whatever it leaves out to be cheap."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import FIRST_COMPLETED, Future, as_completed, wait
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from headrace.client.errors import DeliveryFailed, explain_delivery
from headrace.client.producer.delivery import Delivery, DeliveryPoller, Waiting
from headrace.client.records import Sent


def waiting() -> Waiting:
    return Waiting(lambda error, topic: explain_delivery(error, "here:1", topic))


def arrived(offset: int) -> Message:
    return Message(topic="orders", partition=1, offset=offset, timestamp=(1, 99))


def test_it_has_all_that_a_future_of_this_python_has() -> None:
    delivery = Delivery(waiting())
    assert all(hasattr(delivery, name) for name in vars(Future()))


def test_it_ends_with_a_place_or_with_a_reason() -> None:
    shared = waiting()
    good, bad = Delivery(shared), Delivery(shared)
    assert not good.done()
    with pytest.raises(TimeoutError):
        good.result(0)
    good(None, arrived(7))
    assert good.result() == Sent("orders", 1, 7, 99)
    assert good.exception() is None
    bad(KafkaError(KafkaError._MSG_TIMED_OUT), arrived(-1))
    with pytest.raises(DeliveryFailed, match=r"delivery\.timeout\.ms"):
        bad.result()


def test_waiting_for_one_is_not_ended_by_another() -> None:
    shared = waiting()
    first, second = Delivery(shared), Delivery(shared)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(second.result(20)))
    thread.start()
    while not shared.threads:
        pass
    first(None, arrived(1))
    second(None, arrived(2))
    thread.join()
    assert results == [Sent("orders", 1, 2, 99)]


def test_the_standard_library_waits_for_them() -> None:
    shared = waiting()
    deliveries: list[Any] = [Delivery(shared) for _ in range(3)]
    deliveries[1](None, arrived(1))
    done, _ = wait(deliveries, timeout=60, return_when=FIRST_COMPLETED)
    assert done == {deliveries[1]}
    ends = threading.Thread(target=lambda: [deliveries[n](None, arrived(n)) for n in (0, 2)])
    ends.start()
    assert {d.result().offset for d in as_completed(deliveries, timeout=60)} == {0, 1, 2}
    ends.join()


def test_asyncio_waits_for_them() -> None:
    async def story() -> Sent:
        delivery = Delivery(waiting())
        threading.Timer(0, delivery, (None, arrived(3))).start()
        return await asyncio.wait_for(asyncio.wrap_future(delivery), 60)

    assert asyncio.run(story()).offset == 3


def test_callbacks_are_called_once_also_after_the_end() -> None:
    delivery = Delivery(waiting())
    seen: list[int] = []
    delivery.add_done_callback(lambda f: seen.append(1))
    delivery(None, arrived(0))
    delivery.add_done_callback(lambda f: seen.append(2))
    assert seen == [1, 2]


def test_the_thread_polls_again_when_the_program_stops_sending() -> None:
    """After a flood of sends it only looks on for a tick, then waits in librdkafka again."""
    sends_seen: list[int] = []
    over = threading.Event()

    def poll(timeout_s: float) -> int:
        sends_seen.append(poller.sends)
        if len(sends_seen) == 1:
            poller.sends += 1000  # the program sends quickly
        else:
            over.set()
        return 0

    poller = DeliveryPoller(poll)
    poller.begin()
    assert over.wait(60)
    poller.end()
    assert sends_seen[:2] == [0, 1000]
