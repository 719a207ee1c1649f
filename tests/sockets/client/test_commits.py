"""Commits reach the cluster in the order they were asked for, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition as NativePartition

from headrace.client import (
    Admin,
    AsyncConsumer,
    Consumer,
    Producer,
    TopicPartition,
    Unreachable,
)
from headrace.client.connection import ClientSettings
from headrace.testing import Broker
from tests.patience import until
from tests.sockets.fills import FILLS
from tests.sockets.picky_coordinator import Picky

ONE = TopicPartition("one", 0)
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 100},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": 100,
    },
    "kip-848": {"group.protocol": "consumer"},
}


EACH_PROTOCOL = [
    pytest.param(name, marks=pytest.mark.integration if name == "kip-848" else ())
    for name in PROTOCOLS
]
# librdkafka gives up a heartbeat of KIP-848 that is not answered within this interval, and a member
# may wait for ever then: the shortest that a slow machine keeps. So these tests wait in real time.
HEARTBEAT_MS = 2_000


def broker_with_records() -> Broker:
    heartbeats = {"group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS}
    heartbeats |= {"group.consumer.heartbeat.interval.ms": HEARTBEAT_MS}
    running = Broker(settings=heartbeats | {"group.min.session.timeout.ms": 500})
    running.start()
    Admin(running.bootstrap).topics.create("one", partitions=1)
    Admin(running.bootstrap).topics.create("two", partitions=2)
    with Producer(running.bootstrap, settings=FILLS) as producer:
        for number in range(10):
            producer.send("one", str(number))
            producer.send("two", str(number), partition=number % 2)
    return running


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    running = broker_with_records()
    yield running
    running.stop()


def member(
    broker: Broker, group: str, *, topic: str = "one", patience_s: float = 60.0, **more: Any
) -> Consumer:
    at = ClientSettings({"bootstrap.servers": broker.bootstrap}, timeout_s=patience_s)
    settings = {"fetch.wait.max.ms": 20, "log_level": 0} | more.pop("settings", {})
    return Consumer(at, topics=[topic], group=group, settings=settings, **more)


class Held:
    """librdkafka's consumer, in which a commit that is waited for lasts until it is let go."""

    def __init__(self, consumer: Consumer) -> None:
        self._real = consumer._native
        self.began, self.let_go = threading.Event(), threading.Event()
        consumer._committing.native = self  # type: ignore[assignment]

    def commit(self, *, offsets: list[NativePartition], asynchronous: bool) -> Any:
        assert not asynchronous
        self.began.set()
        assert self.let_go.wait(60)
        return self._real.commit(offsets=offsets, asynchronous=False)


# ---- their order


@pytest.mark.integration
@pytest.mark.parametrize("and_wait", [False, True])
def test_a_commit_that_is_sent_again_never_undoes_a_later_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, and_wait: bool
) -> None:
    """librdkafka says what was refused again after 100 ms and more; what comes last stands."""
    group = Picky(monkeypatch, "one")
    heard: list[Any] = []
    with member(
        broker, f"picky-{and_wait}", on_commit=lambda places, error: heard.append(places)
    ) as consumer:
        next(consumer)
        consumer.commit_async()
        until(lambda: group.refused)
        next(consumer)
        consumer.commit() if and_wait else consumer.commit_async()
        consumer.pause()
        until(lambda: consumer.poll(0.02) or len(heard) >= 2)
        assert group.taken[-1] == 2, group.taken
        assert consumer.committed() == {ONE: 2}


def test_while_one_is_under_way_only_the_newest_place_waits(broker: Broker) -> None:
    heard: list[Any] = []
    with member(
        broker, "newest", on_commit=lambda places, error: heard.append((dict(places), error))
    ) as consumer:
        next(consumer)
        consumer.pause()
        for offset in range(1, 6):  # nothing is heard of between polls
            consumer.commit_async({ONE: offset})
        until(lambda: consumer.poll(0.02) or len(heard) >= 2)
        assert heard == [({ONE: 1}, None), ({ONE: 5}, None)]
        assert consumer.committed() == {ONE: 5}


def test_what_waits_is_committed_with_what_is_waited_for(broker: Broker) -> None:
    heard: list[Any] = []
    with member(
        broker, "with", on_commit=lambda places, error: heard.append((dict(places), error))
    ) as consumer:
        next(consumer)
        consumer.pause()
        consumer.commit_async({ONE: 1})
        consumer.commit_async({ONE: 2})
        assert consumer.commit({ONE: 3}) == {ONE: 3}
        assert heard == [({ONE: 2}, None)], "a newer place is there in its stead"
        until(lambda: consumer.poll(0.02) or len(heard) >= 3)
        assert heard[1:] == [({ONE: 1}, None), ({ONE: 3}, None)], "the last word is said again"
        assert consumer.committed() == {ONE: 3}


