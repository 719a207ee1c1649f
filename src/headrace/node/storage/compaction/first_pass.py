"""The first pass of compaction: from the end of the dirty part of a log to its beginning, it finds
the last record of every key (`last_of_keys.py`).

The number of different keys is not known before they were read. If they do not fit into the memory
of a round, the pass starts again with a shorter range: as many bytes from the beginning of the
dirty part as did fit, and at most three quarters of the last range. The rest waits for the next
round. One chunk is always taken, or no round would ever make progress.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from headrace.node.storage.compaction.closed_segments import (
    BESIDE_OF_CLEANER,
    READ_CHUNK,
    Batch,
    ClosedSegments,
    UnreadableRecords,
    keys_in,
)
from headrace.node.storage.compaction.last_of_keys import LastOfKeys
from headrace.node.storage.segments.segment import Segment
from headrace.node.storage.segments.transaction_index import Aborted
from headrace.wire.protocol.record_batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    LAST_OFFSET_DELTA,
    LENGTH,
    LENGTH_OVERHEAD,
    PRODUCER_ID,
    TRANSACTIONAL,
    Fields,
)
from headrace.wire.protocol.record_batch.keys import Keys

# A first try takes no more records than could fit if so many of them had the same key. This bounds
# the cost of a try that fails, however the keys are distributed.
MOST_RECORDS_PER_KEY = 32
BYTES_PER_SHORT_KEY = 100


class Piece(NamedTuple):
    """Batches of one segment that begin between two positions."""

    segment: Segment
    next_base: int  # where the segment after it begins
    position: int
    stop: int


class FirstPass:
    __slots__ = ("_segments", "_dirty", "_first_dirty", "_aborted", "_memory", "_chunk_size")

    def __init__(
        self,
        segments: ClosedSegments,
        bases: list[int],
        aborted: Iterable[Aborted],
        *,
        first_dirty: int,
        first_uncleanable: int,
        memory: int,
    ) -> None:
        self._segments = segments
        self._first_dirty = first_dirty
        self._memory = memory
        # An overrun of the budget is noticed after a chunk.
        self._chunk_size = min(READ_CHUNK, memory // 32)
        self._aborted = AbortedRanges(aborted)
        ends = [*bases[1:], first_uncleanable]
        dirty = [pair for pair in zip(bases, ends, strict=True) if pair[1] > first_dirty]
        most = memory // BYTES_PER_SHORT_KEY * MOST_RECORDS_PER_KEY
        # where each segment begins, and where the one after it does
        self._dirty = dirty[:1] + [pair for pair in dirty[1:] if pair[1] <= first_dirty + most]

    def run(self) -> LastOfKeys:
        whole = [self._piece(base, next_base) for base, next_base in self._dirty]
        limit = sum(piece.stop - piece.position for piece in whole)
        stretch = whole
        while True:
            keys = LastOfKeys(self._memory)
            keys.latest_offset = self._first_dirty - 1
            fitting = self._note_backwards(stretch, keys)
            if fitting is None:
                keys.finish()
                return keys
            limit = min(fitting, limit * 3 // 4)
            stretch = list(shortened(whole, limit))

    def _piece(self, base: int, next_base: int) -> Piece:
        segment = self._segments.load(base)
        position = 0
        if base < self._first_dirty:
            segment.load_indexes(BESIDE_OF_CLEANER)
            found = segment.find(self._first_dirty)
            position = segment.size if found is None else found[0]
        return Piece(segment, next_base, position, segment.size)

    def _note_backwards(self, stretch: list[Piece], keys: LastOfKeys) -> int | None:
        """Returns None if the keys of the whole stretch fit; otherwise the number of its bytes
        whose keys did."""
        noted = 0
        for piece in reversed(stretch):
            segment, next_base, position, stop = piece
            if piece is stretch[-1] and stop == segment.size:
                # Compaction may have left a gap of any size at the end of a segment.
                keys.latest_offset = next_base - 1
            chunks = self._segments.chunks_backwards(segment, position, stop, self._chunk_size)
            for batches in chunks:
                if noted and keys.is_full:
                    return noted
                last = batches[-1][2]
                if keys.latest_offset < self._first_dirty:
                    keys.latest_offset = last[BASE_OFFSET] + last[LAST_OFFSET_DELTA]
                self._note(batches, keys)
                noted += sum(fields[LENGTH] + LENGTH_OVERHEAD for _, _, fields in batches)
        return None

    def _note(self, batches: list[Batch], keys: LastOfKeys) -> None:
        names: Keys = []
        offsets: list[Iterable[int]] = []
        for chunk, at, fields in batches:
            if self._is_marker_or_aborted(fields):
                continue
            base = fields[BASE_OFFSET]
            try:
                _, found, tombstones, deltas = keys_in(chunk, at, fields)
            except UnreadableRecords as problem:
                keys.note_unreadable(base, str(problem))
                continue
            names += found
            if deltas is not None:
                offsets.append([base + delta for delta in deltas])
            else:
                offsets.append(range(base, base + len(found)))
                if tombstones:
                    keys.note_tombstones(base)
        keys.note(names, chain.from_iterable(offsets))

    def _is_marker_or_aborted(self, fields: Fields) -> bool:
        attributes = fields[ATTRIBUTES]
        if attributes & CONTROL:
            return True
        if not attributes & TRANSACTIONAL:
            return False
        base = fields[BASE_OFFSET]
        return self._aborted.cover(fields[PRODUCER_ID], base, base + fields[LAST_OFFSET_DELTA])


def shortened(stretch: list[Piece], limit: int) -> Iterator[Piece]:
    """The first so many bytes of it; at least the first piece with a batch of it."""
    for number, piece in enumerate(stretch):
        length = piece.stop - piece.position
        if length > limit:
            if limit or not number:
                yield piece._replace(stop=piece.position + max(limit, 1))
            return
        yield piece
        limit -= length


class AbortedRanges:
    """Which offsets belong to aborted transactions. A producer has one transaction at a time, so
    its ranges never overlap."""

    __slots__ = ("_by_producer",)

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._by_producer: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for entry in sorted(set(aborted), key=lambda entry: entry.first_offset):
            self._by_producer[entry.producer_id].append((entry.first_offset, entry.last_offset))

    def cover(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        ranges = self._by_producer.get(producer_id)
        if ranges is None:
            return False
        at = bisect_right(ranges, last_offset, key=lambda one: one[0]) - 1
        return at >= 0 and base_offset <= ranges[at][1]
