"""Produce 3-13 that is refused, and that nothing of it stays in the log."""

from __future__ import annotations

import itertools
import struct
import time

from headrace.wire.protocol.messages import fetch, produce
from tests.conformance.batches import (
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    R,
    build,
    message_set,
)
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.asking import (
    UNKNOWN,
    fetch_request,
    fetch_topic,
    from_offset,
    produce_request,
)

DAY_MS = 86_400_000

BAD_BATCHES = {
    "empty": b"",
    "one byte": b"\0",
    "60 bytes": bytes(60),
    "zeros": bytes(61),
    "bad crc": build(R(), crc_error=1),
    "magic 0": message_set(0),
    "magic 1": message_set(1),
    "magic 3": build(R(), magic=3),
    "magic -1": build(R(), magic=-1),
    "two batches": build(R()) + build(R()),
    "a batch and a half": build(R()) + build(R())[:70],
    "a byte behind it": build(R()) + b"\0",
    "length one too small": build(R(), length_error=-1),
    "length one too large": build(R(), length_error=1),
    "length zero": build(R(), length_error=-(len(build(R())) - 12)),
    "length negative": build(R(), length_error=-1000),
    "length huge": build(R(), length_error=2**30),
    "cut in the middle": build(R(b"x" * 100))[:-50],
    "no records": build(),
    "no records, count 1": build(count=1, last_offset_delta=0),
    "count too small": build(R(), R(), count=1),
    "count too large": build(R(), count=2),
    "count negative": build(R(), count=-1),
    "last offset delta too small": build(R(), R(), last_offset_delta=0),
    "last offset delta too large": build(R(), last_offset_delta=5),
    "last offset delta negative": build(R(), last_offset_delta=-1),
    "control": build(R(), attributes=CONTROL),
    "transactional": build(
        R(), attributes=TRANSACTIONAL, producer_id=4242, producer_epoch=0, base_sequence=0
    ),
    "transactional without producer": build(R(), attributes=TRANSACTIONAL),
    "append time": build(R(), attributes=LOG_APPEND_TIME),
    "unknown attribute": build(R(), attributes=1 << 9),
    "compression 5": build(R(), attributes=5),
    "compression 7": build(R(), attributes=7),
    "producer without sequence": build(R(), producer_id=4243, producer_epoch=0),
    "producer without epoch": build(R(), producer_id=4244, base_sequence=0),
    "sequence without producer": build(R(), base_sequence=0),
    "too large": build(R(b"x" * 1_048_600)),
}


def batches_that_cannot_be(stage: Stage) -> None:
    for version in produce.VERSIONS:
        topic = stage.topic(f"bad-batches-v{version}")
        for line, records in BAD_BATCHES.items():
            request = produce_request(version, topic, records)
            stage.ask(f"v{version} {line}", produce, version, request)
        read = fetch_request(fetch_topic(13, topic, from_offset(0)))
        stage.ask(f"v{version} what is there", fetch, 13, read)


def no_batch_at_all(stage: Stage) -> None:
    topic = stage.topic("no-batch")
    for version in (3, 9, 13):
        if stage.node.name == "apache":  # which never answers
            stage.connection.socket.settimeout(1.5)
        stage.ask(f"v{version} null", produce, version, produce_request(version, topic, None))
        stage.drop()


def places_that_are_not_there(stage: Stage) -> None:
    for version in produce.VERSIONS:
        topic = stage.topic(f"places-v{version}")

        def ask(line: str, topic: Topic, partition: int = 0, version: int = version) -> None:
            request = produce_request(version, topic, build(R()), partition=partition)
            stage.ask(f"v{version} {line}", produce, version, request)

        ask("partition 1", topic, 1)
        ask("partition -1", topic, -1)
        ask("unknown topic", UNKNOWN)
        if version >= 13:
            ask("no id", Topic("", bytes(16)))
        else:
            ask("bad name", Topic("bad name", bytes(16)))
            ask("empty name", Topic("", bytes(16)))


def unanswered_refusals_end_the_connection(stage: Stage) -> None:
    """With acks=0 there is no other way to tell the producer."""
    for version in (3, 9, 13):
        topic = stage.topic(f"unanswered-v{version}")
        bad = produce_request(version, topic, build(R(), crc_error=1), acks=0)
        stage.connection.send(produce, version, bad)
        good = produce_request(version, topic, build(R()), acks=1)
        stage.ask(f"v{version} after it", produce, version, good)


