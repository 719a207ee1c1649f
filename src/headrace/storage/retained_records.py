"""What is left of one batch when compaction has looked at its records.

A batch that keeps all its records stays as it is, to the byte. One that loses some keeps its base
and last offset, sequence, epoch, compression and the bytes of the other records. Tombstones stay
for `delete.retention.ms` from the first compaction that met them: the batch then gets the time at
which they may go as its base timestamp, and a bit in its attributes that says so (KIP-534).
"""

from __future__ import annotations

from headrace.protocol import compression
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.primitives import BROKEN, read_zigzag, zigzag
from headrace.protocol.record_batch import (
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    SMALLEST_LENGTH,
    TRANSACTIONAL,
    seal,
)
from headrace.storage.last_of_keys import LONGEST_KEY, LastOfKeys, digest

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp, max
# timestamp, producer id, producer epoch, base sequence, count: as `HEADER` unpacks them
Fields = tuple[int, ...]
Runs = list[tuple[int, int]]  # stretches of records that stay, side by side


def survivors(
    data: bytes,
    pos: int,
    end: int,
    last_of_keys: LastOfKeys,
    *,
    number: int,
    count: int,
    keep_tombstones: bool,
) -> tuple[Runs, int, bool]:
    """The records between two positions of `data` that no later batch replaces: where they lie, how
    many they are, and whether there are tombstones among them. `number` is that of their batch."""
    runs: Runs = []
    kept = 0
    tombstones = False
    run_from = -1
    last_of = last_of_keys.batches.get
    try:
        for _ in range(count):
            start = pos
            length = data[pos]
            pos += 1
            if length > 127:
                second = data[pos]
                if second < 128:
                    length += (second << 7) - 128
                    pos += 1
                else:
                    length, pos = read_zigzag(data, start)
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
            keep = False
            if key_length != 1:  # a record without a key has no place in a compacted log
                if key_length > 127:
                    key_length, at = read_zigzag(data, at)
                else:
                    key_length >>= 1
                    at += 1
                stop = at + key_length
                if stop >= pos:
                    raise MalformedMessage("record: its key does not fit")
                key = data[at:stop]
                if key_length > LONGEST_KEY:
                    key = digest(key)
                if last_of(key, number) == number:
                    if data[stop] != 1:
                        keep = True
                    elif keep_tombstones:
                        keep = tombstones = True
            if keep:
                kept += 1
                if run_from < 0:
                    run_from = start
            elif run_from >= 0:
                runs.append((run_from, start))
                run_from = -1
    except BROKEN as error:
        raise MalformedMessage(f"record: {error}") from error
    if pos != end:
        raise MalformedMessage("batch: its records do not end where the batch does")
    if run_from >= 0:
        runs.append((run_from, pos))
    return runs, kept, tombstones


def without_repeats(data: bytes, pos: int, end: int) -> tuple[bytes, int]:
    """Only the last record of each key of one batch, and how many; those without a key go, too."""
    last: dict[bytes, bytes] = {}
    while pos < end:
        start = pos
        length, at = read_zigzag(data, pos)
        pos = at + length
        _, at = read_zigzag(data, at + 1)
        _, at = read_zigzag(data, at)
        key_length, at = read_zigzag(data, at)
        if key_length >= 0:
            key = data[at : at + key_length]
            last.pop(key, None)  # so that the order stays that of the offsets
            last[key] = data[start:pos]
    return b"".join(last.values()), len(last)


def rebuilt(
    fields: Fields, data: bytes, runs: Runs, count: int, *, new_horizon: int | None
) -> bytes:
    """The batch with only these records, and with a delete horizon if it is to get one."""
    base, _, epoch, _, _, attributes, last_delta, base_time, max_time, *producer, _ = fields
    if not attributes & LOG_APPEND_TIME:
        max_time = max(_timestamps(data, runs, base_time), default=NO_TIMESTAMP)
    if new_horizon is None:
        body = b"".join([data[start:stop] for start, stop in runs])
    else:
        body = _retimed(data, runs, base_time - new_horizon)
        base_time = new_horizon
        attributes |= DELETE_HORIZON
    codec = attributes & COMPRESSION_MASK
    payload = compression.compress(codec, body) if codec else body
    return _batch(
        (base, len(payload) + SMALLEST_LENGTH, epoch, MAGIC, 0, attributes, last_delta, base_time)
        + (max_time, *producer, count),
        payload,
    )


def emptied(fields: Fields) -> bytes:
    """Only the header: it tells where the log or a producer has got to. As Apache writes it."""
    base, _, epoch, _, _, attributes, last_delta, _, max_time, *producer, _ = fields
    attributes &= LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
    return _batch(
        (base, SMALLEST_LENGTH, epoch, MAGIC, 0, attributes, last_delta, NO_TIMESTAMP, max_time)
        + (*producer, 0),
        b"",
    )


def _batch(fields: Fields, payload: bytes) -> bytes:
    batch = bytearray(HEADER.pack(*fields))
    batch += payload
    seal(batch)
    return bytes(batch)


def _timestamps(data: bytes, runs: Runs, base_time: int) -> list[int]:
    found = []
    for pos, stop in runs:
        while pos < stop:
            length, pos = read_zigzag(data, pos)
            found.append(base_time + read_zigzag(data, pos + 1)[0])
            pos += length
    return found


def _retimed(data: bytes, runs: Runs, shift: int) -> bytes:
    """The same records for a base timestamp that lies `shift` earlier."""
    pieces: list[bytes] = []
    for pos, stop in runs:
        while pos < stop:
            length, pos = read_zigzag(data, pos)
            delta, rest = read_zigzag(data, pos + 1)
            head = data[pos : pos + 1] + zigzag(delta + shift)
            pos += length
            pieces += (zigzag(len(head) + pos - rest), head, data[rest:pos])
    return b"".join(pieces)
