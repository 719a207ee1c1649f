"""Record batches of format v2, the only one that is written or read.

A batch is a header of 61 bytes and its records, which may be compressed together. The broker keeps
batches opaque: it reads the header, checks the CRC and patches base offset and leader epoch, which
lie before the part that the CRC covers. Only compaction, recompression, the metadata log and tools
look at records, with `walk`. Older formats (message sets of magic 0 and 1) are recognised by their
magic, which lies at the same place, and refused. Storing batches is not done here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct

from crc32c import crc32c

from headrace.environment import Buffer
from headrace.protocol import compression as codecs
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.primitives import BROKEN, read_zigzag, zigzag

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp,
# max timestamp, producer id, producer epoch, base sequence, count
HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
MAGIC = 2
_read_crc = Struct(">I").unpack_from

# Where the fields lie.
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
COUNT_AT = 57

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

# A header as `HEADER` unpacks it, and what stands where in it. No object: each batch has one.
Fields = tuple[int, ...]
(
    BASE, LENGTH, _, FORMAT, CRC, ATTRIBUTES, LAST_DELTA, BASE_TIME, _,
    PRODUCER_ID, PRODUCER_EPOCH, _, COUNT,
) = range(13)  # fmt: skip


class BatchHeader:
    """The fixed part of a batch."""

    __slots__ = (
        "base_offset",
        "length",
        "leader_epoch",
        "magic",
        "crc",
        "attributes",
        "last_offset_delta",
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "count",
    )

    def __init__(
        self,
        base_offset: int,
        length: int,
        leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        count: int,
    ) -> None:
        self.base_offset = base_offset
        self.length = length  # of what follows the length field
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.count = count

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

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)
        return f"BatchHeader({fields})"


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


def read_header(buffer: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`; MalformedMessage if it is cut off, of another magic or too short."""
    if len(buffer) - pos < HEADER_SIZE:
        raise MalformedMessage(f"batch: {len(buffer) - pos} bytes are too few for a header")
    header = BatchHeader(*HEADER.unpack_from(buffer, pos))
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
    """Whether the CRC fits; `batch` is exactly one batch, with at least its header."""
    (crc,) = _read_crc(batch, CRC_AT)
    return bool(crc32c(memoryview(batch)[ATTRIBUTES_AT:]) == crc)


def seal(batch: bytearray) -> None:
    """Write the CRC of a batch whose covered part has been changed."""
    crc = crc32c(memoryview(batch)[ATTRIBUTES_AT:])
    batch[CRC_AT:ATTRIBUTES_AT] = crc.to_bytes(4, "big")


def build(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    compression: int = codecs.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time: bool = False,
    last_offset_delta: int | None = None,
    extra_attributes: int = 0,
) -> bytes:
    """A batch of these records.

    Timestamps default to those of the records; give `max_timestamp` with `log_append_time`.
    `last_offset_delta` is for batches that lost records at the end to compaction.
    """
    if base_timestamp is None:
        base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    if max_timestamp is None:
        max_timestamp = max((r.timestamp for r in records), default=NO_TIMESTAMP)
    body = bytearray()
    delta = -1
    for record in records:
        delta = delta + 1 if record.offset < 0 else record.offset - base_offset
        body += encode_record(record, delta, record.timestamp - base_timestamp)
    payload = codecs.compress(compression, body, level) if compression else bytes(body)
    attributes = compression | extra_attributes
    attributes |= LOG_APPEND_TIME * log_append_time
    attributes |= TRANSACTIONAL * is_transactional
    attributes |= CONTROL * is_control
    batch = bytearray(
        HEADER.pack(
            base_offset,
            len(payload) + SMALLEST_LENGTH,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            delta if last_offset_delta is None else last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    )
    batch += payload
    seal(batch)
    return bytes(batch)


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """One record as it stands in a batch."""
    pieces = [b"\0", zigzag(timestamp_delta), zigzag(offset_delta)]
    _put_bytes(pieces, record.key)
    _put_bytes(pieces, record.value)
    pieces.append(zigzag(len(record.headers)))
    for header in record.headers:
        _put_bytes(pieces, header.key.encode())
        _put_bytes(pieces, header.value)
    body = b"".join(pieces)
    return zigzag(len(body)) + body


def _put_bytes(pieces: list[bytes], value: bytes | None) -> None:
    if value is None:
        pieces.append(b"\x01")  # zigzag of -1
    else:
        pieces += (zigzag(len(value)), value)


def payload_of(batch: Buffer, header: BatchHeader, max_bytes: int) -> Buffer:
    """The records' bytes, decompressed if need be to at most `max_bytes`."""
    if header.size > len(batch):
        raise MalformedMessage(f"batch: {header.size} bytes are announced, {len(batch)} are there")
    data = memoryview(batch)[HEADER_SIZE : header.size]
    if header.compression:
        return codecs.decompress(header.compression, data, max_bytes)
    return data


def walk(batch: Buffer, max_bytes: int) -> Iterator[Record]:
    """The records of one batch, each checked to lie within it.

    Raises MalformedMessage at the first thing that is wrong, also when there are more or fewer
    records than the header says. The CRC is not checked.
    """
    header = read_header(batch)
    data = bytes(payload_of(batch, header, max_bytes))  # slices of bytes are cheaper than of views
    if header.count < 0 or header.count * SMALLEST_RECORD > len(data):
        raise MalformedMessage(f"batch: {header.count} records do not fit {len(data)} bytes")
    stamped = header.max_timestamp if header.has_log_append_time else None
    pos = 0
    for _ in range(header.count):
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
    length, pos = read_zigzag(data, pos)
    end = pos + length
    if length < SMALLEST_RECORD - 1 or end > len(data):
        raise MalformedMessage(f"record: a length of {length} does not fit the batch")
    timestamp_delta, pos = read_zigzag(data, pos + 1)
    offset_delta, pos = read_zigzag(data, pos)
    key, pos = _read_bytes(data, pos, end)
    value, pos = _read_bytes(data, pos, end)
    count, pos = read_zigzag(data, pos)
    if not 0 <= count * 2 <= end - pos:
        raise MalformedMessage(f"record: {count} headers do not fit")
    headers: list[RecordHeader] = []
    for _ in range(count):
        name, pos = _read_bytes(data, pos, end)
        if name is None:
            raise MalformedMessage("record: a header has no name")
        header_value, pos = _read_bytes(data, pos, end)
        headers.append(RecordHeader(name.decode(), header_value))
    if pos != end:
        raise MalformedMessage(f"record: its fields end {end - pos} bytes before its length says")
    timestamp = header.base_timestamp + timestamp_delta if stamped is None else stamped
    return Record(key, value, headers, timestamp, header.base_offset + offset_delta), end


def _read_bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length, pos = read_zigzag(data, pos)
    if length < 0:
        return None, pos
    stop = pos + length
    if stop > end:
        raise MalformedMessage(f"record: {length} bytes do not fit")
    return data[pos:stop], stop


def fields_in(batches: bytes) -> Iterator[tuple[int, Fields]]:
    """Position and header of each whole batch, as `headers_in`, for who reads a million of them:
    the fields as they lie in `HEADER`, in a third of the time."""
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
        for _ in range(fields[COUNT]):
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
        for _ in range(header.count):
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