def test_in_the_background_of_an_event_loop_too(broker: Broker) -> None:
    heard: list[Any] = []

    async def story() -> None:
        settings = {"fetch.wait.max.ms": 20}
        async with AsyncConsumer(
            broker.bootstrap,
            topics=["one"],
            group="loop",
            settings=settings,
            on_commit=lambda places, error: heard.append(dict(places)),
        ) as consumer:
            async for record in consumer:
                await consumer.commit_async()
                if record.offset == 6:
                    break
            await consumer.pause()
            while heard[-1:] != [{ONE: 7}]:
                await consumer.poll(0.02)
            assert await consumer.committed() == {ONE: 7}

    asyncio.run(asyncio.wait_for(story(), 180))


def test_what_waits_of_a_partition_that_goes_is_committed_before(broker: Broker) -> None:
    with member(broker, "going") as consumer:
        next(consumer)
        consumer.commit_async({ONE: 1})
        consumer.commit_async({ONE: 2})
        consumer._rebalancing.revoked(consumer._native, [NativePartition(*ONE)])
        assert consumer.committed([ONE]) == {ONE: 2}


def test_what_waits_at_the_end_is_committed(broker: Broker) -> None:
    heard: list[Any] = []
    with member(
        broker, "ends", on_commit=lambda places, error: heard.append((dict(places), error))
    ) as consumer:
        next(consumer)
        consumer.commit_async({ONE: 1})
        consumer.commit_async({ONE: 2})
    assert {places[ONE] for places, error in heard if error is None} == {1, 2}
    with member(broker, "ends") as consumer:
        assert consumer.committed([ONE]) == {ONE: 2}


@pytest.mark.integration
@pytest.mark.parametrize("protocol", EACH_PROTOCOL)
def test_a_member_commits_while_the_group_takes_its_partitions(
    broker: Broker, protocol: str
) -> None:
    """Inside a poll, where librdkafka serves no other thread."""
    told: list[Any] = []
    more: dict[str, Any] = {"topic": "two", "settings": PROTOCOLS[protocol]}

    def revoked(gone: list[TopicPartition]) -> None:
        if not told:  # and not at the end: librdkafka may have left the group by then
            told.append(first.commit())

    first: Consumer = member(broker, protocol, on_revoked=revoked, **more)
    with first:
        while len(first.positions()) < 2:
            first.poll(0.05)
        with member(broker, protocol, **more) as second:
            until(lambda: (first.poll(0.02), second.poll(0.02)) and second.assignment())
        assert told and told[0], "all that was read, or what of it is taken away"


def test_the_place_of_one_record_can_be_committed(broker: Broker) -> None:
    with member(broker, "by-record") as consumer:
        first, second, third = next(consumer), next(consumer), next(consumer)
        assert (first.offset, third.offset) == (0, 2)
        assert consumer.commit(second) == {ONE: 2}, "the next one to read"
        assert consumer.committed() == {ONE: 2}
        consumer.commit_async(first)
    with member(broker, "by-record") as consumer:
        assert consumer.committed([ONE]) == {ONE: 1}


# ---- nobody answers


def test_a_commit_that_nobody_answers_says_so_and_closing_goes_on() -> None:
    """librdkafka would wait as long as a session lasts, 45 s unless set."""
    broker = broker_with_records()
    consumer = member(broker, "orphan", patience_s=0.2, settings={"session.timeout.ms": 3000})
    next(consumer)
    broker.stop()
    with pytest.raises(Unreachable, match=r"within 0\.3 seconds: check whether .* again") as e:
        consumer.commit(timeout_s=0.3)
    assert e.value.retriable
    consumer.close()


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Python drops a KeyboardInterrupt that comes while it collects what earlier tests have left:
    the end of a client, which can take a second."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
def test_ctrl_c_ends_the_wait_for_a_commit(broker: Broker) -> None:
    with member(broker, "impatient") as consumer:
        held = Held(consumer)
        next(consumer)

        def interrupt() -> None:
            assert held.began.wait(60)
            os.kill(os.getpid(), signal.SIGINT)

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            consumer.commit(timeout_s=30)
        interrupting.join()
        held.let_go.set()
