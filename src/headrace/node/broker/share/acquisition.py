"""Reads the records that a share partition may hand out, and cuts the slice to what was acquired.

Only the headers of batches are read here; the records go from the file to the socket. Control
batches and, for `read_committed`, batches of aborted transactions are left out: the share partition
archives their offsets. The slice that is answered begins with the batch of the first acquired
record and ends with that of the last; a member passes over the records that it did not acquire.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.environment import FileSlice
from headrace.node.coordination.share.share_partition import AcquiredRange, LogBatch, SharePartition
from headrace.node.replication.replica import PartitionLeader
from headrace.node.storage.segments.batch_headers import walk_headers
from headrace.wire.protocol.record_batch import BatchHeader

# Batches that one read looks at: 5,000 headers take the loop 10 ms.
MOST_BATCHES = 5_000
# Reads in one attempt that find only offsets without records: the next fetch continues after them.
MOST_READS = 4


@dataclass(slots=True)
class Wish:
    """The limits of a member's request for one partition."""

    most_records: int
    batch_size: int
    max_bytes: int
    at_least_one: bool  # the first batch is sent whatever its size
    exactly: bool  # never more than `most_records` (share.acquire.mode=record_limit)
    committed: bool


@dataclass(slots=True)
class Acquired:
    records: FileSlice
    ranges: list[AcquiredRange]

    @property
    def count(self) -> int:
        return sum(last - first + 1 for first, last, _ in self.ranges)


def acquire(
    part: SharePartition, leader: PartitionLeader, member: str, wish: Wish, now_ms: int
) -> Acquired | None:
    """Returns None if nothing can be acquired now. Raises what a read of the log raises."""
    for _ in range(MOST_READS):
        if not part.has_room:
            return None
        start = part.next_fetch_offset
        if start > leader.log.end_offset:
            return None  # records were lost: wait until there are others at these offsets
        records = leader.read(
            start, wish.max_bytes, committed=wish.committed, at_least_one=wish.at_least_one
        )
        if records is None:
            return None
        headers = list(_wanted_headers(records, start, wish.most_records))
        if not headers:
            return None
        visible = [header for header in headers if not header.is_control]
        if wish.committed:
            visible = _without_aborted(headers, leader, start, records)
        batches = [LogBatch(header.base_offset, header.last_offset) for header in visible]
        ranges = part.acquire(
            member,
            batches,
            headers[-1].last_offset,
            wish.most_records,
            now_ms,
            exactly=wish.exactly,
        )
        if ranges:
            return Acquired(
                _cut(records, visible, ranges), in_batches(ranges, batches, wish.batch_size)
            )
        if part.next_fetch_offset == start:
            return None
    return None


def _wanted_headers(records: FileSlice, start: int, most_records: int) -> Iterator[BatchHeader]:
    """Returns the headers of the batches with the first `most_records` offsets from `start` on."""
    end = records.position + records.length
    count = 0
    for number, header in enumerate(walk_headers(records.file, records.position, end), 1):
        yield header
        if not header.is_control:
            count += header.last_offset - max(header.base_offset, start) + 1
        if count >= most_records or number >= MOST_BATCHES:
            return


def _without_aborted(
    headers: Sequence[BatchHeader], leader: PartitionLeader, start: int, records: FileSlice
) -> list[BatchHeader]:
    """Skips aborted batches. A transaction of a producer ends with its control batch; until then
    all batches of the producer since the first offset of an aborted transaction belong to it."""
    first, last = headers[0], headers[-1]
    read = FileSlice(records.file, first.position, last.position + last.size - first.position)
    aborted = sorted(leader.aborted_transactions(start, read), key=lambda found: found[1])
    ahead, at = set[int](), 0
    visible = []
    for header in headers:
        while at < len(aborted) and aborted[at][1] <= header.last_offset:
            ahead.add(aborted[at][0])
            at += 1
        if header.is_control:
            ahead.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in ahead:
            visible.append(header)
    return visible


def _cut(
    records: FileSlice, visible: Sequence[BatchHeader], ranges: Sequence[AcquiredRange]
) -> FileSlice:
    first_offset, last_offset = ranges[0].first, ranges[-1].last
    held = [
        header
        for header in visible
        if header.last_offset >= first_offset and header.base_offset <= last_offset
    ]
    first, last = held[0], held[-1]
    return FileSlice(records.file, first.position, last.position + last.size - first.position)


def in_batches(
    ranges: Sequence[AcquiredRange], batches: Sequence[LogBatch], size: int
) -> list[AcquiredRange]:
    """Returns the same records in as few ranges as possible, but cut after a batch of the log where
    a range would have more than `size` records: members acknowledge and retry by these ranges."""
    pieces: list[AcquiredRange] = []
    ends = iter(batches)
    end = next(ends, None)
    for first, last, deliveries in _joined(ranges):
        while end is not None and end.last < last:
            if end.last - first + 1 >= size > 0:
                pieces.append(AcquiredRange(first, end.last, deliveries))
                first = end.last + 1
            end = next(ends, None)
        pieces.append(AcquiredRange(first, last, deliveries))
    return pieces


def _joined(ranges: Sequence[AcquiredRange]) -> Iterator[AcquiredRange]:
    """Joins adjacent ranges: the share partition returns one for each batch of the log."""
    joined = ranges[0]
    for each in ranges[1:]:
        if each.first == joined.last + 1 and each.deliveries == joined.deliveries:
            joined = AcquiredRange(joined.first, each.last, joined.deliveries)
        else:
            yield joined
            joined = each
    yield joined
