"""The records that a broker has acquired for us in one partition, and the gaps between them.

An answer holds whole batches; only the offsets that it lists as acquired are ours. Offsets without
a record (compaction, markers of transactions) are gaps, which a member acknowledges as such. Pure.
Raises MalformedMessage for bytes that are not batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.client.records import HeaderList, Record
from headrace.environment import Buffer
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages import share_fetch
from headrace.wire.protocol.record_batch import headers_in, walk
from headrace.wire.protocol.record_batch.header import crc_is_right
from headrace.wire.protocol.uuids import ZERO_ID

LARGEST_BATCH_BYTES = 128 << 20  # uncompressed

Range = tuple[int, int]  # first and last offset


@dataclass(slots=True, eq=False)
class ShareRecord(Record[bytes, bytes]):
    """A record that this member holds until it acknowledges it or until its lock runs out."""

    delivery_count: int = 1  # this delivery included
    locked_until: float = 0.0  # by `time.monotonic()`; `renew` moves it
    topic_id: bytes = ZERO_ID
    node: int = -1  # the leader that gave it
    session: int = -1  # the number of the session with it


@dataclass(slots=True)
class Acquired:
    records: list[ShareRecord] = field(default_factory=list)
    gaps: list[Range] = field(default_factory=list)
    broken: list[Range] = field(default_factory=list)  # batches that cannot be read


def acquired_in(topic: str, answer: share_fetch.PartitionData) -> Acquired:
    """Records in the order of their offsets. A damaged batch does not hide the others."""
    found = Acquired()
    ranges = sorted(
        (each.first_offset, each.last_offset, each.delivery_count)
        for each in answer.acquired_records
    )
    if not ranges:
        return found
    data = answer.records or b""
    for pos, header in headers_in(data):
        if header.is_control or not _touches(ranges, header.base_offset, header.last_offset):
            continue
        batch = memoryview(data)[pos : pos + header.size]
        stamp = "append" if header.has_log_append_time else "create"
        try:
            found.records += _records(topic, answer.partition_index, batch, ranges, stamp)
        except MalformedMessage:
            found.broken += _within(ranges, header.base_offset, header.last_offset)
    found.gaps = _gaps(ranges, found)
    return found


def _records(
    topic: str,
    partition: int,
    batch: Buffer,
    ranges: Sequence[tuple[int, int, int]],
    stamp: str,
) -> list[ShareRecord]:
    if not crc_is_right(batch):
        raise MalformedMessage("batch: its checksum is wrong")
    found = []
    at = 0
    for record in walk(batch, LARGEST_BATCH_BYTES):
        while at < len(ranges) and ranges[at][1] < record.offset:
            at += 1
        if at == len(ranges):
            break
        if record.offset < ranges[at][0]:
            continue
        headers: HeaderList = [(each.key, each.value) for each in record.headers]
        found.append(
            ShareRecord(
                topic,
                partition,
                record.offset,
                record.timestamp if record.timestamp >= 0 else None,
                stamp,
                record.key,
                record.value,
                headers,
                ranges[at][2],
            )
        )
    return found


def _touches(ranges: Iterable[tuple[int, int, int]], first: int, last: int) -> bool:
    return any(begin <= last and first <= end for begin, end, _ in ranges)


def _within(ranges: Iterable[tuple[int, int, int]], first: int, last: int) -> list[Range]:
    """The parts of the acquired ranges between these offsets."""
    return [
        (max(begin, first), min(end, last))
        for begin, end, _ in ranges
        if begin <= last and first <= end
    ]


def _gaps(ranges: Iterable[tuple[int, int, int]], found: Acquired) -> list[Range]:
    taken = sorted([(each.offset, each.offset) for each in found.records] + found.broken)
    gaps = []
    at = 0
    for begin, end, _ in ranges:
        upto = begin
        while at < len(taken) and taken[at][0] <= end:
            if taken[at][0] > upto:
                gaps.append((upto, taken[at][0] - 1))
            upto = taken[at][1] + 1
            at += 1
        if upto <= end:
            gaps.append((upto, end))
    return gaps
