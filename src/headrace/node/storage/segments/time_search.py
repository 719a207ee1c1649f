"""Offsets by time: the first record not older than a moment, and the youngest record of all.

Time index, offset index, then batch headers; only the batch that must hold the answer is opened.
The search runs on the loop, so it is bounded: the header decides which one batch is opened, and a
`Budget` bounds a whole request. For a batch that is too large, or whose records contradict its
header, the answer comes from the header: its first offset and largest timestamp. No matching record
is before that offset, so a consumer that starts there misses none; it may get some that are older.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.environment import Buffer
from headrace.node.storage.segments.segment import Segment
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.record_batch import (
    LOG_APPEND_TIME,
    MOST_RECORDS_LOOKED_AT,
    BatchHeader,
    crc_is_right,
    find_by_timestamp,
    payload_of,
)

# One batch: unpacking this much takes about 20 ms.
MOST_BYTES_SEARCHED = 16 << 20
# One request, over all its partitions: about a quarter of a second at most.
RECORDS_PER_REQUEST = 1_000_000
BYTES_PER_REQUEST = 64 << 20

Found = tuple[int, int, int]  # timestamp, offset, leader epoch


@dataclass(slots=True)
class Budget:
    """The records and bytes that one request may still read."""

    records: int = RECORDS_PER_REQUEST
    size_bytes: int = BYTES_PER_REQUEST

    def records_of(self, segment: Segment, batch: BatchHeader) -> Buffer | None:
        """The batch's records, unpacked; None if that would cost too much, or if they cannot be."""
        if batch.record_count > min(self.records, MOST_RECORDS_LOOKED_AT) or self.size_bytes <= 0:
            return None
        data = segment.read_batch(batch)
        if not crc_is_right(data):
            raise MalformedMessage(f"the batch at offset {batch.base_offset} fails its checksum")
        self.records -= batch.record_count
        try:
            payload = payload_of(data, batch, MOST_BYTES_SEARCHED)
        except MalformedMessage:
            self.size_bytes -= MOST_BYTES_SEARCHED
            return None
        self.size_bytes -= len(payload)
        return payload


def first_not_before(
    segments: list[Segment], timestamp_ms: int, start_offset: int, budget: Budget | None = None
) -> Found | None:
    """The first record at or after `start_offset` whose timestamp is not below `timestamp_ms`."""
    budget = budget or Budget()
    for segment in segments:
        if segment.largest_timestamp() < timestamp_ms:
            continue
        offset = max(segment.offset_for_time(timestamp_ms), start_offset)
        for batch in segment.headers_from(offset):
            if batch.max_timestamp < timestamp_ms or batch.last_offset < start_offset:
                continue
            if not batch.record_count:
                continue  # compaction emptied it, and it keeps its timestamp
            found = _first_record(segment, batch, timestamp_ms, start_offset, budget)
            if found is not None:
                return found
            if batch.base_offset >= start_offset:
                # Its header is wrong. To open batch after batch would delay all other clients.
                return by_header(batch, start_offset)
    return None


def youngest(segments: list[Segment], budget: Budget | None = None) -> Found | None:
    """The first record that carries the largest timestamp of the log."""
    for segment in segments:
        segment.load_indexes()
    segment = max(segments, key=lambda each: each.max_timestamp)
    timestamp = segment.max_timestamp
    if timestamp < 0:
        return None
    for batch in segment.headers_from(segment.offset_of_max_timestamp):
        if batch.max_timestamp == timestamp:
            start = batch.base_offset
            return _first_record(segment, batch, timestamp, start, budget or Budget())
    return None


def _first_record(
    segment: Segment, batch: BatchHeader, timestamp_ms: int, start_offset: int, budget: Budget
) -> Found | None:
    if batch.attributes & LOG_APPEND_TIME:
        # All records have the batch's timestamp; without gaps the first one is known.
        if batch.last_offset_delta + 1 == batch.record_count:
            return by_header(batch, start_offset)
        batch = batch._replace(base_timestamp=batch.max_timestamp)
        timestamp_ms = -(1 << 62)
    records = budget.records_of(segment, batch)
    if records is None:
        return by_header(batch, start_offset)
    try:
        found = find_by_timestamp(bytes(records), batch, timestamp_ms, start_offset)
    except MalformedMessage:
        # Its producer sent wrong records; the client that asks must not pay for that.
        return by_header(batch, start_offset)
    if found is None:
        return None
    timestamp = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME else found[0]
    return timestamp, found[1], batch.leader_epoch


def by_header(batch: BatchHeader, start_offset: int) -> Found:
    return batch.max_timestamp, max(batch.base_offset, start_offset), batch.leader_epoch
