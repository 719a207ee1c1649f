"""Snapshots of the metadata: `<offset>-<epoch>.checkpoint`, and `bootstrap.checkpoint`.

A snapshot replaces all records before its end offset. It is a file of record batches: a header, the
quorum's version and voters, the records of the image, a footer; one without a footer is not whole
and does not count. Offsets inside begin at 0. Files appear by rename, so they are whole or absent.

`00000000000000000000-0000000000.checkpoint` names the first voters of a new cluster and is written
by formatting; `bootstrap.checkpoint` holds the first feature levels, for the first leader to write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from headrace.environment import Disk, File
from headrace.node.consensus.batches import batches_in, control_batch, metadata_batch
from headrace.node.consensus.voters import Voter, kraft_version_record, voters_in, voters_record
from headrace.node.storage.segments.batch_scan import BatchScan, DamagedRange
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages.kraft_version_record import KRaftVersionRecord
from headrace.wire.protocol.messages.snapshot_footer_record import SnapshotFooterRecord
from headrace.wire.protocol.messages.snapshot_header_record import SnapshotHeaderRecord
from headrace.wire.protocol.messages.voters_record import VotersRecord
from headrace.wire.protocol.record_batch import CONTROL, HEADER_SIZE, BatchHeader, read_header

BOOTSTRAP_FILE = "bootstrap.checkpoint"
RECORDS_PER_BATCH = 1_000

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    end_offset: int  # the first offset that is not contained
    epoch: int  # of the last record that is contained

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


@dataclass(slots=True)
class Snapshot:
    last_contained_ms: int = 0
    kraft_version: int = 0
    voters: tuple[Voter, ...] = ()
    records: list[Any] = field(default_factory=list)


def snapshot_batches(
    records: Iterable[Any],
    *,
    epoch: int,
    last_contained_ms: int,
    wall_ms: int,
    metadata_version: int,
    kraft_version: int | None = None,
    voters: tuple[Voter, ...] = (),
) -> Iterator[bytes]:
    """The content of a snapshot file, batch by batch."""
    head: list[Any] = [
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_ms)
    ]
    if kraft_version:
        head += [kraft_version_record(kraft_version), voters_record(voters)]
    yield control_batch(head, base_offset=0, epoch=epoch, wall_ms=wall_ms)
    offset = len(head)
    rest = iter(records)
    while chunk := list(islice(rest, RECORDS_PER_BATCH)):
        yield metadata_batch(
            chunk,
            base_offset=offset,
            epoch=epoch,
            wall_ms=wall_ms,
            metadata_version=metadata_version,
        )
        offset += len(chunk)
    foot = [SnapshotFooterRecord(version=0)]
    yield control_batch(foot, base_offset=offset, epoch=epoch, wall_ms=wall_ms)


@dataclass(slots=True)
class SnapshotWork:
    """A snapshot to be written on another thread (`run`) and then noted on the loop (`finish`).

    `run` reads only an image and the paths, which do not change.
    """

    disk: Disk
    path: str
    batches: Iterator[bytes]
    noted: Callable[[OSError | None], None]

    def run(self) -> None:
        self.disk.write_file(self.path, self.batches)

    def finish(self, error: OSError | None) -> None:
        self.noted(error)


def read_snapshot(data: bytes, name: str) -> Snapshot:
    """Raises MalformedMessage if it is not whole."""
    snapshot = Snapshot()
    last: Any = None
    for batch in batches_in(memoryview(data)):
        last = batch.records[-1]
        if batch.is_control:
            for message in batch.records:
                _note(snapshot, message)
        else:
            snapshot.records += batch.records
    if not isinstance(last, SnapshotFooterRecord):
        raise MalformedMessage(f"the snapshot {name} has no end")
    return snapshot


def fault_in_snapshot(disk: Disk, path: str) -> str | None:
    """Returns the damage, if there is any. Checks only checksums, offsets and the footer, one batch
    at a time; does not decode the records."""
    file = disk.open(path)
    last: BatchHeader | None = None
    for batch in BatchScan(file, next_offset=0, contiguous=True).batches():
        if isinstance(batch, DamagedRange):
            return f"byte {batch.position}: {batch.reason}"
        last = batch
    if last is None or not last.attributes & CONTROL or not _has_footer(file, last):
        return "it has no end"
    file.close()
    return None


def _has_footer(file: File, batch: BatchHeader) -> bool:
    (found,) = batches_in(memoryview(file.read(batch.size, batch.position)))
    return isinstance(found.records[-1], SnapshotFooterRecord)


def read_last_contained_ms(disk: Disk, path: str) -> int:
    """Returns the time of the last record that the snapshot replaces; reads only its first
    batch."""
    file = disk.open(path)
    size = read_header(file.read(HEADER_SIZE, 0)).size
    first = next(batches_in(memoryview(file.read(size, 0))))
    file.close()
    header = first.records[0]
    assert isinstance(header, SnapshotHeaderRecord), "it was read when it was loaded or written"
    return header.last_contained_log_timestamp


def _note(snapshot: Snapshot, message: Any) -> None:
    match message:
        case SnapshotHeaderRecord():
            snapshot.last_contained_ms = message.last_contained_log_timestamp
        case KRaftVersionRecord():
            snapshot.kraft_version = message.kraft_version
        case VotersRecord():
            snapshot.voters = voters_in(message)


def list_snapshots(disk: Disk, folder: str) -> list[SnapshotId]:
    """Oldest first."""
    matches = map(_NAME.fullmatch, disk.list(folder))
    return sorted(SnapshotId(int(m[1]), int(m[2])) for m in matches if m is not None)
