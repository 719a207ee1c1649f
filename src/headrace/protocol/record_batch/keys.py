"""The keys of all records of a batch, in order.

Records of one shape are taken together (`runs.py`); the walk over the others is
straight-line, because every record of a compacted log comes through here, mostly twice. Keys of up
to 64 bytes are told as they are, longer ones as a digest of 16 bytes, so that what a key costs is
bounded.
"""

from __future__ import annotations

from hashlib import blake2b

from headrace.environment import Buffer
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.primitives import BROKEN, read_zigzag
from headrace.protocol.record_batch import runs
from headrace.protocol.record_batch.fast_walks import (
    check_headers,
    require_positive,
    skip_bytes,
)
from headrace.protocol.record_batch.header import read_header
from headrace.protocol.record_batch.records import payload_of, read_varint

LONGEST_KEY = 64
Keys = list[bytes | None]  # None: a record without a key


def digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


def short(key: bytes) -> bytes:
    return key if len(key) <= LONGEST_KEY else digest(key)


def keys_of_batch(data: bytes, pos: int, end: int, count: int) -> tuple[Keys, bool]:
    """Of the records between two positions of `data`; and whether there are tombstones.

    MalformedMessage for exactly what `walk` refuses.
    """
    keys: Keys = []
    tombstones = False
    try:
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
    """Record by record; where the next one begins, and whether there were tombstones.

    Fields follow one another and the last of them must end where the record does, so none needs to
    be compared with the end; the caller compares the end of the last record with the batch's.
    """
    tombstones = False
    for _ in range(count):
        length = data[pos]
        if length < 128:
            at = pos + 2  # behind the length and the attributes
            stop = pos + 1 + (length >> 1)
        elif data[pos + 1] < 128:
            at = pos + 3
            stop = pos + 2 + (length + (data[pos + 1] << 7) - 128 >> 1)
        else:
            number, at = read_varint(data, pos)
            stop = at + number
            at += 1
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
        key_length = data[at]
        if not key_length & 129:
            begin = at + 1
            at = begin + (key_length >> 1)
            keys.append(data[begin:at])
        else:
            key_length, begin = read_varint(data, at)
            at = begin + max(key_length, 0)
            if key_length < 0:  # it has no place in a compacted log
                keys.append(None)
                _, at = skip_bytes(data, at)
                key_length = -1
            else:
                keys.append(short(data[begin:at]))
        if key_length >= 0:
            value_length = data[at]
            if not value_length & 129:
                at += 1 + (value_length >> 1)
            elif not value_length & 1 and data[at + 1] < 128:
                at += 2 + (value_length + (data[at + 1] << 7) - 128 >> 1)
            else:
                has_value, at = skip_bytes(data, at)
                if not has_value:
                    tombstones = True
        if data[at] or at + 1 != stop or length & 1:
            require_positive(length)
            check_headers(data, at, stop)
        pos = stop
    return pos, tombstones


def every_record_has_key(batch: Buffer, max_bytes: int) -> bool:
    """Whether no record lacks a key, as compacted topics demand; MalformedMessage for what `walk`
    refuses: it would be in the way of compaction for ever."""
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
    """Of records that are known to be whole; `last` is the batch's own."""
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
