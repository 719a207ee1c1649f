"""Finds a batch by its offset, without trusting the position of an index entry.

A batch of this log must begin at that place, not past what is sought, and so must each batch on the
way. Anything else is `NoBatch`: the index or the log is damaged.
"""

from __future__ import annotations

from struct import Struct

from headrace.environment import File
from headrace.wire.protocol.record_batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC

# base offset, length, (leader epoch), magic, (crc, attributes), last offset delta
SEARCHED = Struct(">qi4xb6xi")
SEARCHED_SIZE = SEARCHED.size
# An index entry is at most 4 KiB and a batch before the offset sought: one read usually finds it.
SEARCH_CHUNK = 8192
ANY = 1 << 62


class NoBatch(Exception):
    """There is no batch at a position where one should be."""


def find_batch(
    file: File,
    offset: int,
    position: int,
    end: int,
    not_below: int,
    not_above: int,
    ends_by: int = ANY,
    gapless: bool = False,
) -> tuple[int, int] | None:
    """Position and size of the first batch that ends at or after `offset`, if there is one.

    A batch must begin at `position`, with a base offset between the two limits and a last offset
    of at most `ends_by`. If `gapless`, the others begin where the one before them ends.
    """
    unpack = SEARCHED.unpack_from
    start, chunk_end = position, 0
    chunk = b""
    while position + HEADER_SIZE <= end:
        if position + SEARCHED_SIZE > chunk_end:
            chunk, start = file.read(SEARCH_CHUNK, position), position
            chunk_end = start + len(chunk)
            if len(chunk) < SEARCHED_SIZE:
                return None
        base_offset, length, magic, last_delta = unpack(chunk, position - start)
        size = length + LENGTH_OVERHEAD
        if (
            magic != MAGIC
            or not not_below <= base_offset <= not_above
            or not 0 <= last_delta <= ends_by - base_offset
            or not HEADER_SIZE <= size <= end - position
        ):
            raise NoBatch(f"{file.path}: no batch begins at {position}")
        if base_offset + last_delta >= offset:
            return position, size
        not_below, ends_by = base_offset + last_delta + 1, ANY
        not_above = not_below if gapless else ANY
        position += size
    return None
