"""One partition's log: append and read.

Rules: a batch is opaque; the leader sets its base offset and epoch in the caller's own buffer, the
rest goes to the file as it came. Batches are gathered and written together: copies of small ones
once per turn of the loop, larger ones before the buffer that they lie in is used again, very large
ones at once (`write_pending`); until then they count as appended, and a read writes them first.
Not done: preallocated log files.
"""

from __future__ import annotations

from crc32c import crc32c

from headrace.environment import FileSlice
from headrace.protocol.control_records import end_txn_batch
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.record_batch import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
)
from headrace.storage import append_rules, time_search
from headrace.storage.append_rules import RecordsRefused
from headrace.storage.batch_headers import PREFIX, size_at
from headrace.storage.log_settings import LogSettings
from headrace.storage.offset_index import MAX_RELATIVE_OFFSET
from headrace.storage.segment import Segment
from headrace.storage.segment_scan import replay_producer
from headrace.storage.segmented_log import SegmentedLog
from headrace.storage.transaction_index import Aborted
from headrace.storage.unwritten import GATHER_BELOW

__all__ = ["GATHER_BELOW", "LogSettings", "PartitionLog"]

# Tail readers ask for the offset after a batch they just got: the last this many batches (up to
# twice as many) are found without a look into the index or the file. 16 KB for a busy partition.
RECENT_BATCHES = 64
# Any of the five compressions, transactional or not: nothing else to look at.
PLAIN_ATTRIBUTES = frozenset([*range(5), *range(TRANSACTIONAL, TRANSACTIONAL + 5)])

_unpack_header = HEADER.unpack_from
_pack_prefix = PREFIX.pack_into


