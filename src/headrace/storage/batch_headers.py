"""The headers of record batches that lie in files, and how a batch is found by its offset.

Only headers are looked at: a batch stays opaque. Base offset and leader epoch lie outside the
checksum, so a leader can set them in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from headrace.environment import Buffer, File
from headrace.protocol.record_batch import (
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    BatchHeader,
    header_at,
)

# Base offset, length and leader epoch: the leader sets the outer two, the length lies between them.
PREFIX = Struct(">qii")

# base offset, length ... last offset delta: enough to find a batch by offset
FIND = Struct(">qi11xi")
FIND_SIZE = FIND.size
# An index entry lies at most 4 KiB and a batch before what is sought: one read usually finds it.
FIND_CHUNK = 8192
WALK_CHUNK = 1 << 16


def walk_headers(file: File, position: int, end: int) -> Iterator[BatchHeader]:
    """The headers of the whole batches between two positions; ends early at what is no batch."""
    chunk, start = b"", position
    size = 0
    while position + HEADER_SIZE <= end:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            # After a large batch the next one will be large too: read no more than its header.
            chunk = file.read(WALK_CHUNK if size < WALK_CHUNK else HEADER_SIZE, position)
            start, at = position, 0
            if len(chunk) < HEADER_SIZE:
                return
        header = header_at(chunk, at, position)
        size = header.size
        if size < HEADER_SIZE or position + size > end:
            return
        yield header
        position += size


def headers_of(batches: Buffer) -> Iterator[BatchHeader]:
    """Of whole batches, one behind the other."""
    view, position = memoryview(batches), 0
    while position < len(view):
        header = header_at(view, position, position)
        yield header
        position += header.size


def find_batch(file: File, offset: int, position: int, end: int) -> tuple[int, int] | None:
    """Position and size of the first batch that ends at or after `offset`, if there is one."""
    unpack = FIND.unpack_from
    chunk, start = b"", position
    while position + HEADER_SIZE <= end:
        at = position - start
        if at + FIND_SIZE > len(chunk):
            chunk, start, at = file.read(FIND_CHUNK, position), position, 0
            if len(chunk) < FIND_SIZE:
                return None
        base_offset, length, last_delta = unpack(chunk, at)
        size = length + LENGTH_OVERHEAD
        if size < HEADER_SIZE:
            return None
        if base_offset + last_delta >= offset:
            return position, size
        position += size
    return None


def size_at(file: File, position: int) -> int:
    """Size of the batch that begins there."""
    return int.from_bytes(file.read(4, position + LENGTH_AT), "big") + LENGTH_OVERHEAD
