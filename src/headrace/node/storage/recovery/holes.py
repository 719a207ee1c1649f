"""Finds segments that are missing from a log: holes between the segments that are there.

A closed segment ends where the next one begins, except where compaction has noted a gap
(`compaction_gaps.py`), and the first one begins where the log begins. Anything else is a hole, for
example a deleted file. A hole is damage of size 0 behind the segment before it, or in front of the
first one: it is refused to readers and fetched again by a follower like any other damage. Only the
last index entry and the last batches of a segment are read (20 us each, measured).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from headrace.node.storage.compaction.compaction_gaps import CompactionGaps, Gap
from headrace.node.storage.recovery.damage import Damage
from headrace.node.storage.segments.batch_chain import follow_chain
from headrace.node.storage.segments.offset_index import ENTRY
from headrace.node.storage.segments.segment import Segment

MISSING = "a segment is missing"


def gaps_between(segments: list[Segment]) -> Iterator[tuple[Segment, Gap]]:
    """The closed segments that end before the next one begins, with both offsets."""
    for segment, following in pairwise(segments):
        end = _end_of(segment, following.base_offset)
        if end < following.base_offset:
            yield segment, (end, following.base_offset)


def find_holes(segments: list[Segment], gaps: CompactionGaps) -> list[tuple[Segment, Damage]]:
    """The gaps between segments that compaction has not noted."""
    return [
        (segment, Damage(segment.base_offset, segment.size, 0, *gap, MISSING))
        for segment, gap in gaps_between(segments)
        if not gaps.is_noted(gap)
    ]


def hole_before(first: Segment, start_offset: int) -> Damage:
    """The log begins at `start_offset`, and its first segment later."""
    return Damage(first.base_offset, 0, 0, start_offset, first.base_offset, MISSING)


def _end_of(segment: Segment, next_base: int) -> int:
    """The offset after the last batch of a closed segment; `next_base` if damage reaches up to
    there. A segment whose end does not read as it should is read whole."""
    if not segment.damage:
        end = _end_by_index(segment, next_base)
        if end is not None:
            return end
        segment.look_for_damage(below=next_base)
    end = segment.base_offset
    for batch in segment.headers():
        end = batch.last_offset + 1
    if segment.damage and segment.damage[-1].end == segment.size:
        return next_base
    return end


def _end_by_index(segment: Segment, next_base: int) -> int | None:
    """Returns None if the last index entry or the batches after it are not plausible."""
    if not segment.size:
        return segment.base_offset
    file, index = segment.open_file(), segment.index.open_file()
    position, last_offset = 0, segment.base_offset
    if index.size >= ENTRY.size:
        at = index.size - index.size % ENTRY.size - ENTRY.size
        relative, position = ENTRY.unpack(index.read(ENTRY.size, at))
        last_offset = segment.base_offset + relative
        if relative < 0 or not 0 < position < segment.size:
            return None
    found = follow_chain(
        file,
        position,
        segment.size,
        segment.size,
        segment.base_offset,
        gapless=False,
        below=next_base,
    )
    segment.let_go()
    if found.position != segment.size or found.next_offset <= last_offset:
        return None
    return found.next_offset
