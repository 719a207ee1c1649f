"""The keys of all records of a batch, in order.

Records of one shape are taken together (`record_runs.py`); the walk over the others is
straight-line, because every record of a compacted log comes through here, mostly twice. Keys of up
to 64 bytes are told as they are, longer ones as a digest of 16 bytes, so that what a key costs is
bounded.
"""

from __future__ import annotations

from hashlib import blake2b

from headrace.protocol.errors import MalformedMessage
from headrace.protocol.primitives import BROKEN, read_zigzag
from headrace.protocol.record_batch import runs as record_runs

LONGEST_KEY = 64
Keys = list[bytes | None]  # None: a record without a key


def digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


def keys_of_batch(data: bytes, pos: int, end: int, count: int) -> tuple[Keys, bool]:
    """Of the records between two positions of `data`; and whether there are tombstones."""
    keys: Keys = []
    tombstones = False
    try:
        for run in record_runs.runs_at(data, pos, end, count):
            keys += run.keys(data, pos)
            tombstones = tombstones or run.has_tombstones(data, pos)
            pos += run.count * run.size
        if len(keys) < count:
            pos, found = _walk(data, pos, count - len(keys), keys)
            tombstones = tombstones or found
    except BROKEN as error:
        raise MalformedMessage(f"record: {error}") from error
    if pos != end:
        raise MalformedMessage("batch: its records do not end where the batch does")
    return keys, tombstones


def _walk(data: bytes, pos: int, count: int, keys: Keys) -> tuple[int, bool]:
    """Record by record; where the next one begins, and whether there were tombstones."""
    tombstones = False
    for _ in range(count):
        length = data[pos]
        pos += 1
        if length > 127:
            second = data[pos]
            if second < 128:
                length += (second << 7) - 128
                pos += 1
            else:
                length, pos = read_zigzag(data, pos - 1)
                length <<= 1
        at = pos + 1  # attributes
        pos += length >> 1
        while data[at] > 127:  # timestamp delta
            at += 1
        at += 1
        while data[at] > 127:  # offset delta
            at += 1
        at += 1
        key_length = data[at]
        if key_length == 1:  # no key: it has no place in a compacted log
            keys.append(None)
            continue
        if key_length > 127:
            key_length, at = read_zigzag(data, at)
        else:
            key_length >>= 1
            at += 1
        stop = at + key_length
        if stop >= pos:
            raise MalformedMessage("record: its key does not fit")
        if data[stop] == 1:  # no value
            tombstones = True
        key = data[at:stop]
        keys.append(key if key_length <= LONGEST_KEY else digest(key))
    return pos, tombstones


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
        flags[number] = data[at + max(key_length, 0)] != 1
    return flags
