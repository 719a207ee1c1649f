"""Reads a segment that may not be flushed: finds the good part, the damage, and the part to cut.

Only bytes at or above the recovery point may be cut: they were never flushed, and a log must not
have holes there. Damage below it is noted and kept. If no recovery point is known (its checkpoint
is lost), only the part after the last good batch is cut. A recovery reads 1 MiB at a time and costs
about a microsecond per batch plus its checksum; it is straight-line for that reason. It never
allocates by a length that it has not checked. After damage the search continues by `batch_scan.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from crc32c import crc32c

from headrace.environment import File
from headrace.node.storage.leader_epochs import LeaderEpochs
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.producer_state import ProducerState
from headrace.node.storage.recovery.damage import TO_THE_END, Damage, damage_of
from headrace.node.storage.segments.batch_headers import crc_of_large
from headrace.node.storage.segments.batch_scan import BatchScan
from headrace.node.storage.segments.offset_index import MAX_RELATIVE_OFFSET
from headrace.node.storage.segments.segment import Segment
from headrace.node.storage.segments.segment_scan import refuse_old_format, replay_producer
from headrace.wire.protocol.record_batch import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    header_at,
)

SCAN_CHUNK = 1 << 20


@dataclass(slots=True)
class SegmentRecovery:
    """The recovery of one segment; its batches are entered in `epochs` and `producers`."""

    segment: Segment
    settings: LogSettings
    epochs: LeaderEpochs
    producers: ProducerState
    recovery_point: int | None  # None: not known
    below: int | None  # where the next segment begins, if there is one
    cut_bytes: int = 0  # of this segment
    cut_reason: str = ""

    def run(self) -> int:
        """Rebuild the indexes; returns where the segment ends."""
        segment = self.segment
        segment.begin_anew(self.settings)
        segment.transaction_index.begin_anew()
        segment.damage = [damage for damage in segment.damage if not damage.size]
        file = segment.open_file()
        next_offset = self._take_good_batches(file)
        if segment.size < file.size:
            refuse_old_format(segment, file.read(SCAN_CHUNK, segment.size))
            next_offset = self._go_on_behind_damage(file, next_offset)
        segment.transaction_index.cut_to_entries()
        if segment.damage:
            segment.damage.sort(key=lambda damage: damage.position)
            segment.forget_recent()  # a reader of these would read on into the damage
        segment.unread_to = 0
        return next_offset

    def _take_good_batches(self, file: File) -> int:
        """Take the batches before the first that is not good; returns where they end."""
        segment, epochs, interval = self.segment, self.epochs, self.settings.index_interval_bytes
        end = file.size
        position, next_offset = 0, segment.base_offset
        highest_offset = segment.base_offset + MAX_RELATIVE_OFFSET
        look_ahead = BatchScan(file, next_offset=next_offset, below=self.below)
        chunk, start = memoryview(b""), 0
        while position + HEADER_SIZE <= end:
            at = position - start
            if at + HEADER_SIZE > len(chunk):
                chunk, start, at = memoryview(file.read(SCAN_CHUNK, position)), position, 0
            base, length, epoch, magic, crc, _, last_delta, _, max_timestamp, producer_id, *_ = (
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
            if base > next_offset:  # a hole: compaction leaves them, and a flipped bit looks so
                look_ahead.next_offset = next_offset
                if segment.gapless or look_ahead.leaps(header_at(chunk, at, position)):
                    break
            segment.add_batch(base, last_offset, max_timestamp, size, interval)
            if epoch > epochs.latest:
                epochs.assign(epoch, base)
            if producer_id >= 0:
                header = header_at(chunk, at, position)
                replay_producer(
                    self.producers, header, segment.read_batch, segment.transaction_index
                )
            position += size
            next_offset = last_offset + 1
        return next_offset

    def _go_on_behind_damage(self, file: File, next_offset: int) -> int:
        """Continue after damage that begins at the segment's `size`; returns where the segment
        ends."""
        segment = self.segment
        scan = BatchScan(
            file, next_offset=next_offset, below=self.below, contiguous=segment.gapless
        )
        for found in scan.batches(segment.size):
            if isinstance(found, BatchHeader):
                self._take(found)
                next_offset = found.last_offset + 1
                continue
            damage = damage_of(segment.base_offset, found)
            if self._may_be_cut(damage):
                self.cut_bytes, self.cut_reason = file.size - damage.position, damage.reason
                file.resize(damage.position)
                segment.size = damage.position
                return damage.first_offset
            segment.damage.append(damage)
            segment.size = damage.end
            next_offset = self._end_of(damage)
        return next_offset

    def _may_be_cut(self, damage: Damage) -> bool:
        if self.recovery_point is None:
            return damage.next_offset == TO_THE_END and self.below is None
        return damage.first_offset >= self.recovery_point

    def _end_of(self, damage: Damage) -> int:
        if damage.next_offset != TO_THE_END:
            return damage.next_offset
        if self.below is not None:
            return self.below
        assert self.recovery_point is not None, "else it would have been cut"
        # A wrong recovery point must not make the log leap: no batch has more records than bytes.
        return min(self.recovery_point, damage.first_offset + damage.size)

    def _take(self, batch: BatchHeader) -> None:
        segment = self.segment
        segment.add_batch(
            batch.base_offset,
            batch.last_offset,
            batch.max_timestamp,
            batch.size,
            self.settings.index_interval_bytes,
        )
        if batch.leader_epoch > self.epochs.latest:
            self.epochs.assign(batch.leader_epoch, batch.base_offset)
        if batch.producer_id >= 0:
            replay_producer(self.producers, batch, segment.read_batch, segment.transaction_index)
