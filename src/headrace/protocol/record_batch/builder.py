"""Building a batch out of records."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.protocol import compression as codecs
from headrace.protocol.primitives import zigzag
from headrace.protocol.record_batch.header import (
    CONTROL,
    HEADER,
    LOG_APPEND_TIME,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    SMALLEST_LENGTH,
    TRANSACTIONAL,
    seal,
)
from headrace.protocol.record_batch.records import Record


def build(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    compression: int = codecs.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time: bool = False,
    last_offset_delta: int | None = None,
    extra_attributes: int = 0,
) -> bytes:
    """A batch of these records.

    Timestamps default to those of the records; give `max_timestamp` with `log_append_time`.
    `last_offset_delta` is for batches that lost records at the end to compaction.
    """
    if base_timestamp is None:
        base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    if max_timestamp is None:
        max_timestamp = max((r.timestamp for r in records), default=NO_TIMESTAMP)
    body = bytearray()
    delta = -1
    for record in records:
        delta = delta + 1 if record.offset < 0 else record.offset - base_offset
        body += encode_record(record, delta, record.timestamp - base_timestamp)
    payload = codecs.compress(compression, body, level) if compression else bytes(body)
    attributes = compression | extra_attributes
    attributes |= LOG_APPEND_TIME * log_append_time
    attributes |= TRANSACTIONAL * is_transactional
    attributes |= CONTROL * is_control
    batch = bytearray(
        HEADER.pack(
            base_offset,
            len(payload) + SMALLEST_LENGTH,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            delta if last_offset_delta is None else last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    )
    batch += payload
    seal(batch)
    return bytes(batch)


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """One record as it stands in a batch."""
    pieces = [b"\0", zigzag(timestamp_delta), zigzag(offset_delta)]
    _put_bytes(pieces, record.key)
    _put_bytes(pieces, record.value)
    pieces.append(zigzag(len(record.headers)))
    for header in record.headers:
        _put_bytes(pieces, header.key.encode())
        _put_bytes(pieces, header.value)
    body = b"".join(pieces)
    return zigzag(len(body)) + body


def _put_bytes(pieces: list[bytes], value: bytes | None) -> None:
    if value is None:
        pieces.append(b"\x01")  # zigzag of -1
    else:
        pieces += (zigzag(len(value)), value)
