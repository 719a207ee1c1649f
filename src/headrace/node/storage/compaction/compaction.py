"""Compaction of one log: closed segments in, segments with the last record of each key out.

Two passes. The first finds the last record of every key in the dirty part, as far as memory goes.
The second copies all segments up to there into `.cleaned` files, several small ones into one, and
leaves out records that a later one replaces, tombstones older than `delete.retention.ms`, and
records of aborted transactions. Offsets never change. As in Apache Kafka, the last batch of every
producer (for its sequence) and the last batch before the uncleanable part (for the offset) stay,
emptied if need be. Reads closed segments only and writes only `.cleaned` files, so it may run in
another process than the log's owner, which swaps them in (`PartitionLog.swap_in`). A batch with a
wrong checksum or of an older format stops it: nothing is made of damaged bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import and_, gt
from struct import Struct

from headrace.environment import Disk
from headrace.node.storage.compaction.cleaned_transactions import CleanedTransactions
from headrace.node.storage.compaction.closed_segments import (
    READ_CHUNK,
    ClosedSegments,
    Pace,
    UnreadableRecords,
    has_gaps,
    keys_in,
    payload,
    require_checksum,
    whole,
)
from headrace.node.storage.compaction.compaction_plan import Cleanable, Source, grouped
from headrace.node.storage.compaction.first_pass import FirstPass
from headrace.node.storage.compaction.last_of_keys import LastOfKeys
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.partition_log import PartitionLog
from headrace.node.storage.recovery.leftovers import CLEANED
from headrace.node.storage.segments.segment import Segment
from headrace.node.storage.segments.transaction_index import Aborted, TransactionIndex
from headrace.wire.protocol.control_records import kind_of
from headrace.wire.protocol.record_batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CONTROL,
    DELETE_HORIZON,
    LAST_OFFSET_DELTA,
    MAX_DECOMPRESSED,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL,
    Fields,
    walk,
)
from headrace.wire.protocol.record_batch.keys import values_of_batch
from headrace.wire.protocol.record_batch.retained import emptied, rebuilt, records_at

_read_timestamp = Struct(">q").unpack_from


@dataclass(slots=True)
class CleaningJob:
    """All that compaction must know of a log; plain values, so that it can be sent as JSON."""

    folder: str
    segments: list[int]  # base offsets of the closed segments before `first_uncleanable`
    later_segments: list[int]  # those after it: transactions that began before may end there
    first_dirty: int
    first_uncleanable: int
    wall_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    memory: int  # for the keys of one round
    # producer id, offset of its last record (-1: only a marker is known of it), epoch
    producers: list[tuple[int, int, int]] = field(default_factory=list)


def job_for(log: PartitionLog, cleanable: Cleanable, *, wall_ms: int, memory: int) -> CleaningJob:
    settings = log.settings
    bases = log.segments.bases
    return CleaningJob(
        folder=log.folder,
        segments=[base for base in bases if base < cleanable.first_uncleanable],
        later_segments=[base for base in bases if base >= cleanable.first_uncleanable],
        first_dirty=cleanable.first_dirty,
        first_uncleanable=cleanable.first_uncleanable,
        wall_ms=wall_ms,
        delete_retention_ms=settings.delete_retention_ms,
        segment_bytes=settings.segment_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        index_interval_bytes=settings.index_interval_bytes,
        memory=memory,
        producers=[
            (producer_id, producer.last_offset, producer.epoch)
            for producer_id, producer in log.producers.producers.items()
        ],
    )


@dataclass(slots=True)
class CleanedGroup:
    """These segments can be replaced by the `.cleaned` one named by the first of them."""

    sources: list[int]
    bytes_read: int
    bytes_written: int
    # Batches whose records cannot be read: how many, the offset of the first, and what is wrong.
    unreadable: int = 0
    first_unreadable: int = -1
    why_unreadable: str = ""


def clean(disk: Disk, job: CleaningJob, pace: Pace, cleaned: Callable[[CleanedGroup], None]) -> int:
    """Compact the log; `cleaned` is called with every group when its files are on the disk. Returns
    the offset up to which the log is clean when all groups are swapped in."""
    return Compaction(disk, job, pace).run(cleaned)


class Compaction:
    def __init__(self, disk: Disk, job: CleaningJob, pace: Pace) -> None:
        self._job = job
        self._pace = pace
        self._open_files = OpenFiles(disk)
        self._settings = LogSettings(
            segment_index_bytes=job.segment_index_bytes,
            index_interval_bytes=job.index_interval_bytes,
        )
        self._segments = ClosedSegments(
            self._open_files, job.folder, self._settings, wall_ms=job.wall_ms, pace=pace
        )
        self._last_offsets = {producer: last for producer, last, _ in job.producers}
        self._epochs = {producer: epoch for producer, _, epoch in job.producers}
        self._keys = LastOfKeys(0)
        self._unreadable: list[tuple[int, str]] = []  # of the group: base offset, what is wrong

    def run(self, cleaned: Callable[[CleanedGroup], None]) -> int:
        job = self._job
        aborted = self._read_aborted()
        first_pass = FirstPass(
            self._segments,
            job.segments,
            aborted,
            first_dirty=job.first_dirty,
            first_uncleanable=job.first_uncleanable,
            memory=job.memory,
        )
        self._keys = first_pass.run()
        next_offset = self._keys.latest_offset + 1
        bases = [base for base in job.segments if base < next_offset]
        transactions = CleanedTransactions(aborted, from_offset=bases[0] if bases else 0)
        for group in grouped(
            [self._source(base) for base in bases],
            segment_bytes=job.segment_bytes,
            index_bytes=job.segment_index_bytes,
            first_uncleanable=job.first_uncleanable,
        ):
            cleaned(self._clean_group(group, transactions))
        return next_offset

    # --- what is there

    def _source(self, base_offset: int) -> Source:
        segment = self._segments.load(base_offset)
        size = self._open_files.disk.size
        return Source(
            base_offset, segment.size, size(segment.index.path), size(segment.time_index.path)
        )

    def _read_aborted(self) -> list[Aborted]:
        """All that are known; read now, because indexes change when groups are swapped in."""
        found: list[Aborted] = []
        for base in (*self._job.segments, *self._job.later_segments):
            path = f"{self._job.folder}/{base:020d}.txnindex"
            found += TransactionIndex(self._open_files, path).entries()
        return found

    # --- second pass

    def _clean_group(self, group: list[Source], transactions: CleanedTransactions) -> CleanedGroup:
        output = Output(
            self._open_files, self._job.folder, group[0].base_offset, self._settings, self._pace
        )
        try:
            for source in group:
                segment = self._segments.load(source.base_offset)
                for chunk, at, fields in self._segments.batches(segment):
                    if fields[ATTRIBUTES] & (CONTROL | TRANSACTIONAL):
                        batch = self._left_of_transaction(chunk, at, fields, transactions, output)
                    else:
                        batch = self._left_of_records(chunk, at, fields)
                    if batch is None and self._must_stay(fields):
                        batch = emptied(fields)
                    if batch is not None:
                        output.add(fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA], batch)
            output.finish()
        finally:
            output.let_go()
        read = sum(source.size for source in group)
        unreadable, self._unreadable = self._unreadable, []
        return CleanedGroup(
            [source.base_offset for source in group],
            read,
            output.segment.size,
            len(unreadable),
            *(unreadable[0] if unreadable else ()),
        )

    def _kept_whole(self, chunk: bytes, at: int, fields: Fields, why: str) -> bytes:
        """Older versions let batches in whose records cannot be read. Nothing is known of their
        keys, so they stay as they are and replace nothing; the rest of the log is compacted."""
        self._unreadable.append((fields[BASE_OFFSET], why))
        return whole(chunk, at, fields)

    def _left_of_transaction(
        self,
        chunk: bytes,
        at: int,
        fields: Fields,
        transactions: CleanedTransactions,
        output: Output,
    ) -> bytes | None:
        """The part of a transactional batch or a marker to keep; None if all of it may be
        removed."""
        producer_id, last_offset = (
            fields[PRODUCER_ID],
            fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA],
        )
        if fields[ATTRIBUTES] & CONTROL:
            kind = kind_of_marker(chunk, at, fields)
            ends_nothing, entry = transactions.saw_marker(producer_id, last_offset, kind)
            if entry is not None:
                output.segment.transaction_index.add(entry)
            return self._left_of_marker(chunk, at, fields, ends_nothing)
        if transactions.saw_records(producer_id, last_offset):
            return None
        return self._left_of_records(chunk, at, fields)

    def _left_of_marker(
        self, chunk: bytes, at: int, fields: Fields, ends_nothing: bool
    ) -> bytes | None:
        """A marker without records stays as long as a tombstone does."""
        horizon = horizon_of(fields)
        if not ends_nothing or (horizon is not None and horizon > self._job.wall_ms):
            return whole(chunk, at, fields)
        if horizon is not None or not fields[RECORD_COUNT]:
            return None
        require_checksum(chunk, at, fields)
        data, pos, end = payload(chunk, at, fields)
        return rebuilt(
            fields, data, [(pos, end)], fields[RECORD_COUNT], new_horizon=self._new_horizon()
        )

    def _left_of_records(self, chunk: bytes, at: int, fields: Fields) -> bytes | None:
        keys, base, count = self._keys, fields[BASE_OFFSET], fields[RECORD_COUNT]
        if base > keys.latest_offset:
            return whole(chunk, at, fields)
        if base in keys.unreadable:
            return self._kept_whole(chunk, at, fields, keys.unreadable[base])
        is_clean = base + fields[LAST_OFFSET_DELTA] < self._job.first_dirty
        if is_clean or has_gaps(fields) or base in keys.with_tombstones:
            return self._left_of_walked(chunk, at, fields, is_clean=is_clean)
        staying = keys.staying(base, count)
        kept = staying.count(1)
        if not kept:
            return None
        if kept == count:
            return whole(chunk, at, fields)
        require_checksum(chunk, at, fields)
        data, pos, end = payload(chunk, at, fields)
        runs = records_at(data, pos, end, staying)
        return rebuilt(fields, data, runs, kept, new_horizon=None)

    def _left_of_walked(
        self, chunk: bytes, at: int, fields: Fields, *, is_clean: bool
    ) -> bytes | None:
        """Decide by the batch's records: the notes of the first pass are not enough."""
        try:
            (data, pos, end), names, tombstones, deltas = keys_in(chunk, at, fields)
        except UnreadableRecords as problem:
            return self._kept_whole(chunk, at, fields, str(problem))
        horizon, new_horizon = horizon_of(fields), None
        if is_clean:
            staying = self._keys.not_seen(names)
        else:
            flags = self._keys.staying(fields[BASE_OFFSET], fields[LAST_OFFSET_DELTA] + 1)
            staying = bytes([flags[delta] for delta in deltas or range(fields[RECORD_COUNT])])
        if tombstones:
            values = values_of_batch(data, pos, fields[RECORD_COUNT])
            if horizon is not None and horizon <= self._job.wall_ms:
                staying = bytes(map(and_, staying, values))
            elif horizon is None and any(map(gt, staying, values)):
                new_horizon = self._new_horizon()
        kept = staying.count(1)
        if kept == fields[RECORD_COUNT] and kept and new_horizon is None:
            return whole(chunk, at, fields)
        if not kept:
            return None
        runs = records_at(data, pos, end, staying)
        return rebuilt(fields, data, runs, kept, new_horizon=new_horizon)

    def _new_horizon(self) -> int:
        return self._job.wall_ms + self._job.delete_retention_ms

    def _must_stay(self, fields: Fields) -> bool:
        """Returns whether an emptied batch must stay: it marks the end of the log, the sequence of
        a producer or the epoch of its marker, which must be found again after a restart."""
        last_offset = fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA]
        if last_offset + 1 == self._job.first_uncleanable:
            return True
        producer_id = fields[PRODUCER_ID]
        if producer_id < 0:
            return False
        known = self._last_offsets.get(producer_id)
        if known is None or known >= 0:
            return known == last_offset
        is_marker = bool(fields[ATTRIBUTES] & CONTROL)
        return is_marker and self._epochs[producer_id] == fields[PRODUCER_EPOCH]


