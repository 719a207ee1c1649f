"""Replaces segments by the compacted segment that was made from them.

The order of the renames is Apache Kafka's: whatever happens in between, the next start finds either
all old files or a whole `.swap` that takes their place (`leftovers.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.environment import Disk
from headrace.node.storage.compaction.compaction_gaps import Gap
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.recovery.holes import gaps_between
from headrace.node.storage.recovery.leftovers import CLEANED, FILE_SUFFIXES, SWAP
from headrace.node.storage.segments.batch_headers import walk_headers
from headrace.node.storage.segments.offset_index import ENTRY
from headrace.node.storage.segments.segment import Segment, file_name
from headrace.node.storage.segments.segment_list import SegmentList

if TYPE_CHECKING:
    from headrace.node.storage.partition_log import PartitionLog


def swap_in(
    open_files: OpenFiles,
    folder: str,
    segments: SegmentList,
    old: list[Segment],
    settings: LogSettings,
    *,
    wall_ms: int,
) -> list[str] | None:
    """Returns the renamed files of the old segments. None, without changes, if the log does not
    have them any more or a reload has removed the cleaned files."""
    disk = open_files.disk
    base = old[0].base_offset
    names = [f"{folder}/{file_name(base, suffix)}" for suffix in FILE_SUFFIXES]
    names = [name for name in names if disk.exists(name + CLEANED)]
    if len(names) < 3:
        return None
    segment = Segment.load(open_files, folder, base, settings, wall_ms=wall_ms, suffix=CLEANED)
    if not segments.replace(old, segment):
        for name in names:
            disk.remove(name + CLEANED)
        return None
    return _rename(disk, names, old)


def gaps_behind(disk: Disk, log: PartitionLog, old: list[Segment]) -> list[Gap]:
    """The gaps between segments that are to be noted before `swap_in`: the compacted segment may
    end before the next one begins. All others too, if none were noted so far."""
    segments, found = log.segments, []
    if segments.gaps.noted is None:
        found = [gap for _, gap in gaps_between(segments.items)]
    end = end_of_cleaned(disk, log.folder, old[0].base_offset)
    following = segments.end_of(segments.number_at(old[-1].base_offset), log.end_offset)
    return [*found, (end, following)] if end is not None and end < following else found


def end_of_cleaned(disk: Disk, folder: str, base: int) -> int | None:
    """The offset after the last batch of the `.cleaned` segment; None: it is not there."""
    name = f"{folder}/{base:020d}"
    try:
        log, index = disk.open(f"{name}.log{CLEANED}"), disk.open(f"{name}.index{CLEANED}")
    except FileNotFoundError:
        return None
    try:
        position = 0
        if index.size >= ENTRY.size:
            at = index.size - index.size % ENTRY.size - ENTRY.size
            position = ENTRY.unpack(index.read(ENTRY.size, at))[1]
        end = base
        for batch in walk_headers(log, position, log.size):
            end = batch.last_offset + 1
        return end
    finally:
        log.close()
        index.close()


def _rename(disk: Disk, names: list[str], old: list[Segment]) -> list[str]:
    for name in names:
        disk.rename(name + CLEANED, name + SWAP)
    removed = []
    for replaced in old:
        removed += replaced.mark_deleted()
    for name in names:
        disk.rename(name + SWAP, name)
    return removed
