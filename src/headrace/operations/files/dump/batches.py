"""`.log` files and KRaft's `.checkpoint` snapshots: batches, and the records in them if asked.

Batches are read one at a time, so a file may have any length. Damage is reported and not skipped:
after a batch with a bad length the next batch cannot be found.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from headrace.node.coordination.records import RecordCodec
from headrace.node.metadata import records as metadata_records
from headrace.operations.files.dump.internal_topics import codecs_of, in_words
from headrace.operations.files.dump.rows import Row, moment
from headrace.wire.protocol.compression import NAMES as COMPRESSIONS
from headrace.wire.protocol.control_records import ControlKind, kind_of, read_control_record
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    Record,
    crc_is_right,
    read_header,
    walk,
)

# A record is at most as long as max.message.bytes says; no cluster sets more than this.
LARGEST_PAYLOAD_BYTES = 1 << 30
METADATA_TOPIC = "__cluster_metadata"


def batch_rows(path: Path, *, records: bool) -> Iterator[Row]:
    folder = path.absolute().parent.name
    is_metadata = path.suffix == ".checkpoint" or folder.startswith(METADATA_TOPIC)
    codecs = codecs_of(folder)
    with path.open("rb") as file:
        end = path.stat().st_size
        position = 0
        while position < end:
            batch, damage = _next_batch(file, end - position)
            if batch is None:
                yield Row("rest", {"position": position, "bytes": end - position}, damage)
                return
            header = read_header(batch)
            good = crc_is_right(batch)
            yield _batch_row(header, position, None if good else "the CRC does not fit")
            if records and good:
                yield from _record_rows(batch, header, is_metadata, codecs)
            position += len(batch)


def _next_batch(file: BinaryIO, left: int) -> tuple[bytes | None, str | None]:
    """The next whole batch, or the reason why there is none."""
    head = file.read(HEADER_SIZE)
    if not any(head):
        return None, "zeros: space that was allocated and never written"
    try:
        header = read_header(head)
    except MalformedMessage as problem:
        return None, str(problem)
    if header.size > left:
        return None, f"torn: a batch of {header.size} bytes begins here, {left} are there"
    return head + file.read(header.size - HEADER_SIZE), None


def _batch_row(header: BatchHeader, position: int, damage: str | None) -> Row:
    has_producer = header.producer_id >= 0
    flags = [
        name
        for name, is_set in (
            ("control", header.is_control),
            ("transactional", header.is_transactional),
            ("log-append-time", header.has_log_append_time),
        )
        if is_set
    ]
    codec = header.compression
    values = {
        "first_offset": header.base_offset,
        "last_offset": header.last_offset,
        "position": position,
        "bytes": header.size,
        "records": header.record_count,
        "epoch": header.leader_epoch,
        "compression": COMPRESSIONS[codec] if codec < len(COMPRESSIONS) else codec,
        "newest": moment(header.max_timestamp),
        "producer": header.producer_id if has_producer else None,
        "producer_epoch": header.producer_epoch if has_producer else None,
        "sequence": header.base_sequence if has_producer else None,
        "flags": ",".join(flags) or None,
        "crc": header.crc,
    }
    return Row("batch", values, damage)


def _record_rows(
    batch: bytes, header: BatchHeader, is_metadata: bool, codecs: tuple[RecordCodec, ...]
) -> Iterator[Row]:
    try:
        for record in walk(batch, LARGEST_PAYLOAD_BYTES):
            yield _record_row(record, header, is_metadata, codecs)
    except MalformedMessage as problem:
        yield Row("records", {}, str(problem), indent=1)


def _record_row(
    record: Record, header: BatchHeader, is_metadata: bool, codecs: tuple[RecordCodec, ...]
) -> Row:
    values: dict[str, Any] = {"offset": record.offset, "time": moment(record.timestamp)}
    if header.is_control:
        return Row("control", values | _control_values(record), indent=1)
    if is_metadata:
        return Row("record", values | _metadata_values(record), indent=1)
    words = in_words(codecs, record.key, record.value) if codecs and record.key else None
    if words is not None:
        values["key"], values["value"] = words
        return Row("record", values, indent=1)
    values["key"] = shown(record.key)
    values["value"] = shown(record.value)
    if record.headers:
        values["headers"] = {header.key: shown(header.value) for header in record.headers}
    return Row("record", values, indent=1)


def _control_values(record: Record) -> dict[str, Any]:
    kind = kind_of(record)
    name = ControlKind(kind).name if kind in ControlKind._value2member_map_ else str(kind)
    message = read_control_record(record)
    return {"says": name} | ({"message": repr(message)} if message is not None else {})


def _metadata_values(record: Record) -> dict[str, Any]:
    return {"message": repr(metadata_records.decode(record.value or b""))}


def shown(value: bytes | None) -> str | None:
    """The value as text, or as escapes if it is not text; None if there is no value."""
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return repr(value)
    return text if text.isprintable() else repr(text)