class Output:
    """The `.cleaned` files of one new segment."""

    __slots__ = ("segment", "_interval", "_pace", "_pieces", "_gathered")

    def __init__(
        self,
        open_files: OpenFiles,
        folder: str,
        base_offset: int,
        settings: LogSettings,
        pace: Pace,
    ) -> None:
        self._interval = settings.index_interval_bytes
        self._pace = pace
        self._pieces: list[bytes] = []
        self._gathered = 0
        self.segment = Segment(open_files, folder, base_offset, wall_ms=0, jitter_ms=0)
        add_suffix(self.segment, CLEANED)
        self.segment.transaction_index.clear()
        file = open_files.open(self.segment, create=True)
        file.resize(0)
        self.segment.create_indexes(settings)

    def add(self, last_offset: int, batch: bytes) -> None:
        segment = self.segment
        (max_timestamp,) = _read_timestamp(batch, MAX_TIMESTAMP_AT)
        # No reader asks this one for recent batches, so the base offset may be any in the batch.
        segment.add_batch(last_offset, last_offset, max_timestamp, len(batch), self._interval)
        self._pieces.append(batch)
        self._gathered += len(batch)
        if self._gathered >= READ_CHUNK:
            self._write()

    def _write(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces:
            self.segment.open_file().append_all(pieces)
            self._pace(self._gathered)
            self._gathered = 0

    def finish(self) -> None:
        """Flush all files to the disk before any other code depends on them."""
        self._write()
        self.segment.seal()
        for file in self.segment.all_files():
            file.flush()

    def let_go(self) -> None:
        self.segment.let_go()


def add_suffix(segment: Segment, suffix: str) -> None:
    """Add a suffix to the file names of a segment that is not open yet."""
    segment.path += suffix
    segment.index.path += suffix
    segment.time_index.path += suffix
    segment.transaction_index.path += suffix


def horizon_of(fields: Fields) -> int | None:
    """Returns the time from which on the tombstones of a batch, or its marker, may be removed."""
    return fields[BASE_TIMESTAMP] if fields[ATTRIBUTES] & DELETE_HORIZON else None


def kind_of_marker(chunk: bytes, at: int, fields: Fields) -> int | None:
    """The contents of a control batch; None if compaction has emptied it."""
    for record in walk(whole(chunk, at, fields), MAX_DECOMPRESSED):
        return kind_of(record)
    return None
