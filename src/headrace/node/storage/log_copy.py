"""A log that is copied to another data folder, batch by batch, while it is used.

`step` copies some more batches, `is_whole` is True when the copy has everything. The log may grow,
lose its beginning, and be truncated in the meantime: then the copy starts again. It must not be
compacted while it is copied, or the copy could keep a record whose tombstone is gone before it was
copied.
"""

from __future__ import annotations

from headrace.node.storage.durability.folder_failures import raised_in
from headrace.node.storage.partition_log import PartitionLog
from headrace.node.storage.segments.batch_headers import whole_batches
from headrace.wire.protocol.errors import ErrorCode, KafkaError


class LogCopy:
    __slots__ = ("source", "copy", "beginnings", "_truncations")

    def __init__(self, source: PartitionLog, copy: PartitionLog) -> None:
        self.source = source
        self.copy = copy
        self.beginnings = 0  # how often the copy was restarted
        self._truncations = -1  # the copy may hold records of another time: it is restarted

    @property
    def lag(self) -> int:
        """Offsets that the copy lacks."""
        return max(self.source.end_offset - self.copy.end_offset, 0)

    @property
    def is_whole(self) -> bool:
        source, copy = self.source, self.copy
        return (
            self._truncations == source.unflushed.generation
            and copy.end_offset == source.end_offset
            and copy.start_offset == source.start_offset
        )

    def step(self, most_bytes: int, *, wall_ms: int) -> tuple[int, list[str]]:
        """Copy some more; returns how many bytes, and the files to remove after a while. OSError
        and KafkaError: one of the two logs cannot be read or written; an OSError names which."""
        with raised_in(self.copy.folder):
            removed = self._follow(wall_ms)
        source, copy = self.source, self.copy
        if copy.end_offset >= source.end_offset:
            return 0, removed
        with raised_in(source.folder):
            records = self._read(most_bytes)
        if records is not None:
            with raised_in(copy.folder):
                removed += self._append(records, wall_ms)
        return len(records or b""), removed

    def _read(self, most_bytes: int) -> memoryview | None:
        """None: nothing can be read just now."""
        source, offset = self.source, self.copy.end_offset
        piece = source.read(offset, most_bytes, up_to=source.end_offset, at_least_one=True)
        if piece is None:
            return None
        records = whole_batches(memoryview(piece.file.read(piece.length, piece.position)))
        if not len(records):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{source.folder}: no batch can be read at offset {offset}",
            )
        return records

    def _append(self, records: memoryview, wall_ms: int) -> list[str]:
        copy = self.copy
        removed = copy.writer.begin_with_batch(records, wall_ms=wall_ms)
        copy.writer.append_as_is(records, wall_ms=wall_ms)
        copy.write_pending()
        return removed

    def _follow(self, wall_ms: int) -> list[str]:
        """The log may begin elsewhere by now, or was cut back and may have other records."""
        source, copy = self.source, self.copy
        is_cut = self._truncations != source.unflushed.generation
        if is_cut or copy.end_offset < source.start_offset or copy.end_offset > source.end_offset:
            self._truncations = source.unflushed.generation
            self.beginnings += 1
            return copy.truncate_fully(source.start_offset, wall_ms=wall_ms)
        if copy.start_offset < source.start_offset:
            copy.delete_records_before(source.start_offset)
            return copy.apply_retention(wall_ms, high_watermark=copy.end_offset)
        return []
