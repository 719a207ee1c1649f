"""Reads the headers of record batches in files.

Only headers are read: a batch stays opaque. Base offset and leader epoch are outside the checksum,
so a leader can set them in place. Damage is not searched for here (`batch_scan.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from crc32c import crc32c

from headrace.environment import Buffer, File
from headrace.wire.protocol.record_batch import (
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    BatchHeader,
    header_at,
)

# Base offset, length and leader epoch: the leader sets the first and the last; the length is
# between them.
PREFIX = Struct(">qii")

CRC_CHUNK = 1 << 20
WALK_CHUNK = 1 << 16


_length = Struct(">i").unpack_from


def whole_batches(records: memoryview) -> memoryview:
    """Returns the batches without the last one, if a limit of bytes has cut it in the middle."""
    position, size = 0, len(records)
    # Only lengths are read. A length that does not move forward ends the walk, so no bytes of a
    # peer can make it endless.
    while position + HEADER_SIZE <= size:
        following = position + _length(records, position + LENGTH_AT)[0] + LENGTH_OVERHEAD
        if following > size or following <= position:
            break
        position = following
    return records[:position]


def walk_headers(file: File, position: int, end: int) -> Iterator[BatchHeader]:
    """Yields the headers of the whole batches between two positions; ends early at bytes that are
    not a batch."""
    chunk, start = b"", position
    size = 0
    while position + HEADER_SIZE <= end:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            # After a large batch the next one is probably large too: read only its header.
            chunk = file.read(WALK_CHUNK if size < WALK_CHUNK else HEADER_SIZE, position)
            start, at = position, 0
            if len(chunk) < HEADER_SIZE:
                return
        header = header_at(chunk, at, position)
        size = header.size
        # The walk stops at the first batch that is not whole and does not search for a later one:
        # `batch_scan.py` does that where damage is suspected.
        if size < HEADER_SIZE or position + size > end:
            return
        yield header
        position += size


def headers_of(batches: Buffer) -> Iterator[BatchHeader]:
    """The headers of consecutive whole batches."""
    view, position = memoryview(batches), 0
    while position < len(view):
        header = header_at(view, position, position)
        yield header
        position += header.size


def size_at(file: File, position: int) -> int:
    """Size of the batch that begins there."""
    return int.from_bytes(file.read(4, position + LENGTH_AT), "big") + LENGTH_OVERHEAD


def crc_of_large(file: File, position: int, end: int) -> int:
    """The CRC of a range, read in chunks."""
    crc = 0
    while position < end:
        data = file.read(min(CRC_CHUNK, end - position), position)
        crc = crc32c(data, crc)
        position += len(data)
    return crc
