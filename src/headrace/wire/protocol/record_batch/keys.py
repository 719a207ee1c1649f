"""The keys of all records of a batch, in order.

Records of one shape are taken together (`runs.py`); the walk over the others is
straight-line, because every record of a compacted log comes through here, mostly twice. Keys of up
to 64 bytes are given unchanged, longer ones as a digest of 16 bytes, so that the memory of a key is
bounded.
"""

from __future__ import annotations

from hashlib import blake2b

from headrace.environment import Buffer
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.primitives import BROKEN, read_zigzag
from headrace.wire.protocol.record_batch import runs
from headrace.wire.protocol.record_batch.fast_walks import (
    check_headers,
    skip_bytes,
)
from headrace.wire.protocol.record_batch.header import read_header
from headrace.wire.protocol.record_batch.records import payload_of, read_varint

LONGEST_KEY = 64
Keys = list[bytes | None]  # None: a record without a key


def digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


def short(key: bytes) -> bytes:
    return key if len(key) <= LONGEST_KEY else digest(key)


def keys_of_batch(data: bytes, pos: int, end: int, count: int) -> tuple[Keys, bool]:
    """Returns the keys of the records from `pos` to `end`, and whether any is a tombstone.

    MalformedMessage for exactly what `walk` refuses.
    """
    keys: Keys = []
    tombstones = False
    try:
        # Records of one shape (equal lengths of all fields) have equal distances, so one slice
        # takes a field of all of them. tests/unit/wire/protocol/test_record_runs.py compares with
        # `walk`.
        for run in runs.runs_at(data, pos, end, count):
            keys += run.keys(data, pos)
            tombstones = tombstones or run.is_of_tombstones
            pos += run.count * run.size
        if len(keys) < count:
            pos, found = _walk(data, pos, count - len(keys), keys)
            tombstones = tombstones or found
    except BROKEN as error:
        raise MalformedMessage(f"record: {error}") from error
    if pos != end or count < 0:
        raise MalformedMessage("batch: its records do not end where the batch does")
    return keys, tombstones


def _walk(data: bytes, pos: int, count: int, keys: Keys) -> tuple[int, bool]:
    """Walk record by record; returns where the next one begins, and whether there were tombstones.

    Fields follow one another and the last of them must end where the record does, so none needs to
    be compared with the end; the caller compares the end of the last record with the batch's. Most
    records have a value and no headers. Then the length of the value follows from its position, and
    is only compared: this takes a sixth less time than to step over it.
    """
    tombstones = False
    append, half = keys.append, HALF
    for _ in range(count):
        length = data[pos]
        if length < 128:
            at = pos + 2  # behind the length and the attributes
            stop = pos + 1 + half[length]
        elif (second := data[pos + 1]) < 128:
            at = pos + 3
            stop = pos - 62 + half[length] + (second << 6)
        else:  # of 8 KiB and more, or its length has more bytes than it needs
            pos, found = _long_record(data, pos, keys)
            tombstones = tombstones or found
            continue
        if data[at] < 128:  # timestamp delta
            at += 1
        elif data[at + 1] < 128:
            at += 2
        else:
            _, at = read_zigzag(data, at)
        if data[at] < 128:  # offset delta
            at += 1
        elif data[at + 1] < 128:
            at += 2
        else:
            _, at = read_varint(data, at)
        number = data[at]
        if number & 129:
            at = _unusual_key(data, at, keys)
        else:
            begin = at + 1
            at = begin + (number >> 1)
            append(data[begin:at])
        number = data[at]
        if number > 127:
            # It has two bytes: with a third one, the record would be a long one.
            as_expected = number + (data[at + 1] << 7) - 122 == stop - at << 1
        else:
            as_expected = number + 4 == stop - at << 1
        if not as_expected or data[stop - 1]:
            has_value, at = skip_bytes(data, at)
            check_headers(data, at, stop)
            tombstones = tombstones or not (has_value or keys[-1] is None)
        pos = stop
    return pos, tombstones


# Half of a length's first byte; a negative one, which is odd, ends behind every batch.
HALF = [number >> 1 if number % 2 == 0 else 1 << 62 for number in range(256)]


def _long_record(data: bytes, pos: int, keys: Keys) -> tuple[int, bool]:
    """As `_walk`, for one record whose length has three bytes or more."""
    length, at = read_varint(data, pos)
    if length < 0:
        raise MalformedMessage("record: a negative length")
    stop = at + length
    _, at = read_zigzag(data, at + 1)
    _, at = read_varint(data, at)
    at = _unusual_key(data, at, keys)
    has_value, at = skip_bytes(data, at)
    check_headers(data, at, stop)
    return stop, not (has_value or keys[-1] is None)


def _unusual_key(data: bytes, at: int, keys: Keys) -> int:
    """No key, which has no place in a compacted log, or a long one; where it ends."""
    length, begin = read_varint(data, at)
    end = begin + max(length, 0)
    keys.append(short(data[begin:end]) if length >= 0 else None)
    return end


def every_record_has_key(batch: Buffer, max_bytes: int) -> bool:
    """Returns whether every record has a key, as compacted topics demand; MalformedMessage for a
    batch that `walk` refuses, which compaction could never process."""
    header = read_header(batch)
    data = bytes(payload_of(batch, header, max_bytes))
    keys, _ = keys_of_batch(data, 0, len(data), header.record_count)
    return None not in keys


def require_records(batch: Buffer, max_bytes: int) -> None:
    """MalformedMessage for what `walk` refuses, and for offsets that do not count up from 0."""
    header = read_header(batch)
    data = bytes(payload_of(batch, header, max_bytes))
    keys_of_batch(data, 0, len(data), header.record_count)
    deltas = offset_deltas(data, 0, header.record_count, header.last_offset_delta)
    if deltas != list(range(header.record_count)):
        raise MalformedMessage("batch: the offsets of its records do not count up from 0")


def offset_deltas(data: bytes, pos: int, count: int, last: int) -> list[int]:
    """Returns the offset deltas of records that were checked before; `last` is the batch's own."""
    deltas = []
    for _ in range(count):
        length, at = read_zigzag(data, pos)
        pos = at + length
        _, at = read_zigzag(data, at + 1)
        delta, _ = read_zigzag(data, at)
        if not 0 <= delta <= last:
            raise MalformedMessage("record: its offset lies outside its batch")
        deltas.append(delta)
    return deltas


def values_of_batch(data: bytes, pos: int, count: int) -> bytearray:
    """1 for each record that has a value, 0 for a tombstone; they are known to be whole."""
    flags = bytearray(count)
    for number in range(count):
        length, at = read_zigzag(data, pos)
        pos = at + length
        _, at = read_zigzag(data, at + 1)
        _, at = read_zigzag(data, at)
        key_length, at = read_zigzag(data, at)
        flags[number] = not data[at + max(key_length, 0)] & 1  # its sign
    return flags
