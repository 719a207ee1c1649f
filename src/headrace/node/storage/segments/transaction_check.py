"""Checks whether a `.txnindex` file can be right, and rebuilds it if not.

The file has no checksum, and a wrong entry would show aborted records to readers of committed
records. So each entry is held against the log when a segment's index is first used: its marker must
be there and abort the transaction of that producer, and the transaction must begin where it says.
That costs three lookups an entry, once. A wrong index is rebuilt from the markers in the segment,
which takes a second per gigabyte, and is logged. In a hole that compaction has left this cannot be
checked, and the entry is trusted. Not found: an entry that is missing altogether, with its 34
bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.node.storage.producer_state import ProducerState
from headrace.node.storage.recovery.damage import DamagedRecords
from headrace.node.storage.segments.segment import Segment
from headrace.node.storage.segments.segment_scan import replay_producer, replay_producers
from headrace.node.storage.segments.transaction_index import Aborted
from headrace.wire.protocol.control_records import ControlKind, kind_of
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.record_batch import (
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    header_at,
    walk,
)

if TYPE_CHECKING:
    from headrace.node.storage.segments.segment_list import SegmentList


def check_aborted(segments: SegmentList, number: int, log_end_offset: int) -> None:
    """Hold the index of a segment against the log, unless this node has made or checked it."""
    segment = segments.items[number]
    index = segment.transaction_index
    if index.is_checked:
        return
    try:
        is_right = _is_right(segments, number, log_end_offset)
    except DamagedRecords:
        is_right = True  # it cannot be checked
    if not is_right:
        index.replace(_made_anew(segments, segment))
        segment.findings.index_rebuilt(index.path)
    index.is_checked = True


def _is_right(segments: SegmentList, number: int, log_end_offset: int) -> bool:
    segment = segments.items[number]
    entries = segment.transaction_index.entries()
    previous = segment.base_offset - 1
    for entry in entries:
        if not previous < entry.last_offset < segments.end_of(number, log_end_offset):
            return False
        if not 0 <= entry.first_offset <= entry.last_offset:
            return False
        if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
            return False
        if not _agrees_with_log(segments, segment, entry):
            return False
        previous = entry.last_offset
    return segment.transaction_index.is_whole


def _agrees_with_log(segments: SegmentList, segment: Segment, entry: Aborted) -> bool:
    marker = _batch_at(segment, entry.last_offset)
    if marker is not None and not _aborts(segment, marker, entry):
        return False
    for offset in (entry.first_offset, entry.last_stable_offset):
        if not segments.bases[0] <= offset <= entry.last_offset:
            continue  # its records are deleted; or everything is stable
        begin = _batch_at(segments.items[segments.number_at(offset)], offset)
        if begin is not None and not _begins(begin, offset, entry):
            return False
    return True


def _aborts(segment: Segment, marker: BatchHeader, entry: Aborted) -> bool:
    is_marker = marker.attributes & CONTROL and marker.base_offset == entry.last_offset
    if not is_marker or marker.producer_id != entry.producer_id:
        return False
    data = segment.read_batch(marker)
    try:
        return any(kind_of(record) == ControlKind.ABORT for record in walk(data, len(data)))
    except MalformedMessage:
        return False


def _begins(batch: BatchHeader, offset: int, entry: Aborted) -> bool:
    """Returns whether a transaction may begin with this batch, that of `entry` or an open one."""
    if batch.base_offset != offset or batch.attributes & CONTROL:
        return False
    if offset == entry.first_offset and batch.producer_id != entry.producer_id:
        return False
    return bool(batch.attributes & TRANSACTIONAL)


def _batch_at(segment: Segment, offset: int) -> BatchHeader | None:
    """The header of the batch that holds `offset`; None if compaction took it away."""
    found = segment.find(offset)
    if found is None:
        return None
    header = header_at(segment.open_file().read(HEADER_SIZE, found[0]), 0, found[0])
    return header if header.base_offset <= offset else None


class _Aborts(list[Aborted]):
    """Stands in for an index while a segment is read."""

    add = list.append


def _made_anew(segments: SegmentList, segment: Segment) -> list[Aborted]:
    """The aborted transactions according to the markers of a segment, with the producers as they
    were when it began."""
    disk = segment.transaction_index.disk
    producers = ProducerState(disk, segment.path.rpartition("/")[0])
    snapshot = producers.path(segment.base_offset)
    if not (disk.exists(snapshot) and producers.from_bytes(disk.read_file(snapshot))):
        replay_producers(segments.items, producers, 0, segment.base_offset)
    found = _Aborts()
    for batch in segment.headers():
        if batch.producer_id >= 0:
            replay_producer(producers, batch, segment.read_batch, found)
    return found
