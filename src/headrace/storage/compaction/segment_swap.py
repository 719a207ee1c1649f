"""Replaces segments by the compacted segment that was made from them.

The order of the renames is Apache Kafka's: whatever happens in between, the next start finds either
all old files or a whole `.swap` that takes their place (`leftovers.py`).
"""

from __future__ import annotations

from headrace.environment import Disk
from headrace.storage.durability.open_files import OpenFiles
from headrace.storage.log_settings import LogSettings
from headrace.storage.recovery.leftovers import CLEANED, FILE_SUFFIXES, SWAP
from headrace.storage.segments.segment import Segment, file_name
from headrace.storage.segments.segment_list import SegmentList


def swap_in(
    open_files: OpenFiles,
    folder: str,
    segments: SegmentList,
    old: list[Segment],
    settings: LogSettings,
    *,
    wall_ms: int,
) -> list[str] | None:
    """Answers the renamed files of the old segments. None, and nothing is changed, if the log has
    them no more or a reload has removed what was cleaned."""
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


def _rename(disk: Disk, names: list[str], old: list[Segment]) -> list[str]:
    for name in names:
        disk.rename(name + CLEANED, name + SWAP)
    removed = []
    for replaced in old:
        removed += replaced.mark_deleted()
    for name in names:
        disk.rename(name + SWAP, name)
    return removed
