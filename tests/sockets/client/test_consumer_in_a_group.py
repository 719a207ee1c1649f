"""What a group does to a consumer: pauses, seeks, batches, commits across a rebalance; the end."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest
from confluent_kafka import TopicPartition as NativePartition

from headrace.client import Admin, Consumer, Misuse, NoOffset, Producer, TopicPartition
from headrace.testing import Broker
from tests.sockets.fills import FILLS

ONE = TopicPartition("one", 0)
TWO = [TopicPartition("two", 0), TopicPartition("two", 1)]
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range,roundrobin"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "kip-848": {"group.protocol": "consumer"},
}
# A fetch that waits at the end holds up a seek, a member learns of a rebalance by its heartbeat.
QUICK = {"fetch.wait.max.ms": 20}
ENOUGH_POLLS = 1_200  # of 0.05 s; what has not come by then does not come


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Topic `one` holds 0..9; `two` holds 20 records in two partitions."""
    # librdkafka gives up a heartbeat of KIP-848 that is not answered within this interval.
    heartbeats = {"group.consumer.min.heartbeat.interval.ms": 2_000}
    heartbeats |= {"group.consumer.heartbeat.interval.ms": 2_000}
    sessions = {"group.min.session.timeout.ms": 500}
    with Broker(settings=heartbeats | sessions) as running:
        admin = Admin(running.bootstrap)
        for name, partitions in [("one", 1), ("two", 2), *((f"held-{p}", 1) for p in PROTOCOLS)]:
            admin.topics.create(name, partitions=partitions)
        with Producer(running.bootstrap, settings=FILLS) as producer:
            for number in range(10):
                producer.send("one", str(number))
                for protocol in PROTOCOLS:
                    producer.send(f"held-{protocol}", str(number))
            for number in range(20):
                producer.send("two", str(number), partition=number % 2)
        yield running


def member(broker: Broker, group: str, *, topic: str = "one", **more: Any) -> Consumer:
    settings = QUICK | more.pop("settings", {"heartbeat.interval.ms": 100})
    return Consumer(broker.bootstrap, topics=[topic], group=group, settings=settings, **more)


def until_assigned(consumer: Consumer) -> None:
    """Polls give nothing meanwhile: what is assigned begins paused."""
    for _ in range(ENOUGH_POLLS):
        assert consumer.poll(0.05) is None
        if consumer.assignment():
            return
    raise AssertionError("nothing was assigned")


# ---- pauses


@pytest.mark.integration
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_paused_on_arrival_is_not_even_fetched(broker: Broker, protocol: str) -> None:
    topic = f"held-{protocol}"
    place = TopicPartition(topic, 0)
    consumer: Consumer = member(
        broker,
        protocol,
        topic=topic,
        settings=PROTOCOLS[protocol],
        on_assigned=lambda places: consumer.pause(),
    )
    with consumer:
        until_assigned(consumer)
        assert consumer.paused() == {place}
        for _ in range(6):
            assert consumer.poll(0.05) is None
        Admin(broker.bootstrap).delete_records({place: 5})
        consumer.resume()
        first = consumer.poll(60)
        assert first is not None
        assert first.offset == 5, "the older ones were fetched before they were deleted"


@pytest.mark.integration
def test_a_seek_and_a_pause_on_arrival_go_together(broker: Broker) -> None:
    def arrive(places: list[TopicPartition]) -> None:
        consumer.pause(places)
        consumer.seek(ONE, 7)

    consumer: Consumer = member(broker, "both", on_assigned=arrive)
    with consumer:
        until_assigned(consumer)
        consumer.resume([ONE])
        assert next(consumer).offset == 7


def test_a_pause_ends_when_the_partition_goes(broker: Broker) -> None:
    """In an eager rebalance a member may get back what it had: then it reads it again."""
    with member(broker, "pauses", topic="two") as first:
        while len(first.assignment()) < 2:
            first.poll(0.05)
        first.pause()
        with member(broker, "pauses", topic="two") as second:
            while not (len(first.assignment()) == len(second.assignment()) == 1):
                first.poll(0.05)
                second.poll(0.05)
            assert first.paused() == set()
            records = (first.poll(0.05) for _ in range(ENOUGH_POLLS))
            assert next(filter(None, records)).place == first.assignment()[0]


def test_an_assignment_by_hand_keeps_the_pause_of_what_stays(broker: Broker) -> None:
    with Consumer(broker.bootstrap, settings=QUICK) as consumer:
        consumer.assign(TWO)
        consumer.pause()
        consumer.assign([TWO[0]])
        assert consumer.paused() == {TWO[0]}
        assert consumer.poll(0.2) is None
        consumer.assign([TWO[1]])
        assert consumer.paused() == set()
        assert next(consumer).place == TWO[1]


def test_only_what_is_assigned_can_be_paused(broker: Broker) -> None:
    with (
        Consumer(broker.bootstrap) as consumer,
        pytest.raises(Misuse, match="one-0 is not assigned"),
    ):
        consumer.pause([ONE])


# ---- where reading begins


