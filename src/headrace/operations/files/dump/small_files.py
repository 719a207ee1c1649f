"""Indexes, producer snapshots, checkpoints and properties: everything but the batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from headrace.node.consensus import recovery_point
from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.storage import checkpoints
from headrace.node.storage.compaction.compaction_gaps import gaps_from_bytes
from headrace.node.storage.producer_state import ProducerState
from headrace.node.storage.segments import offset_index, time_index, transaction_index
from headrace.operations.files.dump.rows import Row, moment
from headrace.wire.protocol import uuids


def offset_index_rows(path: Path) -> Iterator[Row]:
    base = base_offset_of(path)
    previous = -1
    for relative, position in _entries(path, offset_index.ENTRY):
        damage = None if relative > previous else "entries do not ascend"
        previous = relative
        yield Row("entry", {"offset": base + relative, "position": position}, damage)


def time_index_rows(path: Path) -> Iterator[Row]:
    base = base_offset_of(path)
    previous = -1
    for timestamp, relative in _entries(path, time_index.ENTRY):
        damage = None if timestamp >= previous else "entries do not ascend"
        previous = timestamp
        values = {"timestamp": timestamp, "time": moment(timestamp), "offset": base + relative}
        yield Row("entry", values, damage)


def _entries(path: Path, entry: Struct) -> Iterator[tuple[int, int]]:
    """The entries; an index in use is longer than its entries, the rest is zeros."""
    data = path.read_bytes()
    whole = len(data) - len(data) % entry.size
    for number, (first, second) in enumerate(entry.iter_unpack(data[:whole])):
        if number and first == 0 and second == 0:
            return
        if (first, second) != (0, 0):
            yield first, second


def transaction_index_rows(path: Path) -> Iterator[Row]:
    data = path.read_bytes()
    entry = transaction_index.ENTRY
    previous = -1
    whole = len(data) - len(data) % entry.size
    for version, *fields in entry.iter_unpack(data[:whole]):
        aborted = transaction_index.Aborted(*fields)
        damage = None
        if version != transaction_index.VERSION:
            damage = f"its version is {version}"
        elif aborted.last_offset <= previous:
            damage = "entries do not ascend"
        previous = aborted.last_offset
        values = {
            "producer": aborted.producer_id,
            "first_offset": aborted.first_offset,
            "marker": aborted.last_offset,
            "last_stable_offset": aborted.last_stable_offset,
        }
        yield Row("aborted", values, damage)
    if whole != len(data):
        yield Row("aborted", {}, "the last entry is torn")


def producer_rows(path: Path) -> Iterator[Row]:
    state = ProducerState(RealDisk(), str(path.parent))
    if not state.from_bytes(path.read_bytes()):
        yield Row("snapshot", {}, "its checksum or its length does not fit")
        return
    for producer_id, producer in state.producers.items():
        open_from = producer.transaction_first_offset
        values = {
            "producer": producer_id,
            "epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.last_offset,
            "time": moment(producer.last_timestamp),
            "coordinator_epoch": producer.coordinator_epoch,
            "open_transaction_from": open_from if open_from >= 0 else None,
        }
        yield Row("producer", values)


def epoch_rows(path: Path) -> Iterator[Row]:
    for epoch, start_offset in checkpoints.epochs_from_bytes(path.read_bytes()):
        yield Row("epoch", {"epoch": epoch, "first_offset": start_offset})


def offset_rows(path: Path) -> Iterator[Row]:
    for (topic, index), offset in checkpoints.offsets_from_bytes(path.read_bytes()).items():
        yield Row("partition", {"topic": topic, "partition": index, "offset": offset})


def gap_rows(path: Path) -> Iterator[Row]:
    """Gaps between segments that compaction has left."""
    gaps = gaps_from_bytes(path.read_bytes())
    if gaps is None:
        raise checkpoints.MalformedCheckpoint("the lines are not pairs of offsets")
    for end, following in sorted(gaps):
        yield Row("gap", {"from": end, "to": following})


def topic_id_rows(path: Path) -> Iterator[Row]:
    topic_id = checkpoints.topic_id_from_bytes(path.read_bytes())
    yield Row("topic", {"id": uuids.to_text(topic_id)})


def property_rows(path: Path) -> Iterator[Row]:
    for name, value in checkpoints.properties_from_bytes(path.read_bytes()).items():
        yield Row("property", {name: value})


def recovery_point_rows(path: Path) -> Iterator[Row]:
    """The recovery point of the metadata log, which has a file of its own for it."""
    try:
        offset = recovery_point.read_recovery_point(RealDisk(), str(path.parent))
    except recovery_point.BadRecoveryPoint as bad:
        raise checkpoints.MalformedCheckpoint(str(bad)) from bad
    yield Row("recovery point", {"offset": offset})


def json_rows(path: Path) -> Iterator[Row]:
    """`quorum-state` and the clean-shutdown file are JSON."""
    for name, value in json.loads(path.read_bytes()).items():
        yield Row("field", {name: value})


def base_offset_of(path: Path) -> int:
    """The base offset: a segment's files are named by its first offset."""
    name = path.name.partition(".")[0]
    return int(name) if name.isdigit() else 0
