"""Produce 3-13 that is taken: acks, several topics and partitions, every compression."""

from __future__ import annotations

from headrace.wire.protocol.messages import fetch, produce
from headrace.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest
from tests.conformance.batches import CODECS, R, build
from tests.conformance.stage import Stage
from tests.conformance.stories.asking import (
    fetch_request,
    fetch_topic,
    from_offset,
    produce_request,
    produce_topic,
)


def each_kind_of_acks(stage: Stage) -> None:
    for version in produce.VERSIONS:
        topic = stage.topic(f"acks-v{version}")

        def ask(line: str, acks: int, version: int = version) -> None:
            request = produce_request(version, topic, build(R()), acks=acks)  # noqa: B023
            stage.ask(f"v{version} {line}", produce, version, request)

        ask("leader", 1)
        ask("all", -1)
        # Nothing answers this one; the next answer on the connection is that of the next request.
        stage.connection.send(
            produce, version, produce_request(version, topic, build(R(b"unanswered")), acks=0)
        )
        ask("after none", 1)
        ask("two", 2)
        ask("minus two", -2)
        everything = fetch_request(fetch_topic(13, topic, from_offset(0)))
        stage.ask(f"v{version} what is there", fetch, 13, everything)


def several_partitions(stage: Stage) -> None:
    for version in produce.VERSIONS:
        first = stage.topic(f"several-a-v{version}", partitions=2)
        second = stage.topic(f"several-b-v{version}")
        records = build(R(b"1"), R(b"2", None), R(None))
        topics = [
            produce_topic(
                version,
                first,
                [PartitionProduceData(1, records), PartitionProduceData(7, records)],
            ),
            produce_topic(version, second, [PartitionProduceData(0, records)]),
        ]
        stage.ask(f"v{version}", produce, version, ProduceRequest(None, -1, 10_000, topics))
        stage.ask(f"v{version} nothing", produce, version, ProduceRequest(None, -1, 10_000, []))
        none = ProduceRequest(None, -1, 10_000, [produce_topic(version, first, [])])
        stage.ask(f"v{version} no partitions", produce, version, none)


def every_compression(stage: Stage) -> None:
    for kept_as in ("producer", "uncompressed", *CODECS[1:]):
        name = f"compressed-as-{kept_as}"
        topic = stage.topic(name, partitions=len(CODECS), config={"compression.type": kept_as})
        for index, codec in enumerate(CODECS):
            records = build(
                R(b"a" * 500),
                R(None, None),
                R(b"h", b"k", 5, ((b"x", b"y"), (b"z", None))),
                codec=codec,
            )
            request = produce_request(13, topic, records, partition=index)
            stage.ask(f"{codec} into {kept_as}", produce, 13, request)
            wanted = fetch_topic(13, topic, from_offset(0, partition=index))
            stage.ask(f"{codec} out of {kept_as}", fetch, 13, fetch_request(wanted))


def append_time(stage: Stage) -> None:
    topic = stage.topic("append-time", config={"message.timestamp.type": "LogAppendTime"})
    for version in produce.VERSIONS:
        for codec in CODECS:
            records = build(R(time_delta=0), R(time_delta=7), codec=codec)
            request = produce_request(version, topic, records)
            stage.ask(f"v{version} {codec}", produce, version, request)
    stage.ask("read", fetch, 13, fetch_request(fetch_topic(13, topic, from_offset(0))))


def times_in_a_batch(stage: Stage) -> None:
    """The largest timestamp is worked out by the broker where it looks at all."""
    topic = stage.topic("times")
    for line, records in {
        "rising": build(R(time_delta=1), R(time_delta=2)),
        "falling": build(R(time_delta=9), R(time_delta=2)),
        "before the first": build(R(time_delta=0), R(time_delta=-5)),
        "no time": build(R(), base_timestamp=-1),
        "zero": build(R(), base_timestamp=0),
    }.items():
        stage.ask(line, produce, 13, produce_request(13, topic, records))
    stage.ask("read", fetch, 13, fetch_request(fetch_topic(13, topic, from_offset(0))))


def fields_that_the_broker_sets(stage: Stage) -> None:
    topic = stage.topic("fields-set")
    for line, records in {
        "base offset": build(R(), base_offset=1000),
        "negative base offset": build(R(), base_offset=-5),
        "leader epoch": build(R(), leader_epoch=42),
    }.items():
        stage.ask(line, produce, 13, produce_request(13, topic, records))
    stage.ask("read", fetch, 13, fetch_request(fetch_topic(13, topic, from_offset(0))))


STORIES = (
    each_kind_of_acks,
    several_partitions,
    every_compression,
    append_time,
    times_in_a_batch,
    fields_that_the_broker_sets,
)
