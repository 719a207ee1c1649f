"""The work of each repair of `segment repair`; each returns what it did, line by line.

With `dry_run` a repair finds out what it can do, reports it, and changes nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.node.broker.folders.identity import Identity, identity_to_bytes
from headrace.node.consensus.batches import batches_in
from headrace.node.consensus.metadata_survey import LogDamage, survey
from headrace.node.consensus.quorum_state import QuorumState, write_quorum_state
from headrace.node.consensus.recovery_point import FILE_NAME as RECOVERY_POINT
from headrace.node.consensus.recovery_point import encode_recovery_point
from headrace.node.consensus.voters import Voter, voters_in
from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.storage import checkpoints
from headrace.node.storage.segments.batch_scan import BatchScan, DamagedRange
from headrace.operations.files.damage.bit_search import mended
from headrace.operations.files.damage.data_folder import Check, shown
from headrace.operations.files.damage.finding import CannotMend, Finding, Kind
from headrace.operations.files.damage.log_files import LogFiles, check_log_files
from headrace.operations.files.damage.set_aside import SetAside
from headrace.wire.protocol import uuids
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages.topic_record import TopicRecord
from headrace.wire.protocol.messages.voters_record import VotersRecord
from headrace.wire.protocol.record_batch import BatchHeader, header_at


def flip_bits(check: Check, findings: list[Finding], aside: SetAside, dry_run: bool) -> list[str]:
    done = []
    for finding in findings:
        ranges = [finding] if finding.position is not None else _ranges_of(finding.path)
        for damage in ranges:
            line = _flip_in(check, damage, aside, dry_run)
            if line:
                done.append(line)
    return done


def _ranges_of(path: Path) -> list[Finding]:
    """The damaged batches of a snapshot, whose finding is about the whole file."""
    scan = BatchScan(RealDisk().open(str(path)), next_offset=0, contiguous=True)
    ranges = []
    for found in scan.batches():
        if isinstance(found, DamagedRange):
            span = (found.position, found.size, found.offset, found.next_offset)
            ranges.append(Finding(Kind.DAMAGED, path, found.reason, *span))
    return ranges


def _flip_in(check: Check, damage: Finding, aside: SetAside, dry_run: bool) -> str | None:
    assert damage.position is not None and damage.size is not None
    with damage.path.open("rb") as file:
        file.seek(damage.position)
        old = file.read(damage.size)
    has_holes = damage.path.suffix == ".log" and damage.path.parent != check.metadata
    new = mended(old, base_offset=None if has_holes else damage.offset)
    if new is None and has_holes:
        new = mended(old, base_offset=damage.offset)
    if new is None or not _continues(new, damage):
        return None
    byte = next(number for number in range(len(old)) if old[number] != new[number])
    if not dry_run:
        aside.copy(damage.path)
        _write_at(damage.path, damage.position + byte, new[byte : byte + 1])
    where = f"{shown(check, damage)} at byte {damage.position + byte}"
    return f"flip one bit in {where}: the batch of offset {damage.offset} is whole again"


def _continues(batch: bytes, damage: Finding) -> bool:
    """Whether the offsets of a batch fit between its neighbours."""
    header = header_at(batch, 0, 0)
    assert damage.offset is not None, "a damaged range knows where it begins"
    behind = damage.until if damage.until is not None else header.last_offset + 1
    return damage.offset <= header.base_offset <= header.last_offset < behind


def _write_at(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def rebuild(check: Check, findings: list[Finding], aside: SetAside, dry_run: bool) -> list[str]:
    done = []
    for finding in findings:
        name = shown(check, finding)
        if finding.path.name == checkpoints.LEADER_EPOCHS:
            log = LogFiles(finding.path.parent, check.clean, 0, 0)
            for _ in check_log_files(log, lambda _: None):
                pass
            if not dry_run:
                aside.move(finding.path)
                data = checkpoints.epochs_to_bytes(entry for entry in log.epochs if entry[0] >= 0)
                RealDisk().write_file(str(finding.path), [data])
            done.append(f"rewrite {name} with {len(log.epochs)} epochs")
        else:
            if not dry_run:
                aside.move(finding.path)
            done.append(f"set {name} aside; the next start makes it again")
    return done


def set_files_aside(
    check: Check, findings: list[Finding], aside: SetAside, dry_run: bool
) -> list[str]:
    done = []
    for finding in findings:
        if not dry_run:
            aside.move(finding.path)
        done.append(f"set {shown(check, finding)} aside")
    return done


# --- the metadata

# More elections than a quorum has between two records of its log: every leader writes one first.
EPOCHS_SKIPPED = 1_000


def write_epoch(check: Check, findings: list[Finding], aside: SetAside, dry_run: bool) -> list[str]:
    """A voter that forgets its vote could vote twice in one epoch; in a later epoch it has never
    voted."""
    epoch = _highest_epoch(check) + EPOCHS_SKIPPED
    if not dry_run:
        for finding in findings:
            aside.move(finding.path)
        state = QuorumState(leader_epoch=epoch)
        write_quorum_state(RealDisk(), str(check.metadata), state)
    return [f"write quorum-state with the epoch {epoch}, without a vote"]


def _highest_epoch(check: Check) -> int:
    """The highest epoch of a good batch or snapshot of the metadata log."""
    disk = RealDisk()
    found = survey(disk, str(check.metadata), everything=True)
    epochs = [0, *(snapshot.epoch for snapshot in found.good_snapshots)]
    for segment in found.segments:
        scan = BatchScan(disk.open(found.path(segment)), next_offset=segment, contiguous=True)
        epochs += [
            batch.leader_epoch for batch in scan.batches() if not isinstance(batch, DamagedRange)
        ]
    return max(epochs)


def cut_metadata(
    check: Check, findings: list[Finding], aside: SetAside, dry_run: bool
) -> list[str]:
    disk = RealDisk()
    found = survey(disk, str(check.metadata), everything=True)
    harmful = [damage for damage in found.damage if damage.until > found.base]
    first = harmful[0] if harmful else None
    end = first.offset if first is not None else found.end_offset
    done = []
    if first is not None:
        path = Path(first.path)
        later = [Path(found.path(base)) for base in found.segments if found.path(base) > first.path]
        done.append(
            f"cut {path.name} at byte {first.position}: the metadata log ends at offset {end}"
        )
        done += [f"set {after.name} aside" for after in later]
        done += _what_is_lost(first, later)
        if not dry_run:
            aside.copy(path)
            with path.open("r+b") as file:
                file.truncate(first.position)
                os.fsync(file.fileno())
            for after in (*later, path.with_suffix(".index"), path.with_suffix(".timeindex")):
                if after.exists():
                    aside.move(after)
    point = check.metadata / RECOVERY_POINT
    done.append(f"rewrite {point.name}: {max(end, found.base)}")
    if not dry_run:
        if point.exists():
            aside.copy(point)
        disk.write_file(str(point), [encode_recovery_point(max(end, found.base))])
    return done


def _what_is_lost(first: LogDamage, later: list[Path]) -> list[str]:
    """The topics that were created after the damage, as far as they can be read."""
    names, records = [], 0
    for path, position in [(Path(first.path), first.position), *((path, 0) for path in later)]:
        file = RealDisk().open(str(path))
        scan = BatchScan(file, next_offset=first.offset)
        for batch in scan.batches(position):
            if isinstance(batch, DamagedRange):
                continue
            records += batch.record_count
            names += _topics_in(file.read(batch.size, batch.position))
    lost = f"lose {records} readable records of the metadata behind the damage"
    return [lost + (f", among them the topics {', '.join(names)}" if names else "")]


def _topics_in(batch: bytes) -> list[str]:
    try:
        (found,) = batches_in(memoryview(batch))
    except MalformedMessage:
        return []
    return [record.name for record in found.records if isinstance(record, TopicRecord)]


def write_identity(
    check: Check, findings: list[Finding], aside: SetAside, dry_run: bool
) -> list[str]:
    voter = _only_voter(check)
    path = check.folder / checkpoints.META_PROPERTIES
    text = path.read_bytes() if path.exists() else b""
    try:
        cluster_id = checkpoints.properties_from_bytes(text).get("cluster.id", "")
        readable = len(uuids.from_text(cluster_id)) == 16
    except (checkpoints.MalformedCheckpoint, ValueError):
        readable = False
    if not readable:
        cluster_id = uuids.to_text(uuids.random_id(os.urandom(16)))
    if not dry_run:
        if path.exists():
            aside.move(path)
        identity = Identity(cluster_id, voter.id, voter.directory_id)
        RealDisk().write_file(str(path), [identity_to_bytes(identity)])
    kind = "as it was read: compare it with what you know" if readable else "a new one"
    return [f"write {path.name}: node.id {voter.id}, cluster.id {cluster_id} ({kind})"]


def _only_voter(check: Check) -> Voter:
    """The voter in the newest record about voters, in a snapshot or in the log; raises unless there
    is just one."""
    voters: tuple[Voter, ...] = ()
    snapshots, logs = check.metadata.glob("*.checkpoint"), check.metadata.glob("*.log")
    for path in [*sorted(snapshots), *sorted(logs)]:
        file = RealDisk().open(str(path))
        for batch in BatchScan(file, next_offset=0).batches():
            if isinstance(batch, BatchHeader) and batch.is_control:
                (control,) = batches_in(memoryview(file.read(batch.size, batch.position)))
                for message in control.records:
                    voters = voters_in(message) if isinstance(message, VotersRecord) else voters
    if len(voters) != 1:
        raise CannotMend(
            f"The metadata in {check.metadata} names {len(voters)} voters: it is unknown which "
            "of them owned the folder. Bring meta.properties back from a copy."
        )
    return voters[0]
