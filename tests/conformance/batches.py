"""Record batches, right and wrong in every field, and the reading of what a fetch returns.

Written without `headrace.wire.protocol.record_batch`, so that a mistake there is not made twice.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import cramjam
import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")  # 61 bytes; base offset ... record count
LOG_OVERHEAD = 12  # base offset and length, which the length does not count
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONTROL = 1 << 5
TRANSACTIONAL = 1 << 4
LOG_APPEND_TIME = 1 << 3


def varint(value: int) -> bytes:
    """Zigzag, as in records."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def field(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


@dataclass(slots=True)
class R:
    """One record of a batch to be built."""

    value: bytes | None = b"value"
    key: bytes | None = b"key"
    time_delta: int = 0
    headers: tuple[tuple[bytes, bytes | None], ...] = ()

    def encode(self, offset_delta: int) -> bytes:
        body = b"\0" + varint(self.time_delta) + varint(offset_delta)
        body += field(self.key) + field(self.value) + varint(len(self.headers))
        for name, value in self.headers:
            body += field(name) + field(value)
        return varint(len(body)) + body


def compressed(codec: str, data: bytes) -> bytes:
    match codec:
        case "gzip":
            return gzip.compress(data, mtime=0)
        case "snappy":
            return bytes(cramjam.snappy.compress_raw(data))
        case "lz4":
            # Java's reader knows no frames whose blocks depend on each other.
            packer = cramjam.lz4.Compressor(block_linked=False)
            packer.compress(data)
            return bytes(packer.finish())
        case "zstd":
            return bytes(cramjam.zstd.compress(data))
    return data


def decompressed(codec: str, data: bytes) -> bytes:
    match codec:
        case "gzip":
            return gzip.decompress(data)
        case "snappy":
            return unsnapped(data)
        case "lz4":
            return bytes(cramjam.lz4.decompress(data))
        case "zstd":
            return bytes(cramjam.zstd.decompress(data))
    return data


def unsnapped(data: bytes) -> bytes:
    """Raw, or in the frames of the Java library: a 16-byte header, then lengths and blocks."""
    if not data.startswith(b"\x82SNAPPY\0"):
        return bytes(cramjam.snappy.decompress_raw(data))
    out, position = b"", 16
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        out += bytes(cramjam.snappy.decompress_raw(data[position : position + length]))
        position += length
    return out


def build(
    *records: R,
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    codec: str = "none",
    attributes: int = 0,
    base_timestamp: int = 1_700_000_000_000,
    max_timestamp: int | None = None,
    last_offset_delta: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    count: int | None = None,
    length_error: int = 0,
    crc_error: int = 0,
    payload: bytes | None = None,
) -> bytes:
    """A batch; whatever is given in its header stands there, right or wrong."""
    body = b"".join(record.encode(index) for index, record in enumerate(records))
    data = compressed(codec, body) if payload is None else payload
    latest = base_timestamp + max((record.time_delta for record in records), default=0)
    after_crc = struct.pack(
        ">hiqqqhii",
        attributes | CODECS.index(codec),
        len(records) - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        latest if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records) if count is None else count,
    )
    after_crc += data
    crc = crc32c.crc32c(after_crc) ^ crc_error
    length = 4 + 1 + 4 + len(after_crc) + length_error
    return struct.pack(">qiibI", base_offset, length, leader_epoch, magic, crc) + after_crc


def message_set(magic: int, value: bytes = b"old") -> bytes:
    """One message in the format of Kafka before 0.11."""
    body = struct.pack(">bb", magic, 0)
    if magic == 1:
        body += struct.pack(">q", 1_700_000_000_000)
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


class Cursor:
    """Reads varints."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def byte(self) -> int:
        self.position += 1
        return self.data[self.position - 1]

    def varint(self) -> int:
        shift = value = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def field(self) -> bytes | None:
        length = self.varint()
        if length < 0:
            return None
        self.position += length
        return self.data[self.position - length : self.position]


def read_records(data: bytes, count: int) -> list[dict[str, Any]]:
    cursor = Cursor(data)
    records = []
    for _ in range(count):
        cursor.varint()
        cursor.byte()
        time_delta, offset_delta = cursor.varint(), cursor.varint()
        key, value = cursor.field(), cursor.field()
        headers = [(cursor.field(), cursor.field()) for _ in range(cursor.varint())]
        records.append(
            {
                "time_delta": time_delta,
                "offset_delta": offset_delta,
                "key": key,
                "value": value,
                "headers": headers,
            }
        )
    assert cursor.position == len(data), "bytes behind the last record"
    return records


def readable_records(codec: str, data: bytes, count: int) -> list[dict[str, Any]] | str:
    """The records, or that they are none: a broker may have taken such a batch."""
    try:
        records = read_records(decompressed(codec, data), count)
        for record in records:
            if record["value"] is not None and len(record["value"]) > 100:
                record["value"] = f"{len(record['value'])} bytes"
        return records
    except (AssertionError, IndexError, OSError, EOFError, cramjam.DecompressionError):
        return "unreadable"


def read_batches(data: bytes) -> list[dict[str, Any]]:
    """Each whole batch as its fields; a cut one at the end as how much of it is there."""
    batches: list[dict[str, Any]] = []
    position = 0
    while position < len(data):
        rest = data[position:]
        if len(rest) < 61 or len(rest) < 12 + struct.unpack_from(">i", rest, 8)[0]:
            # How far beyond the last whole batch a broker reads is its own affair.
            batches.append({"cut": True})
            break
        head = HEADER.unpack_from(rest)
        size = LOG_OVERHEAD + head[1]
        codec = CODECS[head[5] & 7]
        records = readable_records(codec, rest[61:size], head[12])
        batches.append(
            {
                "base_offset": head[0],
                "leader_epoch": head[2],
                "magic": head[3],
                "crc_is_right": head[4] == crc32c.crc32c(rest[21:size]),
                "codec": codec,
                "attributes": head[5] & ~7,
                "last_offset_delta": head[6],
                "base_timestamp": head[7],
                "max_timestamp": head[8],
                "producer": (head[9], head[10], head[11]),
                "records": records,
            }
        )
        position += size
    return batches
