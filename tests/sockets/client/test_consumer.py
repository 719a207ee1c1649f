"""Reading, on a real broker: places, pauses, poison, groups, and what is committed when."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

from headrace.client import (
    ClientError,
    Consumer,
    Misuse,
    NoOffset,
    NoSuchTopic,
    PoisonRecord,
    Producer,
    TopicPartition,
    from_integer,
    from_json,
    from_text,
    to_integer,
    to_json,
)
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.testing import Broker
from tests.sockets.fills import FILLS

ONE = TopicPartition("one", 0)
TWO = [TopicPartition("two", 0), TopicPartition("two", 1)]

# A fetch that waits at the end holds up a seek, a member learns of a rebalance by its heartbeat.
QUICK = {"fetch.wait.max.ms": 20, "heartbeat.interval.ms": 100}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Topic `one` holds 0..9 a second apart; `two` holds 20 records in two partitions."""
    with Broker() as running:
        topics = Topics(ClientSettings({"bootstrap.servers": running.bootstrap}))
        for name in ("one", "poison", "poison-batch", "poison-seen"):
            topics.create(name, partitions=1)
        topics.create("two", partitions=2)
        with Producer(running.bootstrap, settings=FILLS) as producer:
            for number in range(10):
                producer.send("one", str(number), timestamp_ms=1_000_000 + number * 1000)
            for number in range(20):
                producer.send("two", str(number), partition=number % 2)
        yield running


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    with Consumer(broker.bootstrap, settings=QUICK) as made:
        yield made


