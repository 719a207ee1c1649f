"""Finds the damaged ranges of one segment by reading it, and indexes that cannot be right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.node.storage.recovery.damage import Damage, DamagedRecords, damage_of
from headrace.node.storage.segments.batch_scan import BatchScan, DamagedRange
from headrace.node.storage.segments.batch_search import NoBatch
from headrace.wire.protocol.record_batch import HEADER_SIZE, header_at

if TYPE_CHECKING:
    from headrace.node.storage.segments.segment import Segment


def find_damage(segment: Segment, below: int | None = None) -> None:
    """Read the whole file and note the damaged ranges. Takes a second per gigabyte. `below`: where
    the next segment begins, if the caller knows it."""
    known = {damage.position for damage in segment.damage}
    scan = BatchScan(
        segment.open_file(),
        next_offset=segment.base_offset,
        below=below,
        contiguous=segment.gapless,
    )
    found = [
        damage_of(segment.base_offset, each)
        for each in scan.batches()
        if isinstance(each, DamagedRange)
    ]
    segment.findings.damaged(segment.path, (each for each in found if each.position not in known))
    found += [damage for damage in segment.damage if not damage.size]
    segment.damage = sorted(found, key=lambda damage: damage.position)
    segment.unread_to = 0


def is_still_damaged(segment: Segment, damage: Damage, below: int | None) -> bool:
    """Returns whether the bytes of a damaged range are still not whole, good batches."""
    scan = BatchScan(
        segment.open_file(),
        next_offset=damage.first_offset,
        below=below,
        contiguous=segment.gapless,
    )
    position = damage.position
    for batch in scan.batches(position):
        if isinstance(batch, DamagedRange):
            return True
        position += batch.size
        if position >= damage.end:
            break
    return position != damage.end or scan.next_offset > damage.next_offset


def indexes_are_plausible(segment: Segment) -> bool:
    """Returns whether the last entries can be right. A file that was never cut to its length ends
    in zeros, and no entry points to byte 0. The other entries are checked at lookups."""
    index, times = segment.index, segment.time_index
    if index.entries:
        relative, position = index.entry(index.entries - 1)
        if relative < 0 or not 0 < position < segment.size:
            return False
    return not times.entries or is_in_log(segment, times.last_timestamp, times.last_offset)


def is_in_log(segment: Segment, timestamp: int, offset: int) -> bool:
    """Returns whether a batch with that largest timestamp holds that offset, as the time index has
    it."""
    try:
        found = segment.search(offset)
    except (NoBatch, DamagedRecords):
        return bool(segment.damage)  # the entry may point into a damaged range
    if found is None:
        return False
    header = header_at(segment.open_file().read(HEADER_SIZE, found[0]), 0, found[0])
    return header.max_timestamp == timestamp and header.base_offset <= offset
