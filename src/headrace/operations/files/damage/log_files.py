"""Damage in the folder of one log: batches, indexes, producers' snapshots, leader epochs, topic id.

Reads every batch once, 1 MiB at a time. After an unclean stop the next start rebuilds the indexes
from the recovery point on, so they are not checked, and unflushed data may be torn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.storage import checkpoints
from headrace.node.storage.checkpoints import MalformedCheckpoint
from headrace.node.storage.producer_state import ProducerState
from headrace.node.storage.segments.batch_scan import BatchScan, DamagedRange
from headrace.operations.files.damage.finding import Finding, Kind, Remedy
from headrace.operations.files.damage.indexes import index_checks
from headrace.operations.files.dump.small_files import transaction_index_rows

Passed = Callable[[int], None]  # called with the number of bytes read

ENDLESS = 1 << 63
KEPT = (".cut-", ".damaged-")  # in names of files kept by an earlier start or repair


@dataclass(slots=True)
class LogFiles:
    """A log's folder, and what is known from its batches so far."""

    folder: Path
    clean: bool
    recovery_point: int  # nothing below it may be damaged
    required_end: int  # the log may not end before it
    contiguous: bool = False  # the metadata log has no holes
    bases: list[int] = field(default_factory=list)
    end_offset: int = 0  # after the last good batch
    epochs: list[tuple[int, int]] = field(default_factory=list)  # epoch and its first offset

    def __post_init__(self) -> None:
        stems = (path.stem for path in self.folder.glob("*.log"))
        self.bases = sorted(int(stem) for stem in stems if stem.isdigit())
        self.end_offset = self.bases[0] if self.bases else 0


def check_log_files(log: LogFiles, passed: Passed) -> Iterator[Finding]:
    for base, following in zip(log.bases, [*log.bases[1:], ENDLESS], strict=True):
        yield from _check_segment(log, base, following, passed)
    if log.bases and log.end_offset < log.required_end:
        what = f"the log ends at offset {log.end_offset}, it was flushed up to {log.required_end}"
        yield Finding(Kind.DAMAGED, log.folder, what, offset=log.end_offset)
    yield from _check_epochs(log)
    for path in sorted(log.folder.iterdir()):
        yield from _check_beside(path)


def _check_segment(log: LogFiles, base: int, following: int, passed: Passed) -> Iterator[Finding]:
    path = log.folder / f"{base:020d}.log"
    below = None if following == ENDLESS else following
    file = RealDisk().open(str(path))
    scan = BatchScan(file, next_offset=base, below=below, contiguous=log.contiguous)
    made_anew = not log.clean and following > log.recovery_point
    indexes = [] if made_anew else index_checks(path, base)
    for batch in scan.batches():
        passed(batch.size)
        if isinstance(batch, DamagedRange):
            yield _damaged_range(log, path, batch)
            for index in indexes:
                index.pass_over(batch)
            continue
        log.end_offset = batch.last_offset + 1
        if not log.epochs or batch.leader_epoch > log.epochs[-1][0]:
            log.epochs.append((batch.leader_epoch, batch.base_offset))
        for index in indexes:
            index.meet(batch)
    for index in indexes:
        yield from index.findings()


def _damaged_range(log: LogFiles, path: Path, damage: DamagedRange) -> Finding:
    """A range torn by a power cut, or damaged. The next start truncates unflushed data, so good
    batches after the range are worth a repair before that."""
    unflushed = not log.clean and damage.offset >= log.recovery_point
    is_end = damage.next_offset is None and int(path.stem) == log.bases[-1]
    unfinished = unflushed and (log.contiguous or is_end)
    advice: str
    remedies: tuple[Remedy, ...]
    if unfinished:
        copied = " and keeps a copy" if log.contiguous else ""
        advice, remedies = f"was not flushed; the next start cuts it{copied}", ()
    elif unflushed:
        advice = "was not flushed; the next start cuts the log here, with all that follows"
        remedies = (Remedy.FLIP,)
    elif log.contiguous:
        advice, remedies = "", (Remedy.FLIP, Remedy.CUT_METADATA)
    else:
        advice, remedies = "the records of this range cannot be read", (Remedy.FLIP,)
    return Finding(
        Kind.UNFINISHED if unfinished else Kind.DAMAGED,
        path,
        damage.reason,
        position=damage.position,
        size=damage.size,
        offset=damage.offset,
        until=damage.next_offset,
        remedies=remedies,
        advice=advice,
    )


def _check_epochs(log: LogFiles) -> Iterator[Finding]:
    path = log.folder / checkpoints.LEADER_EPOCHS
    if not path.exists():
        return
    try:
        entries = checkpoints.epochs_from_bytes(path.read_bytes())
    except MalformedCheckpoint as problem:
        yield Finding(Kind.DAMAGED, path, str(problem), remedies=(Remedy.REBUILD,))
        return
    started = dict(entries)
    for epoch, first in log.epochs:
        unflushed = not log.clean and first >= log.recovery_point
        # Compaction may have removed the first batches of an epoch, never batches before it.
        if epoch >= 0 and not unflushed and started.get(epoch, ENDLESS) > first:
            what = f"the log has batches of leader epoch {epoch} at offset {first}, it does not"
            yield Finding(Kind.DAMAGED, path, what, offset=first, remedies=(Remedy.REBUILD,))
            return
    if entries != sorted(entries) or any(epoch < 0 or first < 0 for epoch, first in entries):
        yield Finding(Kind.DAMAGED, path, "entries do not ascend", remedies=(Remedy.REBUILD,))


def _check_beside(path: Path) -> Iterator[Finding]:
    """The small files of a log."""
    if path.suffix == ".snapshot":
        if not ProducerState(RealDisk(), str(path.parent)).from_bytes(path.read_bytes()):
            advice = "a start reads the batches instead"
            remedies = (Remedy.SET_ASIDE,)
            what = "its checksum or its length does not fit"
            yield Finding(Kind.DAMAGED, path, what, remedies=remedies, advice=advice)
    elif path.suffix == ".txnindex":
        damage = [row.damage for row in transaction_index_rows(path) if row.damage]
        if damage:
            yield Finding(Kind.DAMAGED, path, damage[0])
    elif path.name == checkpoints.PARTITION_METADATA:
        try:
            checkpoints.topic_id_from_bytes(path.read_bytes())
        except MalformedCheckpoint as problem:
            advice = "a start writes it again"
            yield Finding(
                Kind.DAMAGED, path, str(problem), remedies=(Remedy.SET_ASIDE,), advice=advice
            )
    elif any(mark in path.name for mark in KEPT):
        yield Finding(Kind.NOTE, path, "kept when the log was cut", size=path.stat().st_size)
