"""Record batches of the metadata log and its snapshots: written whole, read back one by one.

A batch holds either metadata records or control records, never both. It is the unit of atomicity:
all records of one decision are in one batch, and an incomplete batch does not survive recovery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from headrace.node.metadata import records as metadata_records
from headrace.wire.protocol.control_records import control_record, read_control_record
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.record_batch import (
    BatchHeader,
    build,
    build_values,
    crc_is_right,
    headers_in,
    walk,
)

# Apache's raft client refuses larger batches of the metadata log.
LARGEST_BATCH = 8 << 20


class Batch(NamedTuple):
    base_offset: int
    last_offset: int
    epoch: int
    wall_ms: int
    is_control: bool
    records: list[Any]  # messages; None for a control record of a kind that is not the quorum's


def metadata_batch(
    records: Iterable[Any], *, base_offset: int, epoch: int, wall_ms: int, metadata_version: int
) -> bytes:
    values = encoded(records, metadata_version)
    return build_values(values, base_offset=base_offset, leader_epoch=epoch, wall_ms=wall_ms)


def encoded(records: Iterable[Any], metadata_version: int) -> list[bytes]:
    """The values of the records in the log."""
    values = []
    for record in records:
        values.append(metadata_records.encode(record, metadata_version))
    return values


def control_batch(messages: Iterable[Any], *, base_offset: int, epoch: int, wall_ms: int) -> bytes:
    entries = [control_record(message, timestamp=wall_ms) for message in messages]
    return build(entries, base_offset=base_offset, leader_epoch=epoch, is_control=True)


def batches_in(data: memoryview) -> Iterator[Batch]:
    """The whole batches in `data`; one that is cut at the end is left out."""
    for at, header in headers_in(data):
        view = data[at : at + header.size]
        if not crc_is_right(view):
            raise MalformedMessage(f"the batch at offset {header.base_offset} fails its checksum")
        yield _read_batch(header, view)


def whole_batches(data: bytes) -> bytes:
    """Returns the whole batches, without one that a fetch limit has cut at the end."""
    ends = [at + header.size for at, header in headers_in(data)]
    return data[: ends[-1]] if ends else b""


def _read_batch(header: BatchHeader, view: memoryview) -> Batch:
    entries = walk(view, LARGEST_BATCH)
    if header.is_control:
        records = [read_control_record(entry) for entry in entries]
    else:
        records = [metadata_records.decode(entry.value or b"") for entry in entries]
    return Batch(
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.max_timestamp,
        header.is_control,
        records,
    )
