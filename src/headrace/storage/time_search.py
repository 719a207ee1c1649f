"""Offsets by time: the first record not older than a moment, and the youngest record of all.

Time index, offset index, then batch headers; only the batch that must hold the answer is opened.
"""

from __future__ import annotations

from headrace.protocol.record_batch import BatchHeader, walk
from headrace.storage.append_rules import MAX_DECOMPRESSED
from headrace.storage.segment import Segment

Found = tuple[int, int, int]  # timestamp, offset, leader epoch


def first_not_before(segments: list[Segment], timestamp_ms: int, start_offset: int) -> Found | None:
    """The first record at or after `start_offset` whose timestamp is not below `timestamp_ms`."""
    for segment in segments:
        if segment.largest_timestamp() < timestamp_ms:
            continue
        offset = max(segment.time_index.offset_for(timestamp_ms), start_offset)
        for batch in segment.headers(segment.index.position_for(offset)):
            if batch.max_timestamp >= timestamp_ms and batch.last_offset >= start_offset:
                found = _first_record(segment, batch, timestamp_ms, start_offset)
                if found is not None:
                    return found
        # A batch that compaction emptied keeps its timestamp: the next segment may have a record.
    return None


def youngest(segments: list[Segment]) -> Found | None:
    """The first record that carries the largest timestamp of the log."""
    for segment in segments:
        segment.load_indexes()
    segment = max(segments, key=lambda each: each.max_timestamp)
    timestamp = segment.max_timestamp
    if timestamp < 0:
        return None
    for batch in segment.headers(segment.index.position_for(segment.offset_of_max_timestamp)):
        if batch.max_timestamp == timestamp:
            return _first_record(segment, batch, timestamp, batch.base_offset)
    return None


def _first_record(
    segment: Segment, batch: BatchHeader, timestamp_ms: int, start_offset: int
) -> Found | None:
    for record in walk(segment.read_batch(batch), MAX_DECOMPRESSED):
        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
            return record.timestamp, record.offset, batch.leader_epoch
    return None
