"""Reading a segment batch by batch, to learn of its producers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from zlib import crc32

from headrace.node.storage.producer_state import ProducerState
from headrace.node.storage.segments.segment import Segment
from headrace.node.storage.segments.transaction_index import Aborted
from headrace.wire.protocol.control_records import ControlKind, kind_of, read_end_txn_marker
from headrace.wire.protocol.record_batch import (
    CONTROL,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    MAGIC_AT,
    TRANSACTIONAL,
    BatchHeader,
    walk,
)

SCAN_CHUNK = 1 << 20
# Magic 0 and 1 carry a CRC-32 of what follows it at byte 12.
OLD_CRC_AT = 12


class Aborts(Protocol):
    """A receiver of aborted transactions; the index of a segment is one."""

    def add(self, aborted: Aborted, /) -> None: ...


class UnsupportedLog(Exception):
    """The log holds batches of a format that is not read here."""


def refuse_old_format(segment: Segment, data: bytes) -> None:
    """Raise if `data` begins with a whole message of magic 0 or 1; damaged bytes have no correct
    CRC."""
    size = int.from_bytes(data[LENGTH_AT:LENGTH_OVERHEAD], "big") + LENGTH_OVERHEAD
    if not MAGIC_AT < size <= len(data) or data[MAGIC_AT] not in (0, 1):
        return
    crc = int.from_bytes(data[OLD_CRC_AT:MAGIC_AT], "big")
    if crc32(data[MAGIC_AT:size]) == crc:
        raise UnsupportedLog(f"{segment.path} holds messages of a format before Apache Kafka 0.11")


def replay_producers(
    segments: list[Segment], producers: ProducerState, from_offset: int, to_offset: int
) -> None:
    """Update the producers' state with the batches between two offsets; their headers are
    trusted."""
    for number, segment in enumerate(segments):
        ends_before = number + 1 < len(segments) and segments[number + 1].base_offset <= from_offset
        if ends_before or segment.base_offset >= to_offset or from_offset >= to_offset:
            continue
        for batch in segment.headers_from(from_offset):
            if batch.base_offset >= to_offset:
                break
            if batch.producer_id >= 0:
                replay_producer(producers, batch, segment.read_batch)


def replay_producer(
    producers: ProducerState,
    batch: BatchHeader,
    read: Callable[[BatchHeader], memoryview],
    index: Aborts | None = None,
) -> None:
    """Update the producers' state with a batch that is in the log already, without checking the
    rules.

    `index` gets the transactions that are aborted here; None: it has them already.
    """
    if batch.attributes & CONTROL:
        replay_marker(producers, batch, read(batch), index)
        return
    producers.record(
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.last_offset - batch.base_offset + 1,
        batch.base_offset,
        batch.max_timestamp,
        bool(batch.attributes & TRANSACTIONAL),
    )


def replay_marker(
    producers: ProducerState, batch: BatchHeader, data: memoryview, index: Aborts | None
) -> None:
    """Record the end of a transaction; a control batch that compaction emptied has no information
    any more."""
    for record in walk(data, len(data)):
        if kind_of(record) not in (ControlKind.ABORT, ControlKind.COMMIT):
            continue
        committed, coordinator_epoch = read_end_txn_marker(record)
        first_offset = producers.record_marker(
            batch.producer_id,
            batch.producer_epoch,
            coordinator_epoch,
            batch.base_offset,
            batch.max_timestamp,
        )
        if index is not None and first_offset >= 0 and not committed:
            undecided = producers.first_undecided_offset()
            stable = batch.base_offset + 1 if undecided is None else undecided
            index.add(Aborted(batch.producer_id, first_offset, batch.base_offset, stable))
