"""The records of a batch, and the plain walk over them.

`walk` is the specification: what it refuses is not a batch of records, and the faster walks accept
exactly what it accepts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.environment import Buffer
from headrace.wire.protocol import compression as codecs
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.primitives import BROKEN, LARGEST_VARINT, read_zigzag
from headrace.wire.protocol.record_batch.header import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    SMALLEST_RECORD,
    BatchHeader,
    read_header,
)


class RecordHeader:
    """A name and a value that travel with a record."""

    __slots__ = ("key", "value")

    def __init__(self, key: str, value: bytes | None) -> None:
        self.key = key
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordHeader):
            return NotImplemented
        return self.key == other.key and self.value == other.value

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RecordHeader({self.key!r}, {self.value!r})"


class Record:
    """One record. `build` numbers records without an offset one after the other."""

    __slots__ = ("key", "value", "headers", "timestamp", "offset")

    def __init__(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[RecordHeader] = (),
        timestamp: int = NO_TIMESTAMP,
        offset: int = -1,
    ) -> None:
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp
        self.offset = offset

    def __repr__(self) -> str:
        return (
            f"Record(key={self.key!r}, value={self.value!r}, headers={list(self.headers)!r}, "
            f"timestamp={self.timestamp}, offset={self.offset})"
        )


def payload_of(batch: Buffer, header: BatchHeader, max_bytes: int) -> Buffer:
    """The records' bytes, decompressed if need be to at most `max_bytes`."""
    if header.size > len(batch):
        raise MalformedMessage(f"batch: {header.size} bytes are announced, {len(batch)} are there")
    data = memoryview(batch)[HEADER_SIZE : header.size]
    if header.compression:
        return codecs.decompress(header.compression, data, max_bytes)
    return data


def walk(batch: Buffer, max_bytes: int) -> Iterator[Record]:
    """Yields the records of one batch, each checked to be within it.

    Raises MalformedMessage at the first thing that is wrong, also when there are more or fewer
    records than the header says. The CRC is not checked.
    """
    header = read_header(batch)
    data = bytes(payload_of(batch, header, max_bytes))  # slices of bytes are cheaper than of views
    if header.record_count < 0 or header.record_count * SMALLEST_RECORD > len(data):
        raise MalformedMessage(f"batch: {header.record_count} records do not fit {len(data)} bytes")
    stamped = header.max_timestamp if header.has_log_append_time else None
    pos = 0
    for _ in range(header.record_count):
        try:
            record, pos = _decode_record(data, pos, header, stamped)
        except BROKEN as error:
            raise MalformedMessage(f"record at byte {pos}: {error}") from error
        yield record
    if pos != len(data):
        raise MalformedMessage(f"batch: {len(data) - pos} bytes behind the last record")


def _decode_record(
    data: bytes, pos: int, header: BatchHeader, stamped: int | None
) -> tuple[Record, int]:
    length, pos = read_varint(data, pos)
    end = pos + length
    if length < SMALLEST_RECORD - 1 or end > len(data):
        raise MalformedMessage(f"record: a length of {length} does not fit the batch")
    timestamp_delta, pos = read_zigzag(data, pos + 1)
    offset_delta, pos = read_varint(data, pos)
    key, pos = _read_bytes(data, pos, end)
    value, pos = _read_bytes(data, pos, end)
    count, pos = read_varint(data, pos)
    if not 0 <= count * 2 <= end - pos:
        raise MalformedMessage(f"record: {count} headers do not fit")
    headers: list[RecordHeader] = []
    for _ in range(count):
        name, pos = _read_bytes(data, pos, end)
        if name is None:
            raise MalformedMessage("record: a header has no name")
        header_value, pos = _read_bytes(data, pos, end)
        # Apache Kafka's brokers take a name that is not UTF-8, and its clients read it so.
        headers.append(RecordHeader(name.decode(errors="replace"), header_value))
    if pos != end:
        raise MalformedMessage(f"record: its fields end {end - pos} bytes before its length says")
    timestamp = header.base_timestamp + timestamp_delta if stamped is None else stamped
    return Record(key, value, headers, timestamp, header.base_offset + offset_delta), end


def _read_bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length, pos = read_varint(data, pos)
    if length < 0:  # -1 by convention; Apache Kafka takes any
        return None, pos
    stop = pos + length
    if stop > end:
        raise MalformedMessage(f"record: {length} bytes do not fit")
    return data[pos:stop], stop


def read_varint(data: Buffer, pos: int) -> tuple[int, int]:
    """A signed varint of at most five bytes; only timestamps may take more, as in Apache Kafka."""
    number, end = read_zigzag(data, pos)
    if end - pos > LARGEST_VARINT:
        raise MalformedMessage("a varint has more than five bytes")
    return number, end
