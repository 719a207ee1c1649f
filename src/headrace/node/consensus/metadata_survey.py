"""Finds the good and the damaged parts of the metadata log's folder; reads only.

The newest good snapshot replaces all records before its end (`base`); from there on the log must be
whole up to where it was flushed. Damage is found by checksums, by offsets, which have no holes
here, and by leader epochs, which the checksum does not cover and which never decrease. A start
needs no segment that ends before the base, and after a clean stop no batch before it either;
`everything` reads all.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from headrace.environment import Disk
from headrace.node.consensus.quorum_state import BadQuorumState, read_quorum_state
from headrace.node.consensus.recovery_point import BadRecoveryPoint, read_recovery_point
from headrace.node.consensus.snapshots import SnapshotId, fault_in_snapshot, list_snapshots
from headrace.node.storage.segments.batch_scan import BatchScan, DamagedRange
from headrace.node.storage.segments.offset_index import ENTRY
from headrace.wire.protocol.record_batch import BatchHeader

ENDLESS = 1 << 63


class LogDamage(NamedTuple):
    """A damaged range of one segment."""

    path: str
    position: int
    size: int
    offset: int
    until: int  # where the next good batch begins, also in a later segment; ENDLESS: none follows
    reason: str


@dataclass(slots=True)
class Survey:
    folder: str
    segments: list[int] = field(default_factory=list)  # base offsets of all, ascending
    good_snapshots: list[SnapshotId] = field(default_factory=list)  # oldest first
    bad_snapshots: list[tuple[SnapshotId, str]] = field(default_factory=list)
    damage: list[LogDamage] = field(default_factory=list)
    end_offset: int = 0  # behind the last good batch
    recovery_point: int | None = None  # what the file says; None: nothing that can be believed
    recovery_point_fault: str | None = None

    @property
    def base(self) -> int:
        """The offset from which on the log is needed."""
        return self.good_snapshots[-1].end_offset if self.good_snapshots else 0

    @property
    def all_snapshots(self) -> list[SnapshotId]:
        return sorted([*self.good_snapshots, *(snapshot for snapshot, _ in self.bad_snapshots)])

    def path(self, segment: int) -> str:
        return f"{self.folder}/{segment:020d}.log"


def survey(disk: Disk, folder: str, *, clean: bool = False, everything: bool = False) -> Survey:
    found = Survey(folder)
    for snapshot in list_snapshots(disk, folder):
        fault = fault_in_snapshot(disk, f"{folder}/{snapshot.file_name}")
        if fault is None:
            found.good_snapshots.append(snapshot)
        else:
            found.bad_snapshots.append((snapshot, fault))
    try:
        found.recovery_point = read_recovery_point(disk, folder)
    except BadRecoveryPoint as problem:
        found.recovery_point_fault = str(problem)
    stems = (name.removesuffix(".log") for name in disk.list(folder) if name.endswith(".log"))
    found.segments = sorted(int(stem) for stem in stems if stem.isdigit())
    first = 0 if everything else max(bisect_right(found.segments, found.base) - 1, 0)
    _Walk(disk, found, believes_index=clean and not everything).over(found.segments[first:])
    return found


@dataclass(slots=True)
class _Walk:
    """Over the segments of the log, one after the other."""

    disk: Disk
    found: Survey
    believes_index: bool
    epoch: int = -1  # of the last good batch
    highest_epoch: int = ENDLESS

    def over(self, segments: list[int]) -> None:
        self.highest_epoch = _epoch_of_voter(self.disk, self.found.folder)
        self.found.end_offset = segments[0] if segments else self.found.base
        for first, following in pairwise([*segments, ENDLESS]):
            if first != self.found.end_offset:
                reason = f"the segment begins at offset {first}, not at {self.found.end_offset}"
                missing = DamagedRange(0, 0, self.found.end_offset, first, reason)
                self._note(self.found.path(first), missing)
            self._segment(self.found.path(first), first, following)

    def _segment(self, path: str, first: int, following: int) -> None:
        file = self.disk.open(path)
        below = None if following == ENDLESS else following
        scan = BatchScan(file, next_offset=first, below=below, contiguous=True)
        position = self._skip_what_is_not_needed(scan, path, first)
        for batch in scan.batches(position):
            if isinstance(batch, DamagedRange):
                self._note(path, batch)
            else:
                self._good(path, batch)
        file.close()

    def _good(self, path: str, batch: BatchHeader) -> None:
        if not self.epoch <= batch.leader_epoch <= self.highest_epoch:
            reason = f"the leader epoch of the batch is {batch.leader_epoch}, "
            if batch.leader_epoch < self.epoch:
                reason += f"below {self.epoch} of the batch before it"
            else:
                reason += f"and quorum-state knows none above {self.highest_epoch}"
            offset, until = batch.base_offset, batch.last_offset + 1
            self._note(path, DamagedRange(batch.position, batch.size, offset, until, reason))
            return
        self._next_good_is(batch.base_offset)
        self.epoch = batch.leader_epoch
        self.found.end_offset = batch.last_offset + 1

    def _note(self, path: str, damage: DamagedRange) -> None:
        self.found.damage.append(
            LogDamage(path, damage.position, damage.size, damage.offset, ENDLESS, damage.reason)
        )

    def _next_good_is(self, offset: int) -> None:
        damage = self.found.damage
        for number in range(len(damage) - 1, -1, -1):
            if damage[number].until != ENDLESS:
                return
            damage[number] = damage[number]._replace(until=offset)

    def _skip_what_is_not_needed(self, scan: BatchScan, path: str, first: int) -> int:
        """Returns the position from which to read: that of a batch before the base that the index
        has, if the last stop was clean and the batch agrees with the index."""
        base = self.found.base
        index = path.removesuffix(".log") + ".index"
        if not self.believes_index or first >= base or not self.disk.exists(index):
            return 0
        data = self.disk.read_file(index)
        entries = range(len(data) // ENTRY.size)
        count = bisect_right(
            entries, base - first - 1, key=lambda n: ENTRY.unpack_from(data, n * ENTRY.size)[0]
        )
        if not count:
            return 0
        relative, position = ENTRY.unpack_from(data, (count - 1) * ENTRY.size)
        batch = scan.good_batch_at(position)
        if batch is None or batch.last_offset != first + relative:
            return 0
        scan.next_offset = batch.base_offset
        self.found.end_offset = batch.base_offset
        return int(position)


def _epoch_of_voter(disk: Disk, folder: str) -> int:
    """Returns the highest epoch that a batch of the log may have; ENDLESS if `quorum-state` does
    not give it."""
    try:
        state = read_quorum_state(disk, folder)
    except BadQuorumState:
        return ENDLESS
    return ENDLESS if state is None else state.leader_epoch
