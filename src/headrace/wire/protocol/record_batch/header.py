"""The header of a batch: its fields and their positions, how to read it, and the checksum.

A batch is a header of 61 bytes and its records, which may be compressed together. Base offset and
leader epoch come before the part that the CRC covers: a leader sets them in place. Older formats
(message sets of magic 0 and 1) are recognised by their magic, which has the same position, and
refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from headrace.environment import Buffer
from headrace.wire.protocol.errors import MalformedMessage

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp,
# max timestamp, producer id, producer epoch, base sequence, count
HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
MAGIC = 2
_read_crc = Struct(">I").unpack_from

# The positions of the fields.
BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21  # the CRC covers everything from here
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORD_COUNT_AT = 57

LENGTH_OVERHEAD = 12  # base offset and length itself are not counted in the length
SMALLEST_LENGTH = HEADER_SIZE - LENGTH_OVERHEAD
SMALLEST_RECORD = 7  # length, attributes, two deltas, no key, no value, no headers

# Bits of the attributes.
COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40  # the base timestamp is the time from which tombstones may go

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

# A header as `HEADER` unpacks it, for code that reads a million of them: no object is built. The
# names are those of `BatchHeader`, which a test checks; FORMAT is its magic.
Fields = tuple[int, ...]
(
    BASE_OFFSET, LENGTH, LEADER_EPOCH, FORMAT, CRC, ATTRIBUTES, LAST_OFFSET_DELTA, BASE_TIMESTAMP,
    MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, RECORD_COUNT,
) = range(13)  # fmt: skip


class BatchHeader(NamedTuple):
    """The fixed part of a batch, in the order of `HEADER`, and where the batch begins."""

    base_offset: int
    length: int  # of what follows the length field
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    position: int = 0  # in the buffer or file that it was read from

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)


def header_at(data: Buffer, at: int, position: int) -> BatchHeader:
    """Returns the unchecked header `at` this place in `data`; `position` is its position in the
    file."""
    return BatchHeader._make((*HEADER.unpack_from(data, at), position))


def read_header(buffer: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`; MalformedMessage if it is cut off, of another magic or too short."""
    if len(buffer) - pos < HEADER_SIZE:
        raise MalformedMessage(f"batch: {len(buffer) - pos} bytes are too few for a header")
    header = header_at(buffer, pos, pos)
    if header.magic != MAGIC:
        raise MalformedMessage(f"batch: magic {header.magic} is not supported")
    if header.length < SMALLEST_LENGTH:
        raise MalformedMessage(f"batch: a length of {header.length} is too small")
    return header


def headers_in(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; a last one that is cut off is left out."""
    pos, size = 0, len(buffer)
    while size - pos >= HEADER_SIZE:
        header = read_header(buffer, pos)
        if pos + header.size > size:
            return
        yield pos, header
        pos += header.size


def crc_is_right(batch: Buffer) -> bool:
    """Returns whether the CRC is right; `batch` is exactly one batch, with at least its header."""
    (crc,) = _read_crc(batch, CRC_AT)
    return bool(crc32c(memoryview(batch)[ATTRIBUTES_AT:]) == crc)


def seal(batch: bytearray) -> None:
    """Write the CRC of a batch whose covered part has been changed."""
    crc = crc32c(memoryview(batch)[ATTRIBUTES_AT:])
    batch[CRC_AT:ATTRIBUTES_AT] = crc.to_bytes(4, "big")


def fields_in(batches: bytes) -> Iterator[tuple[int, Fields]]:
    """Yields position and header of each whole batch, as `headers_in`, for callers that read a
    million of them: the fields as a tuple in the order of `HEADER`, in a third of the time."""
    unpack = HEADER.unpack_from
    pos, size = 0, len(batches)
    while size - pos >= HEADER_SIZE:
        fields = unpack(batches, pos)
        if fields[FORMAT] != MAGIC or fields[LENGTH] < SMALLEST_LENGTH:
            read_header(batches, pos)  # says what is wrong
        end = pos + fields[LENGTH] + LENGTH_OVERHEAD
        if end > size:
            return
        yield pos, fields
        pos = end
