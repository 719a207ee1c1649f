"""Closed segments as compaction reads them: batch by batch, forwards or backwards.

A batch is given as the bytes that hold it, its position in them, and the fields of its header.
Backwards a segment is read in chunks; the offset index has the positions where batches begin. Where
it has no entry for longer than a chunk (a large `index.interval.bytes`), headers are walked to fill
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crc32c import crc32c

from headrace.environment import File
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.segments.segment import Segment
from headrace.wire.protocol import compression
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.record_batch import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    BASE_OFFSET,
    COMPRESSION_MASK,
    CRC,
    FORMAT,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH,
    LENGTH_OVERHEAD,
    MAGIC,
    MAX_DECOMPRESSED,
    RECORD_COUNT,
    Fields,
)
from headrace.wire.protocol.record_batch.keys import Keys, keys_of_batch, offset_deltas

READ_CHUNK = 1 << 20
# Compaction runs in a process of its own: the node may rebuild the same indexes at the same time.
BESIDE_OF_CLEANER = ".cleaner.tmp"
Pace = Callable[[int], None]  # called with the bytes read or written; may wait, or raise to stop
Batch = tuple[bytes, int, Fields]


class ClosedSegments:
    __slots__ = ("folder", "open_files", "settings", "wall_ms", "pace")

    def __init__(
        self,
        open_files: OpenFiles,
        folder: str,
        settings: LogSettings,
        *,
        wall_ms: int,
        pace: Pace,
    ) -> None:
        self.open_files = open_files
        self.folder = folder
        self.settings = settings
        self.wall_ms = wall_ms
        self.pace = pace

    def load(self, base_offset: int) -> Segment:
        return Segment.load(
            self.open_files, self.folder, base_offset, self.settings, wall_ms=self.wall_ms
        )

    def batches(self, segment: Segment, position: int = 0) -> Iterator[Batch]:
        yield from self._between(segment, position, segment.size)
        segment.let_go()

    def chunks_backwards(
        self, segment: Segment, position: int, stop: int, chunk_size: int
    ) -> Iterator[list[Batch]]:
        """The batches that begin between two positions, in chunks of about this size: the last
        chunk first, in each the batches in order. A batch must begin at `position`."""
        segment.load_indexes(BESIDE_OF_CLEANER)
        starts: list[int] = []
        end = position
        while end < stop:
            starts.append(end)
            end = self._end_of_chunk(segment, end, stop, chunk_size)
        for start in reversed(starts):
            yield [*self._between(segment, start, end, end - start)]
            end = start
        segment.let_go()

    def _end_of_chunk(self, segment: Segment, start: int, stop: int, chunk_size: int) -> int:
        """Returns where a batch ends, preferably just before the chunk becomes too large."""
        if stop == segment.size and stop - start <= chunk_size:
            return stop
        _, known = segment.index.last_not_above(start + chunk_size, field=1)
        if known is not None and start < known[1] < stop:
            return int(known[1])
        end = start
        for _, _, fields in self._between(segment, start, stop, max(chunk_size, HEADER_SIZE)):
            end += fields[LENGTH] + LENGTH_OVERHEAD
            if end - start >= chunk_size:
                break
        return end

    def _between(
        self, segment: Segment, position: int, stop: int, chunk_size: int = READ_CHUNK
    ) -> Iterator[Batch]:
        file = segment.open_file()
        chunk, start = b"", position
        while position < stop:
            at = position - start
            if at + HEADER_SIZE > len(chunk):
                chunk, start, at = self._read(file, position, chunk_size), position, 0
                if len(chunk) < HEADER_SIZE:
                    raise MalformedMessage(f"{segment.path}: no batch at {position}")
            fields = HEADER.unpack_from(chunk, at)
            size = fields[LENGTH] + LENGTH_OVERHEAD
            if at + size > len(chunk) and position + size <= segment.size:
                chunk, start, at = self._read(file, position, max(chunk_size, size)), position, 0
            if fields[FORMAT] != MAGIC or size < HEADER_SIZE or at + size > len(chunk):
                raise MalformedMessage(f"{segment.path}: no batch at {position}")
            yield chunk, at, fields
            position += size

    def _read(self, file: File, position: int, length: int) -> bytes:
        chunk = file.read(length, position)
        self.pace(len(chunk))
        return chunk


def whole(chunk: bytes, at: int, fields: Fields) -> bytes:
    return chunk[at : at + fields[LENGTH] + LENGTH_OVERHEAD]


class UnreadableRecords(Exception):
    """A batch is as it was written, its checksum is right, but it holds no list of records."""


def keys_in(
    chunk: bytes, at: int, fields: Fields
) -> tuple[tuple[bytes, int, int], Keys, bool, list[int] | None]:
    """Returns where the records are (as `payload`), their keys, whether there are tombstones, and
    the offset deltas if there are gaps between them."""
    require_checksum(chunk, at, fields)
    count = fields[RECORD_COUNT]
    try:
        lie = data, start, end = payload(chunk, at, fields)
        keys, tombstones = keys_of_batch(data, start, end, count)
        deltas = None
        if has_gaps(fields):
            deltas = offset_deltas(data, start, count, fields[LAST_OFFSET_DELTA])
    except MalformedMessage as problem:
        raise UnreadableRecords(str(problem)) from problem
    return lie, keys, tombstones, deltas


def require_checksum(chunk: bytes, at: int, fields: Fields) -> None:
    end = at + fields[LENGTH] + LENGTH_OVERHEAD
    if crc32c(memoryview(chunk)[at + ATTRIBUTES_AT : end]) != fields[CRC]:
        raise MalformedMessage(f"the batch of offset {fields[BASE_OFFSET]} is damaged")


def payload(chunk: bytes, at: int, fields: Fields) -> tuple[bytes, int, int]:
    """Returns the uncompressed records of a batch: the bytes that hold them, their begin and their
    end. Does not check the checksum."""
    begin, end = at + HEADER_SIZE, at + fields[LENGTH] + LENGTH_OVERHEAD
    codec = fields[ATTRIBUTES] & COMPRESSION_MASK
    if not codec:
        return chunk, begin, end
    data = compression.decompress(codec, memoryview(chunk)[begin:end], MAX_DECOMPRESSED)
    return data, 0, len(data)


def has_gaps(fields: Fields) -> bool:
    return fields[LAST_OFFSET_DELTA] + 1 != fields[RECORD_COUNT]