def values(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    found = []
    for record in consumer:
        found.append(record.value)
        if len(found) == count:
            break
    return found


def digits(*numbers: int) -> list[bytes]:
    return [str(number).encode() for number in numbers]


# ---- reading


@pytest.mark.integration
def test_iteration_gives_records_in_order_with_their_place(consumer: Consumer) -> None:
    consumer.assign([ONE])
    records = list(islice(consumer, 3))
    assert [r.offset for r in records] == [0, 1, 2]
    assert records[2].timestamp_ms == 1_002_000
    assert records[2].timestamp_type == "create"
    assert records[2].place == ONE


def test_poll_gives_none_when_nothing_comes(consumer: Consumer) -> None:
    consumer.assign({ONE: 9})
    assert consumer.poll(60) is not None
    assert consumer.poll(0) is None
    assert consumer.poll(0.01) is None


def test_a_batch_does_not_wait_to_be_full(consumer: Consumer) -> None:
    consumer.assign({ONE: 4})
    first = consumer.batch(3, timeout_s=60)
    assert [r.offset for r in first] == [4, 5, 6]
    assert [r.offset for r in consumer.batch(1000, timeout_s=60)] == [7, 8, 9]
    assert consumer.batch(timeout_s=0) == []


def test_what_was_fetched_of_an_earlier_assignment_is_not_given(consumer: Consumer) -> None:
    consumer.assign(TWO)
    while not all(consumer._fetched.has(place) for place in TWO):
        consumer.fetch(1)
    consumer.assign(TWO[1:])
    assert values(consumer, 10) == digits(*range(1, 20, 2))


def test_latest_begins_at_the_end(broker: Broker) -> None:
    with Consumer(broker.bootstrap, auto_offset_reset="latest") as consumer:
        consumer.assign([ONE])
        assert consumer.poll(0.3) is None


def test_none_refuses_to_guess(broker: Broker) -> None:
    with Consumer(broker.bootstrap, auto_offset_reset="none") as consumer:
        with pytest.raises(Misuse, match="Give the offsets"):
            consumer.assign([ONE])
        consumer.assign({ONE: 500})
        with pytest.raises(NoOffset, match='auto_offset_reset="earliest"'):
            consumer.poll(60)


def test_stop_ends_the_iteration_from_another_thread(consumer: Consumer) -> None:
    consumer.assign({ONE: 9})
    seen = []
    for record in consumer:
        seen.append(record.offset)
        threading.Thread(target=consumer.stop).start()
    assert seen == [9]


def test_a_second_thread_is_told_so_instead_of_hanging(consumer: Consumer) -> None:
    consumer.assign({ONE: 10})
    caught: list[ClientError] = []

    def intrude() -> None:
        try:
            while consumer.poll(0) is None and not consumer.stopped:
                pass
        except Misuse as misuse:
            caught.append(misuse)
            consumer.stop()

    intruder = threading.Thread(target=intrude)
    intruder.start()
    try:
        consumer.poll(60)
    except Misuse as misuse:
        caught.append(misuse)
        consumer.stop()
    intruder.join()
    assert "Two threads" in str(caught[0])


@pytest.mark.integration
def test_a_topic_that_is_not_there(broker: Broker) -> None:
    settings = {"allow.auto.create.topics": False}
    with (
        Consumer(broker.bootstrap, settings=settings) as consumer,
        pytest.raises(NoSuchTopic, match="no topic missing"),
    ):
        consumer.partitions_of("missing")


def heard(consumer: Consumer) -> ClientError:
    """What it says after an empty poll, or after another: the cluster is asked only briefly."""
    while True:  # the suite's own time limit ends this
        try:
            assert consumer.poll(1.1) is None
        except ClientError as said:
            return said


@pytest.mark.integration
def test_what_is_assigned_by_hand_and_not_there_is_said_once(broker: Broker) -> None:
    settings = QUICK | {"allow.auto.create.topics": False}
    with Consumer(broker.bootstrap, settings=settings) as consumer:
        consumer.assign([TopicPartition("missing", 0)])
        said = heard(consumer)
        assert isinstance(said, NoSuchTopic) and "Create it, and poll again" in str(said)
        assert consumer.poll(1.1) is None
        consumer.assign([ONE, TopicPartition("one", 7)])
        seen: list[Any] = []
        refusals: list[str] = []
        while len(seen) < 10 or not refusals:  # in whatever order they come
            try:
                record = consumer.poll(1.1)
                seen += [] if record is None else [record.value]
            except ClientError as refusal:
                refusals.append(str(refusal))
        assert seen == digits(*range(10))
        assert refusals == ["There is no partition 7 of topic one."]


def test_a_closed_consumer_says_so(broker: Broker) -> None:
    consumer: Consumer = Consumer(broker.bootstrap)
    consumer.close()
    consumer.close()
    for call in (lambda: consumer.assign([ONE]), consumer.poll, consumer.batch):
        with pytest.raises(Misuse, match="closed"):
            call()


# ---- places


def test_the_position_is_that_of_the_program_not_of_the_fetch(consumer: Consumer) -> None:
    consumer.assign([ONE])
    values(consumer, 2)
    assert consumer.position(ONE) == 2
    assert consumer.positions() == {ONE: 2}
    assert consumer.lag() == {ONE: 8}


@pytest.mark.integration
def test_seek_goes_back_and_forth(consumer: Consumer) -> None:
    consumer.assign([ONE])
    assert values(consumer, 3) == digits(0, 1, 2)
    consumer.seek(ONE, 7)
    assert consumer.position(ONE) == 7
    assert values(consumer, 2) == digits(7, 8)
    consumer.seek_to_beginning()
    assert values(consumer, 1) == digits(0)
    consumer.seek_to_end()
    assert consumer.poll(0.2) is None
    with pytest.raises(Misuse, match="elsewhere-0 is not assigned"):
        consumer.seek(TopicPartition("elsewhere", 0), 1)


def test_seek_right_after_assign(consumer: Consumer) -> None:
    consumer.assign([ONE])
    consumer.seek(ONE, 5)
    assert values(consumer, 1) == digits(5)


def test_seek_to_a_time(consumer: Consumer) -> None:
    consumer.assign([ONE])
    consumer.seek_to_time(1_003_500)
    assert values(consumer, 1) == digits(4)
    consumer.seek_to_time(datetime.fromtimestamp(1008, UTC))
    assert values(consumer, 1) == digits(8)
    consumer.seek_to_time(2_000_000_000_000)
    assert consumer.poll(0.2) is None


@pytest.mark.integration
def test_a_paused_partition_keeps_its_records(consumer: Consumer) -> None:
    consumer.assign(TWO)
    first = next(consumer)
    paused = first.place
    other = TWO[1 - first.partition]
    consumer.pause([paused])
    assert consumer.paused() == {paused}
    rest = list(islice(consumer, 10))
    assert {r.place for r in rest} == {other}
    assert consumer.poll(0.1) is None
    consumer.resume()
    again = list(islice(consumer, 9))
    assert [r.offset for r in again] == list(range(1, 10))
    assert {r.place for r in again} == {paused}


@pytest.mark.integration
def test_a_seek_while_paused(consumer: Consumer) -> None:
    consumer.assign([ONE])
    values(consumer, 2)
    consumer.pause()
    consumer.seek(ONE, 6)
    assert consumer.poll(0.1) is None
    consumer.resume([ONE])
    assert values(consumer, 1) == digits(6)


# ---- deserializers and poison


def test_typed_values(broker: Broker) -> None:
    with Consumer(broker.bootstrap, value_deserializer=from_text) as consumer:
        consumer.assign({ONE: 3})
        record = consumer.poll(60)
        assert record is not None
        assert record.value == "3"
        assert record.key is None


def poisoned(broker: Broker, topic: str) -> TopicPartition:
    with Producer(broker.bootstrap, settings=FILLS) as producer:
        for value in (b"1", b"not json", None, b"2"):
            producer.send(topic, value, partition=0)
    return TopicPartition(topic, 0)


@pytest.mark.integration
def test_poison_says_where_it_lies_and_stays_until_skipped(broker: Broker) -> None:
    place = poisoned(broker, "poison")
    with Consumer(broker.bootstrap, value_deserializer=from_json) as consumer:
        consumer.assign([place])
        assert values(consumer, 1) == [1]
        for _ in range(2):
            with pytest.raises(PoisonRecord, match="value of poison-0 at offset 1 cannot"):
                consumer.poll(60)
        assert consumer.position(place) == 1, "not passed by"
        with pytest.raises(PoisonRecord) as caught:
            next(consumer)
        assert caught.value.record.value == b"not json"
        consumer.skip(caught.value)
        assert consumer.position(place) == 2
        assert values(consumer, 2) == [None, 2]


@pytest.mark.integration
def test_a_batch_ends_before_poison(broker: Broker) -> None:
    place = poisoned(broker, "poison-batch")
    with Consumer(broker.bootstrap, value_deserializer=from_json) as consumer:
        consumer.assign([place])
        assert [r.value for r in consumer.batch(timeout_s=60)] == [1]
        with pytest.raises(PoisonRecord):
            consumer.batch(timeout_s=60)


@pytest.mark.integration
def test_on_poison_sees_it_and_goes_on(broker: Broker) -> None:
    place = poisoned(broker, "poison-seen")
    seen: list[int] = []
    with Consumer(
        broker.bootstrap,
        value_deserializer=from_json,
        on_poison=lambda poison: seen.append(poison.record.offset),
    ) as consumer:
        consumer.assign([place])
        assert values(consumer, 3) == [1, None, 2]
    assert seen == [1]


def test_the_usual_serializers_come_back() -> None:
    assert from_json(to_json({"ä": [1, None]})) == {"ä": [1, None]}
    assert to_json({"a": 1}) == b'{"a":1}'
    assert from_integer(to_integer(-5)) == -5
    with pytest.raises(ValueError, match="4 or 8"):
        from_integer(b"abc")


# ---- groups and commits


def test_nothing_is_committed_unless_said(broker: Broker) -> None:
    with Consumer(broker.bootstrap, topics=["one"], group="careful") as consumer:
        assert values(consumer, 3) == digits(0, 1, 2)
    with Consumer(broker.bootstrap, topics=["one"], group="careful") as consumer:
        assert values(consumer, 3) == digits(0, 1, 2)
        assert consumer.committed() == {ONE: None}
        assert consumer.commit() == {ONE: 3}
        assert consumer.commit() == {}, "nothing new"
        values(consumer, 2)
    with Consumer(broker.bootstrap, topics=["one"], group="careful") as consumer:
        assert values(consumer, 1) == digits(3)
        assert consumer.committed() == {ONE: 3}
        consumer.commit({ONE: 9})
        assert consumer.committed([ONE]) == {ONE: 9}


def test_commits_in_the_background_are_heard_of(broker: Broker) -> None:
    heard: list[Any] = []
    with Consumer(
        broker.bootstrap,
        topics=["one"],
        group="background",
        on_commit=lambda offsets, error: heard.append((offsets, error)),
    ) as consumer:
        values(consumer, 4)
        consumer.commit_async()
        while not heard:
            consumer.poll(0.05)
    assert heard[0] == ({ONE: 4}, None)


def test_auto_commit_leaves_the_record_in_hand_after_a_crash(broker: Broker) -> None:
    def consumer_again() -> Consumer:
        return Consumer(broker.bootstrap, topics=["one"], group="auto", auto_commit=True)

    with pytest.raises(RuntimeError, match="crash"), consumer_again() as consumer:
        for record in consumer:
            if record.offset == 3:
                raise RuntimeError("crash")
    with consumer_again() as consumer:
        assert values(consumer, 2) == digits(3, 4)
    with consumer_again() as consumer:
        assert values(consumer, 1) == digits(5), "an orderly end counts what was given"


def test_rebalance_callbacks_may_seek_and_commit(broker: Broker) -> None:
    told: list[Any] = []
    consumer: Consumer

    def assigned(places: list[TopicPartition]) -> None:
        told.append(("assigned", places))
        consumer.seek(ONE, 6)

    def revoked(places: list[TopicPartition]) -> None:
        told.append(("revoked", places))
        told.append(consumer.commit())

    consumer = Consumer(
        broker.bootstrap,
        topics=["one"],
        group="told",
        on_assigned=assigned,
        on_revoked=revoked,
    )
    assert values(consumer, 2) == digits(6, 7)
    consumer.close()
    assert told == [("assigned", [ONE]), ("revoked", [ONE]), {ONE: 8}]


def test_rewind_gives_again_what_was_not_committed(broker: Broker) -> None:
    with Consumer(broker.bootstrap, topics=["one"], group="rewinds", settings=QUICK) as consumer:
        values(consumer, 2)
        consumer.rewind()
        assert values(consumer, 4) == digits(0, 1, 2, 3)
        consumer.commit()
        values(consumer, 3)
        consumer.rewind()
        assert values(consumer, 1) == digits(4)


def test_two_members_share_and_one_takes_over(broker: Broker) -> None:
    first: Consumer = Consumer(broker.bootstrap, topics=["two"], group="shared", settings=QUICK)
    while len(first.assignment()) < 2:
        first.poll(0.05)
    second: Consumer = Consumer(broker.bootstrap, topics=["two"], group="shared", settings=QUICK)
    # In the middle of the rebalance the first has none, when it has given both back.
    while not len(first.assignment()) == len(second.assignment()) == 1:
        first.poll(0.05)
        second.poll(0.05)
    first.close()
    while len(second.assignment()) < 2:
        second.poll(0.05)
    second.close()


def test_without_a_group_there_is_nothing_to_share_or_commit(consumer: Consumer) -> None:
    consumer.assign([ONE])
    with pytest.raises(Misuse, match="group="):
        consumer.commit()
    with pytest.raises(Misuse, match="group="):
        consumer.subscribe(["one"])