class PartitionLog(SegmentedLog):
    __slots__ = ()

    # --- append

    def append(self, records: memoryview, *, leader_epoch: int, wall_ms: int) -> tuple[int, int]:
        """What a client's produce does: one batch, checked, at the end of the log.

        Answers its base offset and the log append time (-1 for CreateTime). A batch that is in the
        log already is answered with the offset and timestamp that it has there, as Apache does.
        `records` is changed in place, and may be looked at until `write_pending`.
        """
        settings = self.settings
        size = len(records)
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
        if crc32c(records[ATTRIBUTES_AT:]) != crc:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch fails its checksum")
        append_time = -1
        if (
            last_delta + 1 != count
            or last_delta < 0
            or attributes not in PLAIN_ATTRIBUTES
            or timestamp - wall_ms > settings.timestamp_after_max_ms
            or not settings.takes_batches_as_they_are
        ):
            records = append_rules.prepare(records, settings, wall_ms)
            length, timestamp = append_rules.length_and_timestamp(records)
            size = len(records)
            if settings.stamps_append_time:
                append_time = wall_ms
        producer = None
        if producer_id >= 0:
            producer = self.producers.producers.get(producer_id)
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
        base_offset = self.end_offset
        last_offset = base_offset + last_delta
        segment = self.active
        if (
            segment.size + size > settings.segment_bytes
            or timestamp - segment.ages_from > settings.segment_ms
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or segment.index_is_full
        ):
            segment = self._roll_if_due(size, timestamp, last_offset, wall_ms)
        if leader_epoch != self.epochs.latest:
            self._begin_epoch(leader_epoch, base_offset)
        position = segment.size
        _pack_prefix(records, 0, base_offset, length, leader_epoch)
        unwritten = self._unwritten
        if size < unwritten.gathers_below:
            if not segment.pending:
                unwritten.append(self)
            if size < unwritten.copies_below:
                segment.pending.append(records.tobytes())
            else:
                segment.pending.append(records)
                unwritten.borrowing.append(self)
        else:
            self._write_now(segment, records)
        if not position:
            segment.remember_first_batch(timestamp)
        if timestamp > segment.max_timestamp:
            segment.max_timestamp = timestamp
            segment.offset_of_max_timestamp = last_offset
        if segment.bytes_since_index > settings.index_interval_bytes:
            segment.add_index_entries(last_offset, position)
        segment.bytes_since_index += size
        segment.size = position + size
        self._recent[base_offset] = position
        if len(self._recent) > RECENT_BATCHES:
            self._older, self._recent = self._recent, {}
        self.end_offset = last_offset + 1
        if producer is not None:
            producer.goes_on(sequence, count, base_offset, timestamp)
        elif producer_id >= 0:
            self.producers.record(
                producer_id,
                producer_epoch,
                sequence,
                count,
                base_offset,
                timestamp,
                attributes & TRANSACTIONAL != 0,
            )
        if self.end_offset - self.recovery_point >= settings.flush_messages:
            self._flush_soon()
        return base_offset, append_time

    def _check_producer(
        self, producer_id: int, epoch: int, sequence: int, count: int, attributes: int
    ) -> tuple[int, int] | None:
        """Offset and timestamp of the same batch, if the log has it; refusals are raised."""
        if sequence < 0:
            raise RecordsRefused(
                ErrorCode.INVALID_RECORD, f"a batch of producer {producer_id} without a sequence"
            )
        duplicate = self.producers.check(producer_id, epoch, sequence, count)
        if duplicate is not None:
            return duplicate[2], duplicate[4]
        self.producers.check_transaction(producer_id, attributes & TRANSACTIONAL != 0)
        return None

    def _begin_epoch(self, leader_epoch: int, base_offset: int) -> None:
        try:
            self.epochs.assign(leader_epoch, base_offset)
        except OSError as problem:
            raise self._refused(problem) from problem

    def append_as_is(self, records: memoryview, *, wall_ms: int) -> int:
        """Batches that carry offsets and epochs already: from a leader, a quorum, a coordinator.

        One or more whole batches with right checksums whose offsets go on where the log ends (there
        may be gaps: compaction leaves them). Nothing is appended if one of them is wrong. Answers
        the new end offset.
        """
        if len(records) < self._unwritten.copies_below and self._append_one_as_is(records):
            return self.end_offset
        batches = append_rules.batches_that_continue(records, self.end_offset)

        def in_buffer(batch: BatchHeader) -> memoryview:
            return records[batch.position : batch.position + batch.size]

        try:
            written_to = 0
            for batch in batches:
                segment = self.active
                if segment.should_roll(
                    self.settings,
                    size=batch.size,
                    timestamp=batch.max_timestamp,
                    last_offset=batch.last_offset,
                    wall_ms=wall_ms,
                ):
                    self._write_run(records[written_to : batch.position])
                    written_to = batch.position
                    self.end_offset = batch.base_offset
                    segment = self._roll_if_due(
                        batch.size, batch.max_timestamp, batch.last_offset, wall_ms
                    )
                self._note_batch(segment, batch)
                if batch.producer_id >= 0:
                    replay_producer(self.producers, batch, in_buffer, segment.transaction_index)
            self._write_run(records[written_to:])
        except OSError as problem:
            if written_to or not self._take_back([records]):
                self._reload_after(problem)
            raise self._refused(problem) from problem
        if self.end_offset - self.recovery_point >= self.settings.flush_messages:
            self._flush_soon()
        return self.end_offset

    def _append_one_as_is(self, records: memoryview) -> bool:
        """The usual case in a third of the time: one small batch of no producer that goes on just
        where the log ends. False, and nothing has changed: look closer."""
        size = len(records)
        if size < HEADER_SIZE:
            return False
        (
            base_offset, length, epoch, magic, crc, _, last_delta, _, timestamp, producer_id, *_,
        ) = _unpack_header(records)  # fmt: skip
        segment, settings = self.active, self.settings
        last_offset = base_offset + last_delta
        if (
            length + LENGTH_OVERHEAD != size
            or magic != MAGIC
            or base_offset != self.end_offset
            or last_delta < 0
            or producer_id >= 0
            or epoch != self.epochs.latest
            or not segment.size
            or segment.size + size > settings.segment_bytes
            or timestamp - segment.ages_from > settings.segment_ms
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or segment.index_is_full
            or segment.bytes_since_index > settings.index_interval_bytes
            or last_offset + 1 - self.recovery_point >= settings.flush_messages
            or crc32c(records[ATTRIBUTES_AT:]) != crc
        ):
            return False
        if not segment.pending:
            self._unwritten.append(self)
        segment.pending.append(records.tobytes())
        if timestamp > segment.max_timestamp:
            segment.max_timestamp = timestamp
            segment.offset_of_max_timestamp = last_offset
        self._recent[base_offset] = segment.size
        if len(self._recent) > RECENT_BATCHES:
            self._older, self._recent = self._recent, {}
        segment.bytes_since_index += size
        segment.size += size
        self.end_offset = last_offset + 1
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
        """End a producer's transaction in this log; answers the new end offset.

        A marker is written also where no transaction is open: its epoch fences what comes late.
        """
        self.producers.check_marker(
            producer_id, producer_epoch, coordinator_epoch, bumps_epoch=bumps_epoch
        )
        marker = end_txn_batch(
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=wall_ms,
            base_offset=self.end_offset,
            leader_epoch=leader_epoch,
        )
        return self.append_as_is(memoryview(marker), wall_ms=wall_ms)

    def _note_batch(self, segment: Segment, batch: BatchHeader) -> None:
        """Count a batch that is about to be written at the end of the active segment."""
        position = segment.size
        if batch.leader_epoch > self.epochs.latest:
            self.epochs.assign(batch.leader_epoch, batch.base_offset)
        if not position:
            segment.remember_first_batch(batch.max_timestamp)
        if batch.max_timestamp > segment.max_timestamp:
            segment.max_timestamp = batch.max_timestamp
            segment.offset_of_max_timestamp = batch.last_offset
        if segment.bytes_since_index > self.settings.index_interval_bytes:
            segment.add_index_entries(batch.last_offset, position)
        segment.bytes_since_index += batch.size
        segment.size = position + batch.size
        self._recent[batch.base_offset] = position
        if len(self._recent) > RECENT_BATCHES:
            self._older, self._recent = self._recent, {}
        self.end_offset = batch.last_offset + 1

    # --- the way to the file

    def _write_now(self, segment: Segment, records: memoryview) -> None:
        """A batch too large to be gathered; an error leaves the log as it was before."""
        if segment.pending:
            self.write_pending()
        try:
            segment.open_file().append(records)
        except OSError as problem:
            raise self._refused(problem) from problem

    def _write_run(self, records: memoryview) -> None:
        """Batches that are counted already."""
        segment = self.active
        if 0 < len(records) < self._unwritten.copies_below:
            if not segment.pending:
                self._unwritten.append(self)
            segment.pending.append(records.tobytes())
        elif len(records):
            self.write_pending()
            segment.open_file().append(records)

    def _roll_if_due(self, size: int, timestamp: int, last_offset: int, wall_ms: int) -> Segment:
        """The segment that takes these bytes: append saw a reason to look closer."""
        if self.lost_pending:
            raise self._storage_error(OSError(0, self._unwritten.refusal))
        if self._must_reload:
            self._reload_after(OSError(0, "not readable since a write failed"))
        if size > self.settings.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes, but a segment has at most {self.settings.segment_bytes}",
            )
        if self.active.should_roll(
            self.settings, size=size, timestamp=timestamp, last_offset=last_offset, wall_ms=wall_ms
        ):
            self.roll(wall_ms=wall_ms)
        return self.active

    # --- read

    def read(
        self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool
    ) -> FileSlice | None:
        """The bytes from the batch that holds `offset` on, all of batches that end before `up_to`.

        None: nothing there yet (or only part of a batch fits and `at_least_one` is not asked for).
        The last batch may be cut in the middle by `max_bytes`; clients expect that.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.start_offset} to {self.end_offset}",
            )
        if offset >= up_to:
            return None
        if self.active.pending:
            up_to = self._write_for_reader(up_to)
            if offset >= up_to:
                return None
        segment = self.active
        position = self._recent.get(offset)
        try:
            if position is None:
                position = self._older.get(offset)
                if position is None:
                    return self._read_by_index(offset, max_bytes, up_to, at_least_one)
            end = segment.size if up_to >= self.end_offset else self._position_in_active(up_to)
            length = end - position
            file = segment.file or segment.open_file()
            if length > max_bytes:
                size = size_at(file, position)
                length = max_bytes if size <= max_bytes else size if at_least_one else 0
        except OSError as problem:
            raise self._storage_error(problem) from problem
        return FileSlice(file, position, length) if length > 0 else None

    def _write_for_reader(self, up_to: int) -> int:
        """Up to where there is something to read: what is refused is not the reader's loss."""
        try:
            self.write_pending()
        except KafkaError:
            if self._must_reload:
                raise
        return min(up_to, self.end_offset)

    def _position_in_active(self, offset: int) -> int:
        """Where the batch that holds `offset` begins in the active segment."""
        position = self._recent.get(offset)
        if position is None:
            position = self._older.get(offset)
        if position is None:
            found = self.active.find(offset)
            position = self.active.size if found is None else found[0]
        return position

    def _read_by_index(
        self, offset: int, max_bytes: int, up_to: int, at_least_one: bool
    ) -> FileSlice | None:
        """Further back than the recent batches, or in the middle of one."""
        found = self.segments.find(offset)
        if found is None:
            return None
        number, position, size = found
        segment = self.segments.items[number]
        end = segment.size
        if up_to < self.segments.end_of(number, self.end_offset):
            limit = segment.find(up_to)
            end = end if limit is None else limit[0]
        length = end - position
        if length > max_bytes:
            length = max_bytes if size <= max_bytes else size if at_least_one else 0
        return FileSlice(segment.open_file(), position, length) if length > 0 else None

    def aborted_transactions(
        self, offset: int, records: FileSlice, up_to: int
    ) -> list[tuple[int, int]]:
        """Producer id and first offset of each aborted transaction that `records` may hold parts
        of; `records` is what `read` gave for `offset`."""
        segments = self.segments
        first = number = segments.number_at(offset)
        while segments.items[number].file is not records.file and number + 1 < len(segments):
            number += 1  # compaction left nothing between `offset` and the end of a segment
        holder = segments.items[number]
        holder.load_indexes()
        end = holder.index.offset_from(records.position + records.length)
        if end is None:
            end = segments.end_of(number, self.end_offset)
        found: list[Aborted] = []
        for segment in segments.items[first:]:
            if segment.transaction_index.collect(offset, min(end, up_to), found):
                break
        return [(aborted.producer_id, aborted.first_offset) for aborted in found]

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """Timestamp, offset and epoch of the first record not older than that; None: all are."""
        self.write_pending()
        return time_search.first_not_before(self.segments.items, timestamp_ms, self.start_offset)

    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None:
        """Timestamp, offset and epoch of the youngest record; None if no record has a timestamp."""
        self.write_pending()
        return time_search.youngest(self.segments.items)

    def offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and where it ended; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.end_offset)
