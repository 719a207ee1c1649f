"""How far each shard has come: the last record of its key in a compacted topic.

A position is written in the same transaction as the records that it tells of. It is read after the
producer has taken over the transactional id, so nobody can write another one meanwhile; and up to
the end that the log has then, so that no open transaction of another shard hides the last one.
"""

from __future__ import annotations

import json
import logging
import time
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.client.connection import Connection, wait_for_topic
from headrace.client.errors import ClientError, explained
from headrace.client.topics import Topics
from headrace.services.outbox.shard import Position

log = logging.getLogger("headrace.outbox")

TOPIC = "headrace.outbox.positions"
PARTITIONS = 8
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(4 << 20),  # what is not compacted is read at each take-over
    "retention.ms": "-1",
}
FORBIDDEN = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")
# Another shard's transaction may be open that long before its coordinator aborts it.
LONGEST_READ_S = 90.0


def ensure(at: Connection) -> None:
    """The topic is there and keeps the last position of each shard for good.

    A cluster that creates topics by itself makes one whose records are deleted after a week. A
    relay without the right to look at settings leaves that to whoever made the topic.
    """
    topics = Topics(at)
    topics.ensure(TOPIC, partitions=PARTITIONS, settings=SETTINGS)
    try:
        if topics.settings_of(TOPIC)["cleanup.policy"].value == "compact":
            return
    except ClientError as failure:
        if failure.code in FORBIDDEN:
            return
        raise
    log.warning("%s is not compacted, so positions would be deleted: it is now", TOPIC)
    topics.change_settings(TOPIC, to=SETTINGS)


def key_of(outbox_id: str, shard: int) -> bytes:
    return f"{outbox_id}/{shard}".encode()


def partition_of(key: bytes, partitions: int) -> int:
    return crc32(key) % partitions


def written(position: Position) -> bytes:
    said: dict[str, object] = {"row": position.row_id, "checksum": position.checksum}
    if position.retried:
        said["retried"] = position.retried
    return json.dumps(said).encode()


def understood(value: bytes) -> Position:
    said = json.loads(value)
    return Position(int(said["row"]), int(said["checksum"]), tuple(said.get("retried", ())))


def read(at: Connection, key: bytes) -> Position | None:
    """The last committed one; None if the topic has none."""
    try:
        return _read(at, key)
    except KafkaException as failure:
        raise explained(failure, at.bootstrap, topic=TOPIC) from failure


def _read(at: Connection, key: bytes) -> Position | None:
    looking = at.consumer(group_id="headrace-outbox", isolation_level="read_uncommitted")
    try:
        partition = partition_of(key, wait_for_topic(looking, at, TOPIC))
        low, high = looking.get_watermark_offsets(
            TopicPartition(TOPIC, partition), timeout=at.timeout_s
        )
    finally:
        looking.close()
    if low == high:
        return None
    reading = at.consumer(
        group_id="headrace-outbox",
        isolation_level="read_committed",
        enable_auto_commit=False,
        enable_partition_eof=True,
        auto_offset_reset="earliest",
    )
    try:
        reading.assign([TopicPartition(TOPIC, partition, low)])
        return _last(reading, key, high)
    finally:
        reading.close()


def _last(reading: Consumer, key: bytes, high: int) -> Position | None:
    found: Position | None = None
    deadline = time.monotonic() + LONGEST_READ_S
    while True:
        for message in reading.consume(500, timeout=0.1):
            error = message.error()
            if error is None:
                if message.key() == key and message.value() is not None:
                    found = understood(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                if (message.offset() or 0) >= high:
                    return found
            elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                raise KafkaException(error)
        if time.monotonic() > deadline:
            raise ClientError(
                f"The positions in {TOPIC} cannot be read to their end: an open transaction holds "
                "them back. `headrace transactions list` shows it."
            )
