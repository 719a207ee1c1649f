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

from headrace.client.admin.own_topics import OwnTopic, ensure_own
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.faults import Fault
from headrace.client.intake import Intake
from headrace.client.records import TopicPartition
from headrace.services.outbox.shard import Position
from headrace.wire.contract.own_records import OwnRecords, json_object, whole_number

log = logging.getLogger("headrace.outbox")

TOPIC = "headrace.outbox.positions"
PARTITIONS = 8
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(4 << 20),  # what is not compacted is read at each take-over
    "retention.ms": "-1",
}
# Readers of committed records wait for open transactions of other shards, which are short.
HELD_BACK_S = 5.0
# On a busy machine the first answer may take long. Nothing is known of open transactions then.
LONGEST_READ_S = 90.0


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
    """Makes sure that the topic exists and keeps the last position of each shard for good.

    A cluster that creates topics by itself makes one whose records are deleted after a week. Its
    partitions stay as they are: positions were written by their number.
    """
    ensure_own(Topics(at), OwnTopic(TOPIC, PARTITIONS, SETTINGS))


def key_of(outbox_id: str, shard: int) -> bytes:
    return f"{outbox_id}/{shard}".encode()


def partition_of(key: bytes, partitions: int) -> int:
    return crc32(key) % partitions


def written(position: Position) -> bytes:
    said: dict[str, object] = {"row": position.row_id, "checksum": position.checksum}
    if position.retried:
        said["retried"] = position.retried
    return json.dumps(said).encode()


def understood(value: bytes | None) -> Position:
    """Raises one of `own_records.FAULTS` for a record that no relay has written."""
    said = json_object(value)
    retried = tuple(whole_number(row_id) for row_id in said.get("retried", ()))
    return Position(whole_number(said["row"]), whole_number(said["checksum"]), retried)


def read(at: ClientSettings, key: bytes) -> Position | None:
    """Returns the last committed position; None if the topic has none. Raises HeldBack."""
    try:
        return _read(at, key)
    except Fault as fault:
        raise fault.explained(at.bootstrap, topic=TOPIC) from fault


def _read(at: ClientSettings, key: bytes) -> Position | None:
    looking = Intake(
        at.with_settings(group_id="headrace-outbox", isolation_level="read_uncommitted")
    )
    try:
        place = TopicPartition(TOPIC, partition_of(key, looking.wait_for_topic(at, TOPIC)))
        low, high = looking.bounds(place, at.timeout_s)
    finally:
        looking.close()
    if low == high:
        return None
    reading = Intake(
        at.with_settings(
            group_id="headrace-outbox",
            isolation_level="read_committed",
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="earliest",
        )
    )
    try:
        reading.assign({place: low})
        return _last(reading, key, high)
    finally:
        reading.close()


def _read_one(own: OwnRecords, value: bytes | None, partition: int, offset: int) -> Position | None:
    def parse(key: bytes | None, value: bytes | None) -> Position:
        return understood(value)

    return own.read(parse, None, value, partition=partition, offset=offset)


def _require_one(found: Position | None, own: OwnRecords, key: bytes) -> None:
    """Without a readable position all rows would be sent once more, and silently."""
    if found is None and own.skipped:
        raise ClientError(
            f"No position of {key.decode(errors='replace')} in {TOPIC} can be read, although there "
            "are records of that key; somebody else wrote them. Delete the key there (a tombstone) "
            "to send all rows of the table again."
        )


def _last(reading: Intake, key: bytes, high: int) -> Position | None:
    found: Position | None = None
    own = OwnRecords(TOPIC, log)
    end, ended_at = -1, 0.0  # where committed records ended last, below the end of the log
    deadline = time.monotonic() + LONGEST_READ_S
    while True:
        arrived = reading.read(0.1, 500)
        for _, fault in arrived.faults:
            if not fault.is_passing:
                raise fault
        for (_, partition), records in arrived.stretches:
            for record in records:
                if record.key() == key and record.value() is not None:
                    offset = record.offset() or 0
                    found = _read_one(own, record.value(), partition, offset) or found
        for reached in arrived.ends.values():
            if reached >= high:
                _require_one(found, own, key)
                return found
            end, ended_at = reached, time.monotonic()
        now = time.monotonic()
        if end >= 0 and now - ended_at > HELD_BACK_S:
            raise HeldBack(end, found)
        if now > deadline:
            raise ClientError(
                f"The positions in {TOPIC} cannot be read within {LONGEST_READ_S:.0f} s."
            )
