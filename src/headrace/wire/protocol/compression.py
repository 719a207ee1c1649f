"""The codecs of record batches: gzip, snappy, lz4 and zstd, each in the framing that Kafka uses.

`decompress` never makes more than `limit` bytes, whatever the compressed bytes claim: the size that
a codec announces is used only below the limit, the others write into buffers that grow up to it.
Snappy has the framing of Java's snappy library (a header, then blocks with their lengths), which
some clients leave out, so reading takes both. LZ4 blocks are independent: Kafka reads no others.
"""

from __future__ import annotations

import zlib
from struct import Struct, error

import cramjam

from headrace.environment import Buffer
from headrace.wire.protocol.errors import MalformedMessage

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

# Kafka's default of `compression.lz4.level`; it means the fast compressor, unlike all other levels.
LZ4_FAST_LEVEL = 9
ZSTD_DEFAULT_LEVEL = 3

_JAVA_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_JAVA_SNAPPY_HEADER = _JAVA_SNAPPY_MAGIC + b"\x00\x00\x00\x01" * 2  # version 1, readable from 1
_JAVA_SNAPPY_BLOCK = 32 * 1024
_GZIP_WINDOW = 31  # 15 bits of window, +16 for the gzip header
_INT32 = Struct(">i")
# A snappy copy takes two bytes and makes at most 64, so a larger claim is false.
_SNAPPY_LARGEST_RATIO = 64


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` in the framing of that codec; `level` as in Kafka's `compression.*.level`."""
    if codec == GZIP:
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
        return packer.compress(data) + packer.flush()
    if codec == SNAPPY:
        return _compress_snappy(data)
    if codec == LZ4:
        fast = level is None or level == LZ4_FAST_LEVEL
        lz4 = cramjam.lz4.Compressor(
            level=0 if fast else level, content_checksum=False, block_linked=False
        )
        lz4.compress(bytes(data))
        return bytes(lz4.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(bytes(data), level=level or ZSTD_DEFAULT_LEVEL))
    if codec == NONE:
        return bytes(data)
    raise ValueError(f"there is no codec {codec}")


def decompress(codec: int, data: Buffer, limit: int) -> bytes:
    """The bytes that were compressed; MalformedMessage if damaged or more than `limit`."""
    try:
        if codec == GZIP:
            return _decompress_gzip(data, limit)
        if codec == SNAPPY:
            return _decompress_snappy(data, limit)
        if codec in (LZ4, ZSTD):
            return _decompress_growing(codec, data, limit)
    except (zlib.error, error, cramjam.DecompressionError) as failure:
        raise MalformedMessage(f"{NAMES[codec]}: {failure}") from failure
    if codec == NONE:
        if len(data) > limit:
            raise _too_large("none", limit)
        return bytes(data)
    raise MalformedMessage(f"there is no codec {codec}")


def _too_large(name: str, limit: int) -> MalformedMessage:
    return MalformedMessage(f"{name}: more than {limit} bytes when decompressed")


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    """All members of a gzip stream, one after the other."""
    parts: list[bytes] = []
    room = limit
    rest: Buffer = data
    while rest:
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        part = unpacker.decompress(rest, room + 1)  # 0 would mean without bound
        room -= len(part)
        if room < 0:
            raise _too_large("gzip", limit)
        if not unpacker.eof:
            raise MalformedMessage("gzip: the stream ends too early")
        parts.append(part)
        rest = unpacker.unused_data
    if not parts:
        raise MalformedMessage("gzip: the stream ends too early")
    return b"".join(parts)


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    pieces = [_JAVA_SNAPPY_HEADER]
    for start in range(0, len(view), _JAVA_SNAPPY_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _JAVA_SNAPPY_BLOCK]))
        pieces += (_INT32.pack(len(block)), block)
    return b"".join(pieces)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if view[: len(_JAVA_SNAPPY_MAGIC)] != _JAVA_SNAPPY_MAGIC:
        return _decompress_snappy_block(view, limit, limit)
    parts: list[bytes] = []
    room = limit
    pos = len(_JAVA_SNAPPY_HEADER)
    if len(view) < pos:
        raise MalformedMessage("snappy: the header ends too early")
    while pos < len(view):
        (length,) = _INT32.unpack_from(view, pos)
        pos += 4
        if not 0 <= length <= len(view) - pos:
            raise MalformedMessage(f"snappy: a block of {length} bytes does not fit")
        part = _decompress_snappy_block(view[pos : pos + length], room, limit)
        room -= len(part)
        pos += length
        parts.append(part)
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, room: int, limit: int) -> bytes:
    """One block, of which at most `room` bytes may come."""
    length = cramjam.snappy.decompress_raw_len(block)
    if length > room:
        raise _too_large("snappy", limit)
    if length > len(block) * _SNAPPY_LARGEST_RATIO:
        raise MalformedMessage(f"snappy: {len(block)} bytes cannot hold {length}")
    return bytes(cramjam.snappy.decompress_raw(block))


def _decompress_growing(codec: int, data: Buffer, limit: int) -> bytes:
    """LZ4 and zstd frames need not say how long the result is: try buffers of growing size."""
    decompress_into = (cramjam.lz4 if codec == LZ4 else cramjam.zstd).decompress_into
    source = bytes(data)
    if not source:
        raise MalformedMessage(f"{NAMES[codec]}: the frame ends too early")
    size = min(limit, max(8 * len(source), 16 * 1024))
    while True:
        out = bytearray(size)
        try:
            return bytes(memoryview(out)[: decompress_into(source, out)])
        except cramjam.DecompressionError as failure:
            # The library has no kind of its own for a full buffer; a test holds it to the text.
            if "whole buffer" not in str(failure):
                raise
            if size >= limit:
                raise _too_large(NAMES[codec], limit) from failure
            size = min(limit, size * 4)
