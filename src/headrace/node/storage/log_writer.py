"""Appends batches to the end of a partition's log.

Rules: a batch is opaque; the leader sets its base offset and epoch in the caller's own buffer, the
rest goes to the file unchanged. Batches are gathered and written together: copies of small ones
once per turn of the loop, larger ones before their receive buffer is used again, very large ones at
once (`PartitionLog.write_pending`). Until then they count as appended, and a read writes them
first. A leader writes by `append` and `append_marker`; a follower, the quorum and the coordinators
by `append_as_is`. Not done: preallocated log files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c

from headrace.node.storage import append_rules
from headrace.node.storage.append_rules import RecordsRefused
from headrace.node.storage.compaction.compaction_gaps import Gap
from headrace.node.storage.segments.batch_headers import PREFIX
from headrace.node.storage.segments.offset_index import MAX_RELATIVE_OFFSET
from headrace.node.storage.segments.segment import Segment
from headrace.node.storage.segments.segment_scan import replay_producer
from headrace.wire.protocol.control_records import end_txn_batch
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.record_batch import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    SMALLEST_RECORD,
    TRANSACTIONAL,
    BatchHeader,
    header_at,
)
from headrace.wire.protocol.record_batch.bounds import count_fits

if TYPE_CHECKING:
    from headrace.node.storage.partition_log import PartitionLog


# Any of the five compression types, transactional or not. Other attributes need `append_rules`.
PLAIN_ATTRIBUTES = frozenset([*range(5), *range(TRANSACTIONAL, TRANSACTIONAL + 5)])

_unpack_header = HEADER.unpack_from
_pack_prefix = PREFIX.pack_into


class LogWriter:
    """Writes to one log, which owns it. It has no state of its own."""

    __slots__ = ("log",)

    def __init__(self, log: PartitionLog) -> None:
        self.log = log

    def append(self, records: memoryview, *, leader_epoch: int, wall_ms: int) -> tuple[int, int]:
        """Check one batch of a client's Produce request and append it.

        Returns its base offset and the log append time (-1 for CreateTime). For a duplicate it
        returns the offset and timestamp of the batch in the log, as Apache Kafka does. `records` is
        changed in place, and must stay valid until `write_pending`.
        """
        log = self.log
        settings = log.settings
        size = len(records)
        # The header is read once, with one unpack. Every condition below compares these numbers; a
        # condition that holds only means "look closer", and the slower function it leads to
        # decides. So the common batch passes by comparisons alone, and an unusual one gets the same
        # answer as if all functions were called for every batch.
        if size <= HEADER_SIZE:
            records = append_rules.only_batch(records)
        (
            given_base, length, _, magic, crc, attributes, last_delta, _, timestamp,
            producer_id, producer_epoch, sequence, count,
        ) = _unpack_header(records)  # fmt: skip
        if length + LENGTH_OVERHEAD != size or magic != MAGIC or given_base:
            records = append_rules.only_batch(records)
            size = len(records)
        if size > settings.max_message_bytes:
            raise append_rules.too_large(size, settings.max_message_bytes)
        # The checksum covers everything from the attributes on. Base offset and leader epoch come
        # before them, so the leader sets both below without computing a checksum again. This is why
        # a batch stays opaque from the socket to the file.
        if crc32c(records[ATTRIBUTES_AT:]) != crc:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch fails its checksum")
        append_time = -1
        if (
            last_delta + 1 != count
            or last_delta < 0
            or attributes not in PLAIN_ATTRIBUTES
            or timestamp - wall_ms > settings.timestamp_after_max_ms
            or not settings.takes_batches_as_they_are
            # More records than fit uncompressed: either good compression or a wrong count.
            or (
                count * SMALLEST_RECORD > size - HEADER_SIZE
                and not count_fits(
                    count, size - HEADER_SIZE, compressed=attributes & COMPRESSION_MASK != 0
                )
            )
        ):
            records = append_rules.prepare(records, settings, wall_ms)
            length, timestamp = append_rules.length_and_timestamp(records)
            size = len(records)
            if settings.stamps_append_time:
                append_time = wall_ms
        producer = None
        if producer_id >= 0:
            # The usual batch of an idempotent producer: same epoch, the expected sequence, no
            # transaction. For it `ProducerState.check` and `check_transaction` would pass, and
            # `goes_on` does what `record` would do. tests/unit/node/storage/test_idempotence.py
            # holds the rules for both.
            producer = log.producers.producers.get(producer_id)
            if (
                producer is None
                or sequence != producer.next_sequence
                or producer_epoch != producer.epoch
                or attributes & TRANSACTIONAL
                or producer.transaction_first_offset >= 0
            ):
                duplicate = self._check_producer(
                    producer_id, producer_epoch, sequence, count, attributes
                )
                if duplicate is not None:
                    return duplicate
                producer = None
        # From here on only the disk can refuse the batch. The log has no gap at its end: a batch
        # begins where the one before ended.
        base_offset = log.end_offset
        last_offset = base_offset + last_delta
        segment = log.active
        # The same four reasons to roll as in `Segment.should_roll`. The age of an empty segment is
        # never reached, because its `ages_from` is NEVER.
        if (
            segment.size + size > settings.segment_bytes
            or timestamp - segment.ages_from > settings.segment_ms
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or segment.index_is_full
            or log.disk_failed
        ):
            segment = self._roll_if_due(size, timestamp, last_offset, wall_ms)
        if leader_epoch != log.epochs.latest:
            self._begin_epoch(leader_epoch, base_offset)
        _pack_prefix(records, 0, base_offset, length, leader_epoch)
        unwritten = log.unwritten
        # Three ways to the file, by size (`unwritten.py` has the measured limits): copy and write
        # at the end of the turn; keep the caller's buffer and write before it is used again; write
        # now. In every case the write comes before the reply (decision 1).
        if size < unwritten.gathers_below:
            if not segment.pending:
                unwritten.append(log)
            if size < unwritten.copies_below:
                segment.pending.append(records.tobytes())
            else:
                segment.pending.append(records)
                unwritten.borrowing.append(log)
        else:
            self._write_now(segment, records)
        # Count the batch only now: `_write_now` may raise, and then the batch is counted nowhere.
        segment.add_batch(base_offset, last_offset, timestamp, size, settings.index_interval_bytes)
        log.end_offset = last_offset + 1
        if producer is not None:
            producer.goes_on(sequence, count, base_offset, timestamp)
        elif producer_id >= 0:
            log.producers.record(
                producer_id,
                producer_epoch,
                sequence,
                count,
                base_offset,
                timestamp,
                attributes & TRANSACTIONAL != 0,
            )
        if last_offset + 1 - log.recovery_point >= settings.flush_messages:
            log.flush_soon()
        return base_offset, append_time

    def _check_producer(
        self, producer_id: int, epoch: int, sequence: int, count: int, attributes: int
    ) -> tuple[int, int] | None:
        """Offset and timestamp of the duplicate, if the log has one; refusals are raised."""
        if sequence < 0:
            raise RecordsRefused(
                ErrorCode.INVALID_RECORD, f"a batch of producer {producer_id} without a sequence"
            )
        duplicate = self.log.producers.check(producer_id, epoch, sequence, count)
        if duplicate is not None:
            return duplicate[2], duplicate[4]
        self.log.producers.check_transaction(producer_id, attributes & TRANSACTIONAL != 0)
        return None

    def _begin_epoch(self, leader_epoch: int, base_offset: int) -> None:
        try:
            self.log.epochs.assign(leader_epoch, base_offset)
        except OSError as problem:
            raise self.log.refused(problem) from problem

    def append_as_is(self, records: memoryview, *, wall_ms: int) -> int:
        """Batches that carry offsets and epochs already: from a leader, a quorum, a coordinator.

        `records` is one or more whole batches with right checksums whose offsets continue the log
        (there may be gaps: compaction leaves them). Nothing is appended if one of them is wrong.
        Returns the new end offset.
        """
        log = self.log
        if len(records) < log.unwritten.copies_below and self._append_one_as_is(records):
            return log.end_offset
        batches = append_rules.batches_that_continue(records, log.end_offset)
        written_to = 0
        try:
            if log.segments.gaps.gapless and has_gaps(batches, log.end_offset):
                self._note_gaps([])  # the leader's log was compacted
            for batch in batches:
                segment, settings = log.active, log.settings
                if log.disk_failed or segment.should_roll(
                    settings,
                    size=batch.size,
                    timestamp=batch.max_timestamp,
                    last_offset=batch.last_offset,
                    wall_ms=wall_ms,
                ):
                    self._write_run(records[written_to : batch.position])
                    written_to = batch.position
                    # A segment begins where the one before it ends, also before a gap. It cannot
                    # begin so far before its first batch that no index entry could name it.
                    if batch.last_offset - log.end_offset > MAX_RELATIVE_OFFSET:
                        self._note_gaps([(log.end_offset, batch.base_offset)])
                        log.end_offset = batch.base_offset
                    segment = self._roll_if_due(
                        batch.size, batch.max_timestamp, batch.last_offset, wall_ms
                    )
                self._take_counted(segment, batch, records)
            self._write_run(records[written_to:])
        except OSError as problem:
            if written_to or not log.take_back([records]):
                log.reload_after(problem)
            raise log.refused(problem) from problem
        if log.end_offset - log.recovery_point >= log.settings.flush_messages:
            log.flush_soon()
        return log.end_offset

    def begin_with_batch(self, records: memoryview, *, wall_ms: int) -> list[str]:
        """Let an empty log whose offset is inside the first batch of `records` begin with that
        batch; returns the files to delete later. All other logs stay as they are.

        DeleteRecords moves the start of a log into the middle of a batch, and a copy of that log
        can only be filled with whole batches. The caller appends `records`, then moves the start.
        """
        log, batch = self.log, header_at(records, 0, 0)
        if not batch.base_offset < log.end_offset <= batch.last_offset or log.size_bytes:
            return []
        return log.truncate_fully(batch.base_offset, wall_ms=wall_ms)

    def _note_gaps(self, gaps: list[Gap]) -> None:
        if self.log.segments.note_gaps(gaps):
            self.log.unflushed.names_are_new()

    def _take_counted(self, segment: Segment, batch: BatchHeader, records: memoryview) -> None:
        """Count a batch of `records` that is about to be written to the active segment."""
        log = self.log
        assert batch.base_offset >= log.end_offset, "an offset is given once"
        if batch.leader_epoch > log.epochs.latest:
            log.epochs.assign(batch.leader_epoch, batch.base_offset)
        segment.add_batch(
            batch.base_offset,
            batch.last_offset,
            batch.max_timestamp,
            batch.size,
            log.settings.index_interval_bytes,
        )
        log.end_offset = batch.last_offset + 1
        if batch.producer_id >= 0:
            replay_producer(
                log.producers,
                batch,
                lambda found: records[found.position : found.position + found.size],
                segment.transaction_index,
            )

    def _append_one_as_is(self, records: memoryview) -> bool:
        """The usual case in a third of the time: one small batch without a producer id whose base
        offset is the log end offset. False, and nothing has changed: take the general path."""
        size = len(records)
        if size < HEADER_SIZE:
            return False
        (
            base_offset, length, epoch, magic, crc, _, last_delta, _, timestamp, producer_id, *_,
        ) = _unpack_header(records)  # fmt: skip
        log = self.log
        segment, settings = log.active, log.settings
        last_offset = base_offset + last_delta
        # Each condition below is one that the general path handles: a producer's state, a new
        # leader epoch, a roll, a flush, a gap, an error. If none holds, the general path would
        # do exactly what follows. tests/unit/node/storage/test_log_against_a_list.py appends both
        # ways in random order.
        if (
            length + LENGTH_OVERHEAD != size
            or magic != MAGIC
            or base_offset != log.end_offset
            or last_delta < 0
            or producer_id >= 0
            or epoch != log.epochs.latest
            or not segment.size
            or segment.size + size > settings.segment_bytes
            or timestamp - segment.ages_from > settings.segment_ms
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or segment.index_is_full
            or log.disk_failed
            or last_offset + 1 - log.recovery_point >= settings.flush_messages
            or crc32c(records[ATTRIBUTES_AT:]) != crc
        ):
            return False
        if not segment.pending:
            log.unwritten.append(log)
        segment.pending.append(records.tobytes())
        segment.add_batch(base_offset, last_offset, timestamp, size, settings.index_interval_bytes)
        log.end_offset = last_offset + 1
        return True

    def append_marker(
        self,
        *,
        commit: bool,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        leader_epoch: int,
        wall_ms: int,
        bumps_epoch: bool = False,
    ) -> int:
        """End a producer's transaction in this log; returns the new end offset.

        A marker is written also where no transaction is open: its epoch fences late batches.
        """
        self.log.producers.check_marker(
            producer_id, producer_epoch, coordinator_epoch, bumps_epoch=bumps_epoch
        )
        marker = end_txn_batch(
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=wall_ms,
            base_offset=self.log.end_offset,
            leader_epoch=leader_epoch,
        )
        return self.append_as_is(memoryview(marker), wall_ms=wall_ms)

    # --- the way to the file

    def _write_now(self, segment: Segment, records: memoryview) -> None:
        """Write a batch that is too large to be gathered; an error leaves the log unchanged."""
        if segment.pending:
            self.log.write_pending()
        try:
            segment.open_file().append(records)
        except OSError as problem:
            raise self.log.refused(problem) from problem

    def _write_run(self, records: memoryview) -> None:
        """Batches that are counted already."""
        log = self.log
        segment = log.active
        if 0 < len(records) < log.unwritten.copies_below:
            if not segment.pending:
                log.unwritten.append(log)
            segment.pending.append(records.tobytes())
        elif len(records):
            log.write_pending()
            segment.open_file().append(records)

    def _roll_if_due(self, size: int, timestamp: int, last_offset: int, wall_ms: int) -> Segment:
        """The segment for these bytes; rolls, or raises, if `append` saw a real reason."""
        log = self.log
        if log.disk_failed:
            log.require_disk()
        if size > log.settings.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes, but a segment has at most {log.settings.segment_bytes}",
            )
        if log.active.should_roll(
            log.settings, size=size, timestamp=timestamp, last_offset=last_offset, wall_ms=wall_ms
        ):
            log.roll(wall_ms=wall_ms)
        return log.active


def has_gaps(batches: list[BatchHeader], next_offset: int) -> bool:
    """Returns whether these batches leave out offsets."""
    for batch in batches:
        if batch.base_offset != next_offset:
            return True
        next_offset = batch.last_offset + 1
    return False