def times_out_of_bounds(stage: Stage) -> None:
    now = int(time.time() * 1000)
    bounds = {
        "message.timestamp.before.max.ms": "600000",
        "message.timestamp.after.max.ms": "600000",
    }
    topic = stage.topic("bounded-times", config=bounds)
    plain = stage.topic("default-times")
    stamped = stage.topic(
        "stamped-times", config=bounds | {"message.timestamp.type": "LogAppendTime"}
    )
    for version in produce.VERSIONS:

        def ask(line: str, where: Topic, base: int, *deltas: int, version: int = version) -> None:
            records = build(*(R(time_delta=delta) for delta in deltas), base_timestamp=base)
            request = produce_request(version, where, records)
            stage.ask(f"v{version} {line}", produce, version, request)

        ask("now", topic, now, 0)
        ask("too old", topic, now - 700_000, 0)
        ask("too young", topic, now + 700_000, 0)
        ask("the second too young", topic, now, 0, 700_000)
        ask("the second and third too old", topic, now, 0, -700_000, -800_000)
        ask("default: a day ahead", plain, now + DAY_MS, 0)
        ask("default: long ago", plain, 1000, 0)
        ask("stamped: a day ahead", stamped, now + DAY_MS, 0)


def keys_that_are_missing(stage: Stage) -> None:
    for policy in ("compact", "compact,delete"):
        topic = stage.topic(f"keyed-{policy.replace(',', '-')}", config={"cleanup.policy": policy})
        for version, codec in itertools.product(produce.VERSIONS, ("none", "gzip")):
            for line, records in {
                "keys": [R(), R(None)],
                "no key": [R(key=None)],
                "empty key": [R(key=b"")],
                "one of three": [R(), R(key=None), R()],
            }.items():
                request = produce_request(version, topic, build(*records, codec=codec))
                stage.ask(f"{policy} v{version} {codec} {line}", produce, version, request)


UNREADABLE = {
    "garbage": build(R(), payload=b"\xff" * 20),
    "empty": build(R(), payload=b""),
    "bytes behind the records": build(R(), payload=R().encode(0) + b"\0\0"),
    "record cut": build(R(), payload=R().encode(0)[:-2]),
    "offset delta 1 first": build(R(), payload=R().encode(1)),
    "no gzip": build(R(), codec="gzip", payload=b"no gzip at all"),
    "no snappy": build(R(), codec="snappy", payload=b"\xff\xff\xff\xff\xff"),
    "no lz4": build(R(), codec="lz4", payload=b"no lz4 at all"),
    "no zstd": build(R(), codec="zstd", payload=b"no zstd at all"),
}


def records_that_cannot_be_read(stage: Stage) -> None:
    """The checksum is right, what it covers is not."""
    topic = stage.topic("unreadable", partitions=len(UNREADABLE))
    for partition, (line, records) in enumerate(UNREADABLE.items()):
        stage.ask(line, produce, 13, produce_request(13, topic, records, partition=partition))


def size_is_measured_by_topic(stage: Stage) -> None:
    small = stage.topic("small-batches", config={"max.message.bytes": "200"})
    body = len(build(R(b"")))
    for size in (199, 200, 201):
        # One byte more of value can make a length field longer, so the size is found by trying.
        value = next(n for n in range(300) if len(build(R(b"x" * n))) == size)
        stage.ask(f"{size} bytes", produce, 13, produce_request(13, small, build(R(b"x" * value))))
    assert body < 199
    zipped = build(R(b"x" * 5000), codec="gzip")
    assert len(zipped) < 200
    stage.ask("large before compression", produce, 13, produce_request(13, small, zipped))


def transactional_requests(stage: Stage) -> None:
    topic = stage.topic("transactional-requests")
    request = produce_request(11, topic, build(R()), transactional_id="t")
    stage.ask("id without transactional batch", produce, 11, request)


def lengths_in_the_request(stage: Stage) -> None:
    """`records` claims more bytes than the frame has."""
    name = struct.pack(">h", 4) + b"none"
    head = struct.pack(">hhih", 0, 7, 9, -1) + struct.pack(">hhi", -1, 1, 1000)
    body = struct.pack(">i", 1) + name + struct.pack(">iii", 1, 0, 10_000) + b"short"
    stage.send_raw("records longer than the frame", head + body)


STORIES = (
    batches_that_cannot_be,
    no_batch_at_all,
    places_that_are_not_there,
    unanswered_refusals_end_the_connection,
    times_out_of_bounds,
    keys_that_are_missing,
    records_that_cannot_be_read,
    size_is_measured_by_topic,
    transactional_requests,
    lengths_in_the_request,
)
