"""Which part of a log may be compacted now, and how dirty the log is: Apache Kafka's rules.

Everything before `first_dirty` was compacted in earlier rounds. Nothing is changed at or after
`first_uncleanable`: the active segment, records of open transactions and after them (the last
stable offset), and segments with a record younger than `min.compaction.lag.ms`. A log is due when
more than `min.cleanable.dirty.ratio` of these bytes are dirty, or when a dirty segment began longer
ago than `max.compaction.lag.ms`. Pure: looks at segments, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.segments.offset_index import MAX_RELATIVE_OFFSET
from headrace.node.storage.segments.segment import Segment

# The loop renames the files of a whole group at once, 0.05 to 0.1 ms for each segment. Small
# segments that remain are merged further in later rounds.
MOST_IN_A_GROUP = 32


@dataclass(slots=True)
class Cleanable:
    """The state of one log as far as compaction needs it."""

    first_dirty: int
    first_uncleanable: int  # where a segment begins
    clean_bytes: int
    dirty_bytes: int  # only those that may be compacted now
    is_overdue: bool  # max.compaction.lag.ms
    min_dirty_ratio: float

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > self.min_dirty_ratio)


def measure(
    segments: list[Segment],
    settings: LogSettings,
    *,
    cleaned_to: int | None,
    start_offset: int,
    end_offset: int,
    last_stable_offset: int,
    wall_ms: int,
) -> Cleanable:
    """`cleaned_to` comes from the checkpoint; an impossible value is ignored."""
    first_dirty = start_offset
    if cleaned_to is not None and start_offset <= cleaned_to <= end_offset:
        first_dirty = cleaned_to
    closed = segments[:-1]
    is_dirty = first_dirty < segments[-1].base_offset
    dirty = closed[_number_at(closed, first_dirty) :] if is_dirty else []
    limit = min(last_stable_offset, segments[-1].base_offset)
    if settings.min_compaction_lag_ms > 0:
        youngest = wall_ms - settings.min_compaction_lag_ms
        for segment in dirty:
            if segment.largest_timestamp() > youngest:
                limit = min(limit, segment.base_offset)
                break
    limit = max(limit, first_dirty)
    first_uncleanable = segments[_number_at(segments, limit)].base_offset
    return Cleanable(
        first_dirty,
        first_uncleanable,
        clean_bytes=sum(s.size for s in closed if s.base_offset < first_dirty),
        dirty_bytes=sum(s.size for s in dirty if s.base_offset < first_uncleanable),
        is_overdue=_is_overdue(dirty, settings.max_compaction_lag_ms, wall_ms),
        min_dirty_ratio=settings.min_cleanable_dirty_ratio,
    )


def _number_at(segments: list[Segment], offset: int) -> int:
    """The segment that holds `offset`; the first one if all begin later."""
    number = 0
    while number + 1 < len(segments) and segments[number + 1].base_offset <= offset:
        number += 1
    return number


def _is_overdue(dirty: list[Segment], lag_ms: int, wall_ms: int) -> bool:
    oldest = wall_ms - lag_ms
    return oldest > 0 and any(0 < segment.first_timestamp() < oldest for segment in dirty)


@dataclass(slots=True)
class Source:
    """A closed segment that is to be compacted."""

    base_offset: int
    size: int
    index_size: int
    time_index_size: int


def grouped(
    sources: list[Source], *, segment_bytes: int, index_bytes: int, first_uncleanable: int
) -> list[list[Source]]:
    """Group neighbours that fit into one segment together, by their present sizes."""
    groups: list[list[Source]] = []
    ends = [source.base_offset for source in sources[1:]] + [first_uncleanable]
    size = index_size = time_index_size = 0
    for source, end in zip(sources, ends, strict=True):
        fits = groups and (
            len(groups[-1]) < MOST_IN_A_GROUP
            and size + source.size <= segment_bytes
            and index_size + source.index_size <= index_bytes
            and time_index_size + source.time_index_size <= index_bytes
            and (not source.size or end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        )
        if fits:
            groups[-1].append(source)
        else:
            groups.append([source])
            size = index_size = time_index_size = 0
        size += source.size
        index_size += source.index_size
        time_index_size += source.time_index_size
    return groups
