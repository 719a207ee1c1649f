"""The position of each shard: the last record of its key in a compacted topic.

A position is written in the same transaction as the records that it tells of. It is read after the
producer has taken over the transactional id, so no other relay can write one meanwhile; and up to
the end that the log has then, so that no open transaction of another shard hides the last one.
"""

from __future__ import annotations

import json
import logging
import time
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings, wait_for_topic
from headrace.client.errors import ClientError, NoSuchTopic, explained
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
# Readers of committed records wait for open transactions of other shards, which are short.
HELD_BACK_S = 5.0
# On a busy machine the first answer may take long. Nothing is known of open transactions then.
LONGEST_READ_S = 90.0
LOOK_AGAIN_S = 0.05


class HeldBack(ClientError):
    """An open transaction holds back readers of committed records.

    `offset` is the first one that cannot be read, `position` the last one before it.
    """

    def __init__(self, offset: int, position: Position | None) -> None:
        super().__init__(
            f"The positions in {TOPIC} cannot be read to their end: an open transaction holds "
            f"them back at offset {offset}. `headrace transactions list --hanging --topic {TOPIC}` "
            "shows it if its coordinator will never end it."
        )
        self.offset, self.position = offset, position


def ensure(at: ClientSettings) -> None:
    """The topic is there and keeps the last position of each shard for good.

    A cluster that creates topics by itself makes one whose records are deleted after a week. A
    relay without the right to look at settings leaves that to whoever made the topic.
    """
    topics = Topics(at)
    topics.ensure(TOPIC, partitions=PARTITIONS, settings=SETTINGS)
    try:
        policy = _cleanup_policy(topics, time.monotonic() + at.timeout_s)
    except ClientError as failure:
        if failure.code in FORBIDDEN:
            return
        raise
    if policy != "compact":
        log.warning("%s is not compacted, so positions would be deleted: it is now", TOPIC)
        topics.change_settings(TOPIC, to=SETTINGS)


def _cleanup_policy(topics: Topics, deadline: float) -> str:
    """A broker may not know yet what another relay has just created at the controller."""
    while True:
        try:
            return topics.settings_of(TOPIC)["cleanup.policy"].value
        except NoSuchTopic:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_AGAIN_S)


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


def read(at: ClientSettings, key: bytes) -> Position | None:
    """The last committed one; None if the topic has none. Raises HeldBack."""
    try:
        return _read(at, key)
    except KafkaException as failure:
        raise explained(failure, at.bootstrap, topic=TOPIC) from failure


def _read(at: ClientSettings, key: bytes) -> Position | None:
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
    end, ended_at = -1, 0.0  # where committed records ended last, below the end of the log
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
                end, ended_at = message.offset() or 0, time.monotonic()
            elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                raise KafkaException(error)
        now = time.monotonic()
        if end >= 0 and now - ended_at > HELD_BACK_S:
            raise HeldBack(end, found)
        if now > deadline:
            raise ClientError(
                f"The positions in {TOPIC} cannot be read within {LONGEST_READ_S:.0f} s."
            )