def test_on_arrival_all_that_arrives_can_be_sought_without_naming_it(broker: Broker) -> None:
    with member(broker, "sought") as consumer:
        next(consumer)
        consumer.commit({ONE: 8})
    again: Consumer = member(broker, "sought", on_assigned=lambda places: again.seek_to_beginning())
    with again:
        assert next(again).offset == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_that_may_not_guess_is_told_where_to_begin(broker: Broker, protocol: str) -> None:
    """The other partition goes on where it is."""
    with member(
        broker,
        f"strict-{protocol}",
        topic="two",
        settings=PROTOCOLS[protocol],
        auto_offset_reset="none",
    ) as consumer:
        for _ in TWO:
            with pytest.raises(NoOffset, match="Seek to an offset"):
                consumer.poll(60)
        consumer.seek(TWO[0], 4)
        assert [record.offset for record in islice(consumer, 3)] == [4, 5, 6]
        consumer.seek(TWO[1], 8)
        rest = sorted((record.partition, record.offset) for record in islice(consumer, 5))
        assert rest == [(0, 7), (0, 8), (0, 9), (1, 8), (1, 9)]
        assert consumer.commit() == dict.fromkeys(TWO, 10)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_is_told_of_two_partitions_seeks_both_and_goes_on(
    broker: Broker, protocol: str
) -> None:
    with member(
        broker,
        f"both-{protocol}",
        topic="two",
        settings=PROTOCOLS[protocol],
        auto_offset_reset="none",
    ) as consumer:
        for _ in TWO:
            with pytest.raises(NoOffset):
                consumer.poll(60)
        for place in TWO:
            consumer.seek(place, 6)
            assert sorted(consumer.assignment()) == TWO
        read = sorted((record.partition, record.offset) for record in islice(consumer, 8))
        assert read == [(number, offset) for number in (0, 1) for offset in range(6, 10)]


def test_one_topic_is_a_list_too(broker: Broker) -> None:
    with pytest.raises(Misuse, match=r'\["orders"\]'):
        Consumer(broker.bootstrap, topics="orders", group="letters")


# ---- batches and commits


def test_what_is_committed_on_revocation_was_given_to_the_program(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebalance in the middle of `batch`: nobody has seen its records yet."""
    committed: list[Any] = []
    consumer: Consumer = member(
        broker, "halves", on_revoked=lambda places: committed.append(consumer.commit())
    )
    fetch = consumer.fetch
    came: list[int] = []

    def revoke_after_the_first(timeout_s: float) -> bool:
        if came and not committed:
            consumer._rebalancing.revoked(consumer._native, [NativePartition(*ONE)])
            consumer.stop()
            return False
        some = fetch(timeout_s)
        came.extend([1] * some)
        return some

    monkeypatch.setattr(consumer, "fetch", revoke_after_the_first)
    records = consumer.batch(1000, timeout_s=60)
    consumer.close()
    assert came
    assert committed[0] == {}, "these records are lost if the program dies now"
    assert records == []


def test_an_error_behind_the_records_of_a_batch_is_raised_by_the_next(broker: Broker) -> None:
    with Consumer(broker.bootstrap, auto_offset_reset="none", settings=QUICK) as consumer:
        consumer.assign({TWO[0]: 0, TWO[1]: 500})
        fetched = consumer._fetched
        while {m.error() is None for m in fetched.ready} != {True, False}:
            consumer.fetch(0.1)
        fetched.ready = deque(sorted(fetched.ready, key=lambda m: m.error() is not None))
        assert [record.place for record in consumer.batch(timeout_s=60)] == [TWO[0]] * 10
        with pytest.raises(NoOffset):
            consumer.batch(timeout_s=60)


def test_a_commit_in_the_background_counts_when_it_is_confirmed(broker: Broker) -> None:
    with member(broker, "confirmed") as consumer:
        next(consumer)
        consumer.commit_async()
        assert consumer.commit() == {ONE: 1}, "nobody has said yet that it was"
        assert consumer.commit() == {}
        assert consumer.committed() == {ONE: 1}


# ---- the end


def test_closing_ends_what_polls_on_another_thread(broker: Broker) -> None:
    consumer = member(broker, "closing")
    began = threading.Event()
    seen: list[int] = []

    def read() -> None:
        for record in consumer:
            seen.append(record.offset)
            began.set()

    with ThreadPoolExecutor(1) as other:
        reading = other.submit(read)
        assert began.wait(60)
        consumer.close()
        reading.result(60)
    assert seen == sorted(seen)


def test_a_callback_may_stop_but_not_close(broker: Broker) -> None:
    consumer: Consumer = member(broker, "inside", on_assigned=lambda places: consumer.close())
    with consumer, pytest.raises(Misuse, match=r"call stop\(\) there"):
        consumer.poll(60)


def test_a_callback_that_fails_at_the_end_is_heard_once(broker: Broker) -> None:
    def fail(places: list[TopicPartition]) -> None:
        raise ValueError("a bug in a callback")

    consumer = member(broker, "failing", on_revoked=fail)
    next(consumer)
    with pytest.raises(ValueError, match="a bug"):
        consumer.close()
    consumer.close()
    with pytest.raises(Misuse, match="closed"):
        consumer.commit()


# ---- slow programs


@pytest.mark.integration
def test_a_program_that_works_slowly_through_what_was_fetched_stays_in_its_group(
    broker: Broker,
) -> None:
    """Ten records come at once; each takes a while, all together more than the group allows."""
    lost: list[Any] = []
    allowed = {"max.poll.interval.ms": 6000, "session.timeout.ms": 6000}
    settings = allowed | {"heartbeat.interval.ms": 100}
    with member(broker, "slow", settings=settings, on_lost=lost.append) as consumer:
        offsets = []
        for record in consumer:
            offsets.append(record.offset)
            time.sleep(0.7)  # the work
            if record.offset == 9:
                break
        assert consumer.poll(0.3) is None
        assert consumer.commit() == {ONE: 10}
    assert offsets == list(range(10))
    assert lost == []


def test_a_backlog_can_be_skipped_for_good(broker: Broker) -> None:
    with member(broker, "skips") as consumer:
        while not consumer.assignment():
            consumer.poll(0.05)
        consumer.seek_to_end()
        assert consumer.lag() == {ONE: 0}
        assert consumer.commit() == {ONE: 10}
    with member(broker, "skips") as consumer:
        while not consumer.assignment():
            assert consumer.poll(0.05) is None
        assert consumer.committed() == {ONE: 10}
