"""Finds the segments of a log that are due for deletion: Kafka's three reasons, oldest first.

The segments are before the log's start offset (DeleteRecords), beyond `retention.bytes`, or older
than `retention.ms`. The latter two apply only if the clean-up policy includes delete. Pure: nothing
is removed here, and nothing at or after the high watermark is due. The active segment can be due
too; the log then rolls first. An empty last segment never is.
"""

from __future__ import annotations

from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.segments.segment import Segment


def removable_segments(
    segments: list[Segment],
    settings: LogSettings,
    *,
    start_offset: int,
    end_offset: int,
    high_watermark: int,
    wall_ms: int,
) -> int:
    """Returns how many of the oldest segments are due."""
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    count = _before_start(segments, start_offset)
    if "delete" in settings.cleanup_policy:
        count = max(count, _beyond_size(segments, settings.retention_bytes, count))
        count = max(count, _beyond_age(segments, settings.retention_ms, count, wall_ms))
    while count and ends[count - 1] > high_watermark:
        count -= 1
    return count


def _before_start(segments: list[Segment], start_offset: int) -> int:
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= start_offset:
        count += 1
    return count


def _beyond_size(segments: list[Segment], retention_bytes: int, count: int) -> int:
    """Segments go as long as what remains still reaches the limit."""
    if retention_bytes < 0:
        return count
    excess = sum(segment.size for segment in segments[count:]) - retention_bytes
    while count < len(segments) and _has_batches(segments, count):
        excess -= segments[count].size
        if excess < 0:
            break
        count += 1
    return count


def _beyond_age(segments: list[Segment], retention_ms: int, count: int, wall_ms: int) -> int:
    if retention_ms < 0:
        return count
    while count < len(segments) and _has_batches(segments, count):
        if wall_ms - segments[count].largest_timestamp() <= retention_ms:
            break
        count += 1
    return count


def _has_batches(segments: list[Segment], number: int) -> bool:
    """All but the last are worth removing even if compaction left nothing in them."""
    return number + 1 < len(segments) or segments[number].size > 0
