"""Walks the headers of batches and checks that each one continues the batch before it.

The base offset of a batch is outside its checksum, so a wrong one is found only by its neighbours:
offsets ascend, and in a log that was never compacted every batch begins where the one before it
ended. Reads headers only, so it costs little beside a checksum; it finds no damage in the records.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.environment import File
from headrace.node.storage.segments.batch_search import SEARCH_CHUNK, SEARCHED, SEARCHED_SIZE
from headrace.wire.protocol.record_batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC

# One read checks the offsets of batches in at most this many bytes (at most 5 ms); a longer slice
# ends there, and the next read continues.
MOST_CHECKED = 1 << 20


class ChainEnd(NamedTuple):
    """Where a walk stopped: at the given end, or before a wrong batch."""

    position: int
    next_offset: int  # the offset after the last good batch


def follow_chain(
    file: File,
    position: int,
    stop: int,
    end: int,
    next_offset: int | None,
    *,
    gapless: bool,
    below: int,
) -> ChainEnd:
    """Walk the batches that begin from `position` up to `stop`, in a file that ends at `end`. A
    batch begins at `next_offset` if `gapless`, otherwise there or later; it ends before the offset
    `below`. `next_offset` None: the first batch is trusted."""
    unpack = SEARCHED.unpack_from
    start, chunk_end, chunk = position, 0, b""
    length_read = SEARCH_CHUNK
    # A batch behind a gap may have a wrong base offset itself: the next batch decides.
    doubtful: ChainEnd | None = None
    while position < stop or (doubtful is not None and position < end):
        if position + SEARCHED_SIZE > chunk_end:
            chunk, start = file.read(length_read, position), position
            chunk_end = start + len(chunk)
            if len(chunk) < SEARCHED_SIZE:
                break
        base_offset, length, magic, last_delta = unpack(chunk, position - start)
        size = length + LENGTH_OVERHEAD
        if next_offset is None:
            next_offset = base_offset
        if (
            (base_offset != next_offset and (gapless or base_offset < next_offset))
            or magic != MAGIC
            or last_delta < 0
            or base_offset + last_delta >= below
            or not HEADER_SIZE <= size <= end - position
        ):  # fmt: skip
            if doubtful is not None and magic == MAGIC and base_offset < next_offset:
                return doubtful
            break
        doubtful = ChainEnd(position, next_offset) if base_offset > next_offset else None
        next_offset = base_offset + last_delta + 1
        position += size
        # After a large batch the next one is probably large too: read only its header.
        length_read = SEARCH_CHUNK if size < SEARCH_CHUNK else SEARCHED_SIZE
    return ChainEnd(position, next_offset or 0)


class CheckedRun:
    """The run of batches of one file whose offsets were checked last; readers that continue from it
    check only what is new."""

    __slots__ = ("begin", "end", "next_offset")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.begin = self.end = self.next_offset = 0

    def sound_end(
        self, file: File, position: int, stop: int, size: int, *, gapless: bool, below: int
    ) -> int:
        """Returns up to where the batches from `position` on continue each other. Less than `stop`:
        a wrong batch begins there, or so many were checked that the rest waits for the next
        read."""
        expected: int | None = self.next_offset
        if self.begin <= position <= self.end:
            if stop <= self.end:
                return stop
        else:
            self.begin, self.end, expected = position, position, None
        stop_now = min(stop, max(self.end, position) + MOST_CHECKED)
        self.end, self.next_offset = follow_chain(
            file, self.end, stop_now, size, expected, gapless=gapless, below=below
        )
        return max(self.end, position)
