"""Reading a segment batch by batch: to recover it, and to learn of its producers.

A recovery reads 1 MiB at a time and costs about a microsecond per batch plus its checksum; it is
straight-line for that reason. It never allocates by a length that it has not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from crc32c import crc32c

from headrace.environment import File
from headrace.protocol.control_records import ControlKind, kind_of, read_end_txn_marker
from headrace.protocol.record_batch import (
    ATTRIBUTES_AT,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    BatchHeader,
    header_at,
    walk,
)
from headrace.storage.leader_epochs import LeaderEpochs
from headrace.storage.log_settings import LogSettings
from headrace.storage.offset_index import MAX_RELATIVE_OFFSET
from headrace.storage.producer_state import ProducerState
from headrace.storage.segment import Segment
from headrace.storage.transaction_index import Aborted, TransactionIndex

SCAN_CHUNK = 1 << 20
# Magic 0 and 1 carry a CRC-32 of what follows it at byte 12.
OLD_CRC_AT = 12


class UnsupportedLog(Exception):
    """The log holds batches of a format that is not read here."""


def recover_segment(
    segment: Segment, settings: LogSettings, epochs: LeaderEpochs, producers: ProducerState
) -> int:
    """Cut the segment before its first bad batch, make its indexes anew; answers where it ends."""
    segment.begin_anew(settings)
    segment.transaction_index.begin_anew()
    file = segment.open_file()
    end = file.size
    position, next_offset = 0, segment.base_offset
    highest_offset = segment.base_offset + MAX_RELATIVE_OFFSET
    chunk, start = memoryview(b""), 0
    while position + HEADER_SIZE <= end:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = memoryview(file.read(SCAN_CHUNK, position)), position, 0
        base, length, epoch, magic, crc, _, last_delta, _, max_timestamp, producer_id, _, _, _ = (
            HEADER.unpack_from(chunk, at)
        )
        size = length + LENGTH_OVERHEAD
        last_offset = base + last_delta
        if magic != MAGIC or size < HEADER_SIZE or position + size > end:
            break
        if base < next_offset or last_delta < 0 or last_offset > highest_offset:
            break
        if at + size > len(chunk) and size <= SCAN_CHUNK:
            chunk, start, at = memoryview(file.read(SCAN_CHUNK, position)), position, 0
        if at + size <= len(chunk):
            if crc32c(chunk[at + ATTRIBUTES_AT : at + size]) != crc:
                break
        elif crc_of_large(file, position + ATTRIBUTES_AT, position + size) != crc:
            break
        segment.add_batch(base, last_offset, max_timestamp, size, settings.index_interval_bytes)
        if epoch > epochs.latest:
            epochs.assign(epoch, base)
        if producer_id >= 0:
            header = header_at(chunk, at, position)
            replay_producer(producers, header, segment.read_batch, segment.transaction_index)
        position += size
        next_offset = last_offset + 1
    if position < end:
        refuse_old_format(segment, file.read(SCAN_CHUNK, position))
        file.resize(position)
    segment.transaction_index.cut_to_entries()
    return next_offset


def crc_of_large(file: File, position: int, end: int) -> int:
    crc = 0
    while position < end:
        data = file.read(min(SCAN_CHUNK, end - position), position)
        crc = crc32c(data, crc)
        position += len(data)
    return crc


def refuse_old_format(segment: Segment, data: bytes) -> None:
    """Raise if a whole message of magic 0 or 1 stands here; damage alone has no right CRC."""
    size = int.from_bytes(data[LENGTH_AT:LENGTH_OVERHEAD], "big") + LENGTH_OVERHEAD
    if not MAGIC_AT < size <= len(data) or data[MAGIC_AT] not in (0, 1):
        return
    crc = int.from_bytes(data[OLD_CRC_AT:MAGIC_AT], "big")
    if crc32(data[MAGIC_AT:size]) == crc:
        raise UnsupportedLog(f"{segment.path} holds messages of a format before Apache Kafka 0.11")


def replay_producers(
    segments: list[Segment], producers: ProducerState, from_offset: int, to_offset: int
) -> None:
    """Tell the producers' state what the batches between two offsets did; headers are believed."""
    for number, segment in enumerate(segments):
        ends_before = number + 1 < len(segments) and segments[number + 1].base_offset <= from_offset
        if ends_before or segment.base_offset >= to_offset or from_offset >= to_offset:
            continue
        found = segment.find(from_offset)
        if found is None:
            continue
        for batch in segment.headers(found[0]):
            if batch.base_offset >= to_offset:
                break
            if batch.producer_id >= 0:
                replay_producer(producers, batch, segment.read_batch)


def replay_producer(
    producers: ProducerState,
    batch: BatchHeader,
    read: Callable[[BatchHeader], memoryview],
    index: TransactionIndex | None = None,
) -> None:
    """One batch that is in the log already: it is believed, whatever the rules say.

    `index` is told of transactions that are aborted here; None: it knows them already.
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
    producers: ProducerState, batch: BatchHeader, data: memoryview, index: TransactionIndex | None
) -> None:
    """The end of a transaction; a control batch that compaction emptied says nothing any more."""
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
