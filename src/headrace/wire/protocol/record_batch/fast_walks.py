"""Walks over records that build no objects, for callers that read millions of them."""

from __future__ import annotations

from headrace.environment import Buffer
from headrace.wire.protocol import compression as codecs
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.primitives import BROKEN, read_zigzag
from headrace.wire.protocol.record_batch.header import (
    ATTRIBUTES,
    COMPRESSION_MASK,
    HEADER_SIZE,
    LENGTH,
    LENGTH_OVERHEAD,
    RECORD_COUNT,
    SMALLEST_RECORD,
    BatchHeader,
    Fields,
    read_header,
)
from headrace.wire.protocol.record_batch.records import payload_of, read_varint

Pairs = list[tuple[bytes | None, bytes | None]]


def keys_and_values(batches: bytes, at: int, fields: Fields, max_bytes: int) -> Pairs:
    """Returns these fields of every record of the batch at `at`; refuses what `walk` refuses.

    The other fields of a record are skipped, varints in place: a third of the time of `walk`, for
    coordinators, which read all of their logs when they start.
    """
    data, pos, end = batches, at + HEADER_SIZE, at + fields[LENGTH] + LENGTH_OVERHEAD
    if codec := fields[ATTRIBUTES] & COMPRESSION_MASK:
        data = bytes(codecs.decompress(codec, memoryview(batches)[pos:end], max_bytes))
        pos, end = 0, len(data)
    found: Pairs = []
    try:
        for _ in range(fields[RECORD_COUNT]):
            # Lengths are zigzag varints. The first byte of a non-negative one below 64 is twice the
            # value, and of one below 8,192 two bytes are enough; both cases are read in place,
            # everything else by `read_varint`. tests/unit/wire/protocol/test_fast_walks.py compares
            # with `walk`, for good and for damaged records.
            first, second = data[pos], data[pos + 1]
            if first < 128:
                at = pos + 2  # behind the length and the attributes
                pos += 1 + (first >> 1)
            elif second < 128:
                at = pos + 3
                pos += 2 + (first + (second << 7) - 128 >> 1)
            else:
                length, at = read_varint(data, pos)
                pos = at + length
                at += 1
            if data[at] < 128:  # timestamp delta
                at += 1
            else:
                _, at = read_zigzag(data, at)
            if data[at] < 128:  # offset delta
                at += 1
            elif data[at + 1] < 128:
                at += 2
            else:
                _, at = read_varint(data, at)
            # 129 is the continuation bit and the sign bit: neither is set, so this is a key of one
            # length byte.
            if not (length := data[at]) & 129:
                begin = at + 1
                at = begin + (length >> 1)
                key: bytes | None = data[begin:at]
            else:
                key, at = _bytes_at(data, at)
            value, at = _bytes_at(data, at)
            # The usual record has no headers (one byte, 0) and ends exactly here. Anything else is
            # checked in full, with the errors of `walk`.
            if data[at] or at + 1 != pos or first & 1:
                require_positive(first)
                check_headers(data, at, pos)
            found.append((key, value))
    except BROKEN as error:
        raise MalformedMessage(f"record at byte {pos}: {error}") from error
    if pos != end or fields[RECORD_COUNT] < 0:
        raise MalformedMessage(f"batch: its records end at byte {pos}, the batch at {end}")
    return found


def _bytes_at(data: bytes, pos: int) -> tuple[bytes | None, int]:
    """Returns the bytes at `pos`, None if null, and the position after them. The caller checks the
    bounds."""
    length = data[pos]
    if length < 128:
        length = length >> 1 ^ -(length & 1)
        pos += 1
    else:
        length, pos = read_varint(data, pos)
    if length < 0:
        return None, pos
    return data[pos : pos + length], pos + length


def require_positive(first: int) -> None:
    """The first byte of a varint has its sign."""
    if first & 1:
        raise MalformedMessage("record: a negative length does not fit the batch")


def skip_bytes(data: bytes, pos: int) -> tuple[bool, int]:
    """Returns whether there is a value, and where it ends; the caller checks the bounds."""
    length, pos = read_varint(data, pos)
    return length >= 0, pos + max(length, 0)


def check_headers(data: bytes, pos: int, end: int) -> None:
    """Check that the headers of a record end where it does. Mostly all their lengths take one byte;
    other headers are left to `skip_headers`, which also raises the error."""
    count = data[pos]
    if not count & 129:
        at = pos + 1
        for _ in range(count >> 1):
            length = data[at]
            if length & 129:
                break
            at += 1 + (length >> 1)
            length = data[at]
            if length < 128:
                at += 1 if length & 1 else 1 + (length >> 1)
            elif data[at + 1] < 128:
                at += 2 if length & 1 else 2 + (length + (data[at + 1] << 7) - 128 >> 1)
            else:
                break
        else:
            if at == end:
                return
    skip_headers(data, pos, end)


def skip_headers(data: bytes, pos: int, end: int) -> list[int]:
    """Step over the headers of a record, which must end at `end`; returns the positions of the
    bytes of their lengths."""
    count, at = read_varint(data, pos)
    if not 0 <= count * 2 <= end - at:
        raise MalformedMessage(f"record: {count} headers do not fit")
    lengths = [*range(pos, at)]
    for _ in range(count):
        for part in ("name", "value"):
            length, behind = read_varint(data, at)
            if length < 0 and part == "name":
                raise MalformedMessage("record: a header has no name")
            lengths += range(at, behind)
            at = behind + max(length, 0)
    if at != end:
        raise MalformedMessage(f"record: its fields end {end - at} bytes before its length says")
    return lengths


def timestamp_deltas(batch: Buffer, max_bytes: int) -> list[int]:
    """Returns the timestamp delta of every record. Reads only lengths and timestamps: a twentieth
    of the time of `walk`, which checks the rest too."""
    header = read_header(batch)
    data = bytes(payload_of(batch, header, max_bytes))
    deltas: list[int] = []
    pos = 0
    try:
        for _ in range(header.record_count):
            length, pos = read_varint(data, pos)
            byte = data[pos + 1]
            if byte < 128:
                deltas.append(byte >> 1 ^ -(byte & 1))
            else:
                deltas.append(read_zigzag(data, pos + 1)[0])
            if length < SMALLEST_RECORD - 1:
                raise MalformedMessage(f"record: a length of {length} does not fit the batch")
            pos += length
    except BROKEN as error:
        raise MalformedMessage(f"record at byte {pos}: {error}") from error
    if pos != len(data):
        raise MalformedMessage(f"batch: its records end at byte {pos}, the batch at {len(data)}")
    return deltas


def find_by_timestamp(
    data: bytes, header: BatchHeader, timestamp: int, from_offset: int
) -> tuple[int, int] | None:
    """Timestamp and offset of the first record at or after `from_offset` that is not older than
    `timestamp`, in the unpacked records of a batch. Steps from one to the next by their lengths: a
    tenth of `walk`."""
    wanted, base_offset = timestamp - header.base_timestamp, header.base_offset
    pos = 0
    try:
        for _ in range(header.record_count):
            length, pos = read_varint(data, pos)
            if length < SMALLEST_RECORD - 1:
                raise MalformedMessage(f"record: a length of {length} does not fit the batch")
            delta, at = read_zigzag(data, pos + 1)
            if delta >= wanted:
                offset = base_offset + read_varint(data, at)[0]
                if offset >= from_offset:
                    return header.base_timestamp + delta, offset
            pos += length
    except BROKEN as error:
        raise MalformedMessage(f"record at byte {pos}: {error}") from error
    return None
