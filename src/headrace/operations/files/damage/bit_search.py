"""Finds the one bit of a batch whose flip makes its checksum right again, if there is one.

CRC-32C differs for any two batches that differ in one bit, so at most one flip can be right; a
batch with more damage looks as if one flip would repair it once in 2**32 / bits. How a flip changes
the checksum depends only on its distance from the end, so one pass over the length is enough: about
a microsecond per byte.
Base offset, length, leader epoch and magic are not covered by the checksum. The batch's neighbours
determine magic, length and (in a log without holes) base offset.
"""

from __future__ import annotations

from struct import pack_into

from crc32c import crc32c

from headrace.wire.protocol.record_batch import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    CRC_AT,
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_AT,
)

_POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected
# Larger batches would take minutes.
LARGEST = 64 << 20


def _step(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = [_step(byte) for byte in range(256)]


def mended(batch: bytes, *, base_offset: int | None) -> bytes | None:
    """The batch with one bit flipped back, or None. `batch` is all bytes between its good
    neighbours; `base_offset` is the right value, if it is known."""
    if not HEADER_SIZE <= len(batch) <= LARGEST:
        return None
    found = bytearray(batch)
    found[MAGIC_AT] = MAGIC
    pack_into(">i", found, LENGTH_AT, len(batch) - LENGTH_OVERHEAD)
    if base_offset is not None:
        pack_into(">q", found, BASE_OFFSET_AT, base_offset)
    stored = int.from_bytes(found[CRC_AT:ATTRIBUTES_AT], "big")
    difference = crc32c(memoryview(found)[ATTRIBUTES_AT:]) ^ stored
    if difference and difference.bit_count() == 1:
        pack_into(">I", found, CRC_AT, stored ^ difference)  # the checksum itself was damaged
    elif difference:
        bit = _bit_that_makes(difference, len(batch) - ATTRIBUTES_AT)
        if bit is None:
            return None
        found[ATTRIBUTES_AT + bit // 8] ^= 1 << bit % 8
    flips = sum((a ^ b).bit_count() for a, b in zip(batch, found, strict=True))
    return bytes(found) if flips == 1 else None


def _bit_that_makes(difference: int, length: int) -> int | None:
    """The number of the bit in `length` bytes whose flip changes a checksum by `difference`."""
    effects = [_TABLE[1 << bit] for bit in range(8)]  # of the bits of the last byte
    table = _TABLE
    for byte in range(length - 1, -1, -1):
        if difference in effects:
            return byte * 8 + effects.index(difference)
        effects = [(effect >> 8) ^ table[effect & 0xFF] for effect in effects]
    return None
