"""Walks over records that build no objects, for those who read millions of them."""

from __future__ import annotations

from headrace.environment import Buffer
from headrace.protocol import compression as codecs
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.primitives import BROKEN, read_zigzag
from headrace.protocol.record_batch.header import (
    ATTRIBUTES,
    COMPRESSION_MASK,
    HEADER_SIZE,
    LENGTH,
    LENGTH_OVERHEAD,
    RECORD_COUNT,
    SMALLEST_RECORD,
    Fields,
    read_header,
)
from headrace.protocol.record_batch.records import payload_of


def keys_and_values(
    batches: bytes, at: int, fields: Fields, max_bytes: int
) -> list[tuple[bytes | None, bytes | None]]:
    """Of every record of the batch at this position; MalformedMessage if they do not lie within it.

    What else is in a record is stepped over, varints in place: a third of the time of `walk`, for
    coordinators, which read all of their logs when they start.
    """
    data, pos, end = batches, at + HEADER_SIZE, at + fields[LENGTH] + LENGTH_OVERHEAD
    if codec := fields[ATTRIBUTES] & COMPRESSION_MASK:
        data = bytes(codecs.decompress(codec, memoryview(batches)[pos:end], max_bytes))
        pos, end = 0, len(data)
    found = []
    try:
        for _ in range(fields[RECORD_COUNT]):
            first, second = data[pos], data[pos + 1]
            if first < 128:
                length, at = first >> 1 ^ -(first & 1), pos + 1
            elif second < 128:
                length, at = ((first & 0x7E) >> 1 | second << 6) ^ -(first & 1), pos + 2
            else:
                length, at = read_zigzag(data, pos)
            pos = at + length
            if length < SMALLEST_RECORD - 1 or pos > end:
                raise MalformedMessage(f"record: a length of {length} does not fit the batch")
            at += 1  # attributes
            while data[at] > 127:  # timestamp delta
                at += 1
            at += 1
            while data[at] > 127:  # offset delta
                at += 1
            key, at = _bytes_at(data, at + 1)
            value, at = _bytes_at(data, at)
            if at >= pos:
                raise MalformedMessage("record: its key and value do not fit")
            found.append((key, value))
    except BROKEN as error:
        raise MalformedMessage(f"record at byte {pos}: {error}") from error
    if pos != end:
        raise MalformedMessage(f"batch: {end - pos} bytes behind the last record")
    return found


def _bytes_at(data: bytes, pos: int) -> tuple[bytes | None, int]:
    """The caller looks whether they lie where they may."""
    length = data[pos]
    if length < 128:
        length = length >> 1 ^ -(length & 1)
        pos += 1
    else:
        length, pos = read_zigzag(data, pos)
    if length < 0:
        return None, pos
    return data[pos : pos + length], pos + length


def every_record_has_key(batch: Buffer, max_bytes: int) -> bool:
    """Whether no record lacks a key, as compacted topics demand; skips from record to record.

    Varints are stepped over in place: 0.44 us a record against 0.98 with a call for each.
    """
    header = read_header(batch)
    data = payload_of(batch, header, max_bytes)
    size = len(data)
    pos = 0
    try:
        for _ in range(header.record_count):
            first = data[pos]
            second = data[pos + 1]
            if first < 128:
                length, at = first >> 1 ^ -(first & 1), pos + 1
            elif second < 128:
                length, at = ((first & 0x7E) >> 1 | second << 6) ^ -(first & 1), pos + 2
            else:
                length, at = read_zigzag(data, pos)
            pos = at + length
            if length < SMALLEST_RECORD - 1 or pos > size:
                raise MalformedMessage(f"record: a length of {length} does not fit the batch")
            at += 1  # attributes
            while data[at] > 127:  # timestamp delta
                at += 1
            at += 1
            while data[at] > 127:  # offset delta
                at += 1
            if data[at + 1] == 1:  # a key length of -1
                return False
    except BROKEN as error:
        raise MalformedMessage(f"record at byte {pos}: {error}") from error
    return True
