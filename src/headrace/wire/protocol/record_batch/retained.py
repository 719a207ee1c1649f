"""The remaining records of one batch after compaction.

A batch that keeps all its records stays as it is, to the byte. One that loses some keeps its base
and last offset, sequence, epoch, compression and the bytes of the other records. Tombstones stay
for `delete.retention.ms` from the first compaction that met them: the batch then gets the time at
which they may go as its base timestamp, and a bit in its attributes that says so (KIP-534).
"""

from __future__ import annotations

from itertools import compress

from headrace.wire.protocol import compression
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.primitives import BROKEN, read_zigzag, zigzag
from headrace.wire.protocol.record_batch import runs as record_runs
from headrace.wire.protocol.record_batch.builder import with_payload
from headrace.wire.protocol.record_batch.header import (
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    SMALLEST_LENGTH,
    TRANSACTIONAL,
    Fields,
)

Runs = list[tuple[int, int]]  # stretches of records that stay, side by side


def records_at(data: bytes, pos: int, end: int, flags: bytes | bytearray) -> Runs:
    """Returns where the records are whose flag is 1; `flags` has one flag for each record."""
    runs: Runs = []
    number, count = 0, len(flags)
    try:
        for run in record_runs.runs_at(data, pos, end, count):
            size, stop = run.size, pos + run.count * run.size
            at_bytes = compress(range(pos, stop, size), flags[number : number + run.count])
            runs += [(at_byte, at_byte + size) for at_byte in at_bytes]
            number, pos = number + run.count, stop
        if number < count:
            pos = _walk(data, pos, flags[number:], runs)
    except BROKEN as error:
        raise MalformedMessage(f"record: {error}") from error
    if pos > end:
        raise MalformedMessage("batch: its records do not end where the batch does")
    return runs


def _walk(data: bytes, pos: int, flags: bytes | bytearray, runs: Runs) -> int:
    """Step from record to record by their lengths alone, as far as there are records that stay;
    returns how far that is."""
    number, run_from = 0, -1
    for wanted in compress(range(len(flags)), flags):
        if run_from >= 0 and wanted != number:
            runs.append((run_from, pos))
            run_from = -1
        while number <= wanted:
            start = pos
            length = data[pos]
            if length < 128:
                pos += 1 + (length >> 1)
            elif data[pos + 1] < 128:
                pos += 2 + (length + (data[pos + 1] << 7) - 128 >> 1)
            else:
                length, pos = read_zigzag(data, pos)
                pos += length
            number += 1
        if run_from < 0:
            run_from = start
    if run_from >= 0:
        runs.append((run_from, pos))
    return pos


def rebuilt(
    fields: Fields, data: bytes, runs: Runs, count: int, *, new_horizon: int | None
) -> bytes:
    """The batch with only these records, and with a delete horizon if it is to get one."""
    base, _, epoch, _, _, attributes, last_delta, base_time, max_time, *producer, _ = fields
    if not attributes & LOG_APPEND_TIME:
        max_time = _largest_timestamp(data, runs, base_time, max_time)
    if new_horizon is None:
        body = b"".join([data[start:stop] for start, stop in runs])
    else:
        body = _retimed(data, runs, base_time - new_horizon)
        base_time = new_horizon
        attributes |= DELETE_HORIZON
    codec = attributes & COMPRESSION_MASK
    payload = compression.compress(codec, body) if codec else body
    return with_payload(
        (base, len(payload) + SMALLEST_LENGTH, epoch, MAGIC, 0, attributes, last_delta, base_time)
        + (max_time, *producer, count),
        payload,
    )


def emptied(fields: Fields) -> bytes:
    """Returns only the header, as Apache writes it: it marks the end of the log or of a producer's
    records."""
    base, _, epoch, _, _, attributes, last_delta, _, max_time, *producer, _ = fields
    attributes &= LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
    return with_payload(
        (base, SMALLEST_LENGTH, epoch, MAGIC, 0, attributes, last_delta, NO_TIMESTAMP, max_time)
        + (*producer, 0),
        b"",
    )


def _largest_timestamp(data: bytes, runs: Runs, base_time: int, at_most: int) -> int:
    """Returns the largest timestamp of the records. Begins at the end: the last are mostly the
    youngest, and the walk ends when none can be larger."""
    largest, enough = -(1 << 62), at_most - base_time
    for pos, stop in reversed(runs):
        while pos < stop:
            length = data[pos]
            if length < 128:
                length >>= 1
                pos += 1
            else:
                length, pos = read_zigzag(data, pos)
            delta = data[pos + 1]
            if delta < 128:
                delta = delta >> 1 ^ -(delta & 1)
            else:
                delta, _ = read_zigzag(data, pos + 1)
            if delta > largest:
                largest = delta
            pos += length
        if largest >= enough:
            break
    return base_time + largest


def _retimed(data: bytes, runs: Runs, shift: int) -> bytes:
    """Returns the same records for a base timestamp that is `shift` earlier."""
    pieces: list[bytes] = []
    for pos, stop in runs:
        while pos < stop:
            length, pos = read_zigzag(data, pos)
            delta, rest = read_zigzag(data, pos + 1)
            head = data[pos : pos + 1] + zigzag(delta + shift)
            pos += length
            pieces += (zigzag(len(head) + pos - rest), head, data[rest:pos])
    return b"".join(pieces)
