"""The scrub of one closed segment: every batch is read and its checksum computed.

The scrub repairs nothing and writes nothing. Damage counts only if two readings of the segment find
it at the same place: a wrong bit in memory must not lead to a refused record. It runs in a separate
process, which gets the path and the size of the segment; a file of another size was compacted or
truncated in the meantime, and is left to the next pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.environment import File
from headrace.node.storage.segments.batch_scan import BatchScan, DamagedRange


class ClosedSegment(NamedTuple):
    """A segment to be read. The next one begins at `next_base`."""

    path: str
    base_offset: int
    next_base: int
    size: int
    gapless: bool = False  # batches leave no offsets out: the log was never compacted


def damage_in(segment: ClosedSegment, open_file: Callable[[str], File]) -> list[DamagedRange]:
    """Returns the ranges that two readings find damaged. FileNotFoundError: the file does not exist
    any more, or has another size."""
    found = _scan(segment, open_file)
    if found:
        again = {(each.position, each.size) for each in _scan(segment, open_file)}
        found = [each for each in found if (each.position, each.size) in again]
    return found


def _scan(segment: ClosedSegment, open_file: Callable[[str], File]) -> list[DamagedRange]:
    file = open_file(segment.path)
    if file.size != segment.size:
        raise FileNotFoundError(2, "has another size by now", segment.path)
    scan = BatchScan(
        file,
        next_offset=segment.base_offset,
        below=segment.next_base,
        contiguous=segment.gapless,
    )
    return [found for found in scan.batches() if isinstance(found, DamagedRange)]
