"""Chooses the reader for a file of a data folder by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from headrace.node.consensus import recovery_point
from headrace.node.storage import checkpoints
from headrace.node.storage.compaction.compaction_gaps import GAPS
from headrace.operations.files.dump.batches import batch_rows
from headrace.operations.files.dump.rows import Row
from headrace.operations.files.dump.small_files import (
    epoch_rows,
    gap_rows,
    json_rows,
    offset_index_rows,
    offset_rows,
    producer_rows,
    property_rows,
    recovery_point_rows,
    time_index_rows,
    topic_id_rows,
    transaction_index_rows,
)
from headrace.wire.protocol.errors import MalformedMessage


class CannotRead(Exception):
    """The file cannot be opened, or no data folder has such a file."""


BY_NAME: dict[str, Callable[[Path], Iterator[Row]]] = {
    checkpoints.LEADER_EPOCHS: epoch_rows,
    checkpoints.RECOVERY_POINTS: offset_rows,
    checkpoints.START_OFFSETS: offset_rows,
    checkpoints.HIGH_WATERMARKS: offset_rows,
    checkpoints.CLEANED_OFFSETS: offset_rows,
    GAPS: gap_rows,
    checkpoints.PARTITION_METADATA: topic_id_rows,
    checkpoints.META_PROPERTIES: property_rows,
    checkpoints.CLEAN_SHUTDOWN: json_rows,
    "quorum-state": json_rows,
    recovery_point.FILE_NAME: recovery_point_rows,
}
BY_SUFFIX: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".index": offset_index_rows,
    ".timeindex": time_index_rows,
    ".txnindex": transaction_index_rows,
    ".snapshot": producer_rows,
}
BATCH_SUFFIXES = (".log", ".checkpoint")
_UNREADABLE = (MalformedMessage, checkpoints.MalformedCheckpoint, ValueError)


def rows_of(path: Path, *, records: bool) -> Iterator[Row]:
    """The file's contents; a part that cannot be understood is a row with its damage."""
    reader = BY_NAME.get(path.name) or BY_SUFFIX.get(path.suffix)
    if reader is None and path.suffix not in BATCH_SUFFIXES:
        raise CannotRead(f"{path} is none of the files that a Kafka data folder has.")
    try:
        yield from batch_rows(path, records=records) if reader is None else reader(path)
    except OSError as failure:
        raise CannotRead(f"Cannot read {path}: {failure.strerror}.") from failure
    except _UNREADABLE as failure:
        yield Row("file", {}, str(failure))
