"""Idempotent producers: duplicates, gaps, old epochs, and the window of five batches."""

from __future__ import annotations

from headrace.wire.protocol.messages import fetch, produce
from tests.conformance.batches import R, build
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.asking import (
    fetch_request,
    fetch_topic,
    from_offset,
    produce_request,
)

LAST = 2**31 - 1


class Producer:
    """Sends batches of one producer and keeps each answer under what it did."""

    def __init__(self, stage: Stage, version: int, topic: Topic, producer_id: int) -> None:
        self.stage, self.version, self.topic, self.producer_id = stage, version, topic, producer_id

    def send(self, line: str, sequence: int, *, epoch: int = 0, count: int = 1) -> None:
        records = build(
            *(R(b"%d" % index) for index in range(count)),
            producer_id=self.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        request = produce_request(self.version, self.topic, records)
        self.stage.ask(f"v{self.version} {line}", produce, self.version, request)


def duplicates_and_gaps(stage: Stage) -> None:
    for version in produce.VERSIONS:
        topic = stage.topic(f"sequences-v{version}")
        producer = Producer(stage, version, topic, 1000)
        producer.send("first", 0)
        producer.send("second", 1, count=3)
        producer.send("second again", 1, count=3)
        producer.send("first again", 0)
        producer.send("part of the second", 1, count=2)
        producer.send("inside the second", 2)
        producer.send("gap", 5)
        producer.send("next", 4)
        for sequence in range(5, 11):
            producer.send(f"number {sequence}", sequence)
        producer.send("fifth last again", 6)
        producer.send("sixth last again", 5)
        producer.send("first again, long ago", 0)
        read = fetch_request(fetch_topic(13, topic, from_offset(0)))
        stage.ask(f"v{version} what is there", fetch, 13, read)


def epochs(stage: Stage) -> None:
    for version in produce.VERSIONS:
        topic = stage.topic(f"epochs-v{version}")
        producer = Producer(stage, version, topic, 1000)
        producer.send("epoch 3", 0, epoch=3)
        producer.send("older epoch", 1, epoch=2)
        producer.send("newer epoch, not from zero", 1, epoch=4)
        producer.send("newer epoch from zero", 0, epoch=4)
        producer.send("the epoch before", 1, epoch=3)
        producer.send("goes on", 1, epoch=4)
        producer.send("duplicate in this epoch", 0, epoch=4)
        producer.send("largest epoch", 0, epoch=32767)


def unknown_producers(stage: Stage) -> None:
    for version in produce.VERSIONS:
        topic = stage.topic(f"unknown-producers-v{version}")
        Producer(stage, version, topic, 2000).send("begins at five", 5)
        Producer(stage, version, topic, 2000).send("goes on at six", 6)
        Producer(stage, version, topic, 2001).send("begins at five in epoch one", 5, epoch=1)
        Producer(stage, version, topic, 2**62).send("large id", 0)
        Producer(stage, version, topic, 2002).send("negative epoch", 0, epoch=-1)


def sequences_wrap_around(stage: Stage) -> None:
    topic = stage.topic("wraps")
    producer = Producer(stage, 13, topic, 3000)
    producer.send("last but one", LAST - 1)
    producer.send("over the end", LAST, count=3)
    producer.send("over the end again", LAST, count=3)
    producer.send("behind it", 2)
    producer.send("gap", 9)
    second = Producer(stage, 12, topic, 3001)
    second.send("last", LAST)
    second.send("zero", 0)


def producers_do_not_share(stage: Stage) -> None:
    topic = stage.topic("two-producers", partitions=2)
    for producer_id in (4000, 4001):
        producer = Producer(stage, 13, topic, producer_id)
        producer.send(f"{producer_id} first", 0)
        producer.send(f"{producer_id} second", 1)
    other = build(R(), producer_id=4000, producer_epoch=0, base_sequence=0)
    stage.ask(
        "the same in another partition",
        produce,
        13,
        produce_request(13, topic, other, partition=1),
    )


STORIES = (
    duplicates_and_gaps,
    epochs,
    unknown_producers,
    sequences_wrap_around,
    producers_do_not_share,
)
