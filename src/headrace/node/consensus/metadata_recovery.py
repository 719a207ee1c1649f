"""Decides at start about damage in the metadata log: cut a part that was never acknowledged, or
refuse.

Topics, users and rights live in this log, so it is never cut below the newest snapshot or below
where it was flushed (`recovery_point.py`): damage there is refused with a sentence, after a clean
stop and after a kill alike. Damage above it is the trace of a power cut: it is cut, the cut bytes
are copied to a file beside the log, and the node logs that. Damage that the newest good snapshot
covers loses nothing: the log continues after the snapshot, and the old segment is kept beside it.
Without a recovery point (a folder of Apache Kafka's or of an older version) damage at the very end
is torn, and damage with good batches behind it is not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from headrace.environment import Disk, File
from headrace.node.consensus.metadata_survey import ENDLESS, LogDamage, Survey, survey
from headrace.node.storage.segments.batch_scan import BatchScan
from headrace.wire.protocol.record_batch import BatchHeader

log = logging.getLogger(__name__)

COPY_CHUNK = 1 << 20


class UnusableMetadata(Exception):
    """This node cannot lead the cluster from this folder; the message gives the reason."""


class Opening(NamedTuple):
    start_offset: int  # of the oldest snapshot: what is before it is deleted or about to be
    recovery_point: int  # nothing before it may be cut
    cut_bytes: int = 0  # what was cut from the end


def prepare_log(disk: Disk, folder: str, *, clean: bool, wall_ms: int) -> Opening:
    """Look at the log before it is opened; raises UnusableMetadata with nothing changed."""
    found = survey(disk, folder, clean=clean)
    for snapshot, fault in found.bad_snapshots:
        log.error("the snapshot %s/%s is damaged: %s", folder, snapshot.file_name, fault)
    if found.recovery_point_fault is not None:
        log.error("%s; the newest snapshot is taken instead", found.recovery_point_fault)
    require_whole(found, clean=clean)
    # Damage at the very beginning may end at the offset where it began: a log that was truncated to
    # nothing and rewritten, and whose pages reached the disk in another order.
    covered = [d for d in found.damage if d.until <= found.base and d.offset < found.base]
    torn = [damage for damage in found.damage if damage not in covered]
    cut_bytes = _cut(disk, found, torn[0], wall_ms) if torn else 0
    if covered:
        _begin_behind_snapshot(disk, found, covered[0], wall_ms)
    snapshots = found.all_snapshots
    if not snapshots:
        return Opening(0, found.recovery_point or 0, cut_bytes)
    flushed = max(found.recovery_point or 0, snapshots[-1].end_offset)
    return Opening(found.base if covered else snapshots[0].end_offset, flushed, cut_bytes)


def require_whole(found: Survey, *, clean: bool) -> None:
    """Everything that was flushed is there, in the newest good snapshot or in the log."""
    for damage in found.damage:
        flushed = _flushed_behind(found, damage, clean=clean)
        if max(damage.offset, found.base) < min(damage.until, flushed):
            raise UnusableMetadata(
                f"The metadata log is damaged: {damage.path} at byte {damage.position} (offset "
                f"{damage.offset}): {damage.reason}. These bytes had been flushed, so the log "
                f"is not cut and the node does not start. {what_to_type(found.folder)}"
            )
    promised = max(found.recovery_point or 0, *(s.end_offset for s in found.all_snapshots), 0)
    if max(found.end_offset, found.base) < promised:
        raise UnusableMetadata(
            f"The metadata log in {found.folder} ends at offset {found.end_offset}, and it was "
            f"flushed up to {promised}: no good snapshot has the missing records. "
            f"{what_to_type(found.folder)}"
        )


def what_to_type(folder: str) -> str:
    data = folder.rpartition("/")[0] or "."
    return (
        f"`headrace segment check {data}` shows all damage, `headrace segment repair {data}` "
        "offers ways; neither removes anything."
    )


def _flushed_behind(found: Survey, damage: LogDamage, *, clean: bool) -> int:
    """Returns up to where the log was flushed, as precisely as this damage requires."""
    if clean:
        return ENDLESS
    if found.recovery_point is not None:
        return max(found.recovery_point, *(s.end_offset for s in found.all_snapshots), 0)
    return damage.until if damage.until != ENDLESS else found.base


def _cut(disk: Disk, found: Survey, damage: LogDamage, wall_ms: int) -> int:
    """End the log before `damage`; returns how many bytes that removes. Later segments stay under
    other names."""
    tail = f"{damage.path}.cut-at-{damage.position}-{wall_ms}"
    with_bytes = _copy_from(disk, damage.path, damage.position, tail)
    removed = [path for path in map(found.path, found.segments) if path > damage.path]
    later = sum(map(disk.size, removed))
    for path in removed:
        disk.rename(path, f"{path}.cut-{wall_ms}")
    file = disk.open(damage.path)
    cut = file.size - damage.position
    file.resize(damage.position)
    file.flush()
    file.close()
    disk.flush_folder(found.folder)
    log.warning(
        "the metadata log ends at offset %d now: %s at byte %d: %s. The %d bytes from there on had "
        "not been flushed; %s%s",
        damage.offset,
        damage.path,
        damage.position,
        damage.reason,
        cut,
        f"they are kept in {tail}" if with_bytes else "all of them were zeros",
        f", and {len(removed)} later segments beside it" if removed else "",
    )
    return cut + later


def _copy_from(disk: Disk, path: str, position: int, to: str) -> bool:
    """Copy the end of a file; False, and no copy, if there are only zeros."""
    file = disk.open(path)
    if not any(any(piece) for piece in _pieces(file, position)):
        return False
    disk.write_file(to, _pieces(file, position))
    file.close()
    return True


def _begin_behind_snapshot(disk: Disk, found: Survey, damage: LogDamage, wall_ms: int) -> None:
    """Let the log begin where the newest good snapshot ends; the damaged segment stays beside it.

    The new segment is whole before the old one loses its name: a start in between finds both, and
    needs only the new one.
    """
    segment = max(first for first in found.segments if first < found.base)
    old = found.path(segment)
    file = disk.open(old)
    disk.write_file(found.path(found.base), _pieces(file, _position_of(file, segment, found.base)))
    file.close()
    aside = f"{old}.damaged-{wall_ms}"
    disk.rename(old, aside)
    disk.flush_folder(found.folder)
    log.warning(
        "the metadata log is damaged: %s at byte %d (offset %d): %s. A snapshot covers it, nothing "
        "is lost: the log begins at offset %d now, the damaged segment is kept in %s",
        damage.path,
        damage.position,
        damage.offset,
        damage.reason,
        found.base,
        aside,
    )


def _position_of(file: File, first: int, offset: int) -> int:
    """Returns where the batch of `offset` begins in a segment that begins at `first`, or the file's
    end."""
    for batch in BatchScan(file, next_offset=first, contiguous=True).batches():
        if isinstance(batch, BatchHeader) and batch.base_offset >= offset:
            return batch.position
    return file.size


def _pieces(file: File, position: int) -> Iterator[bytes]:
    while piece := file.read(COPY_CHUNK, position):
        yield piece
        position += len(piece)
