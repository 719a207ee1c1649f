"""The files of a quorum's member: the metadata log, its snapshots and `quorum-state`, on a Disk.

`QuorumFiles` is the log that the machine (`quorum/machine.py`) asks for, on a log of `storage`:
- What was flushed is the log's recovery point. A flush that began before a truncation does not move
  it (`PartitionLog.flushed`), so it never covers later records.
- `recovery-point` is lowered, durably, before the log is truncated: the bytes above it may be
  incomplete.
- A snapshot of the leader arrives as `<id>.checkpoint.part`, is flushed, read and then renamed. A
  log that does not continue the latest snapshot begins again at its end, also at a start: a crash
  may come between the two.
Snapshots of this node's own making, and the end of old ones: `metadata_log.py`, which shares the
list of them.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from headrace.environment import Disk, File
from headrace.node.consensus.batches import batches_in, whole_batches
from headrace.node.consensus.quorum.messages import NOBODY, OffsetAndEpoch, ReplicaKey
from headrace.node.consensus.quorum.quorum_log import Election
from headrace.node.consensus.quorum.voter_history import VoterHistory
from headrace.node.consensus.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from headrace.node.consensus.recovery_point import RecoveryPoint
from headrace.node.consensus.replicated_log import ReplicatedLog
from headrace.node.consensus.snapshots import (
    Snapshot,
    SnapshotId,
    list_snapshots,
    read_last_contained_ms,
    read_snapshot,
)
from headrace.node.storage.durability.open_files import is_shortage
from headrace.wire.protocol.errors import KafkaError, MalformedMessage
from headrace.wire.protocol.record_batch import headers_in

READ_SIZE = 1 << 20
PART = ".part"
# Apache Kafka passes over the file, as over every name in a log's folder that it does not know.
REMOVED_VOTER = "removed-voter"


class QuorumFiles:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        log: ReplicatedLog,
        snapshots: list[SnapshotId] | None = None,
    ) -> None:
        """`snapshots`: those that can be read, oldest first; None: all that the folder has."""
        self._disk = disk
        self._folder = folder
        self._log = log
        self.snapshots = list_snapshots(disk, folder) if snapshots is None else snapshots
        self.bytes_since_snapshot = 0
        self._part: tuple[SnapshotId, File] | None = None  # on its way from the leader
        for name in disk.list(folder):
            if name.endswith(f".checkpoint{PART}"):
                disk.remove(f"{folder}/{name}")
        self._recovery_point = RecoveryPoint(disk, folder)
        self._recovery_point.begin(log.recovery_point)
        self._begin_behind_the_snapshot()

    # For the machine (QuorumLog)

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def flushed_offset(self) -> int:
        return self._log.recovery_point

    @property
    def last_epoch(self) -> int:
        return self.end_of_epoch(1 << 31).epoch

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        entries = self._log.epochs.entries
        above = bisect_right(entries, epoch, key=lambda entry: entry[0])
        if not above:
            return self._start()
        end = entries[above][1] if above < len(entries) else self._log.end_offset
        return OffsetAndEpoch(end, entries[above - 1][0])

    def _start(self) -> OffsetAndEpoch:
        """The point that the log begins behind."""
        start = self._log.start_offset
        epochs = [each.epoch for each in self.snapshots if each.end_offset == start]
        return OffsetAndEpoch(start, max(epochs, default=0))

    def earliest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[0] if self.snapshots else None

    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[-1] if self.snapshots else None

    def append(self, batches: bytes | bytearray, *, wall_ms: int) -> None:
        try:
            self._log.writer.append_as_is(memoryview(batches), wall_ms=wall_ms)
            # At once, not at the end of the turn: what the disk refuses must not reach the image.
            self._log.write_at_once()
        except KafkaError as refusal:
            cause = refusal.__cause__
            if self._log.is_unreadable and isinstance(cause, OSError) and not is_shortage(cause):
                # Not a full disk but a broken one. A member that went on could neither append nor
                # confirm what it has, and would not hear of new leaders.
                raise OSError(cause.errno, f"the metadata log cannot be read: {refusal}") from cause
            raise
        self.bytes_since_snapshot += len(batches)

    def truncate(self, to_offset: int, *, wall_ms: int) -> None:
        if to_offset < self._log.recovery_point:
            self._lower_recovery_point(to_offset)
        self._remove(self._log.truncate(to_offset, wall_ms=wall_ms))

    def read(self, offset: int, max_bytes: int) -> bytes:
        found = self._log.read(offset, max_bytes, up_to=self._log.end_offset, at_least_one=True)
        if found is None:
            return b""
        return whole_batches(found.file.read(found.length, found.position))

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        if snapshot_id not in self.snapshots:
            return None
        return self._disk.size(self._path(snapshot_id))

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes:
        file = self._disk.open(self._path(snapshot_id))
        try:
            return file.read(max_bytes, position)
        finally:
            file.close()

    def write_snapshot(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        if position == 0:
            self._drop_part()
            self._part = (snapshot_id, self._disk.open(self._part_path(snapshot_id), create=True))
        assert self._part is not None and self._part[0] == snapshot_id
        assert self._part[1].size == position, "pieces come in order"
        self._part[1].append(data)

    def install_snapshot(self, snapshot_id: SnapshotId, *, wall_ms: int) -> Snapshot:
        assert self._part is not None and self._part[0] == snapshot_id
        file = self._part[1]
        file.flush()
        try:
            snapshot = read_snapshot(file.read(file.size, 0), snapshot_id.file_name)
        except MalformedMessage:
            self._drop_part()
            raise
        file.close()
        self._part = None
        self._disk.rename(self._part_path(snapshot_id), self._path(snapshot_id))
        self._disk.flush_folder(self._folder)
        older = self.snapshots[:]
        self.snapshots[:] = [snapshot_id]
        self.bytes_since_snapshot = 0
        self._begin_at(snapshot_id, wall_ms)
        for each in older:
            if each != snapshot_id:
                self._disk.remove(self._path(each))
        return snapshot

    # For the host

    def flush_target(self) -> Any:
        """A flush to run on another thread, or None; then to be given to `flushed`."""
        return self._log.flush_target(everything=True)

    def flushed(self, flush: Any) -> bool:
        """Note that a flush of the log has run; False: the log was truncated in the meantime, so
        flush again."""
        counts = self._log.flushed(flush)
        self.note_flushed()
        return counts

    def note_flushed(self) -> None:
        self._recovery_point.advance(self._log.recovery_point)

    def load_voters(self, configured: VoterHistory) -> VoterHistory:
        """The voters according to the latest snapshot and the log after it; `configured` if neither
        names any."""
        offset = self._log.start_offset
        if latest := self.latest_snapshot():
            content = self._disk.read_file(self._path(latest))
            configured.begin_with(latest.end_offset, read_snapshot(content, latest.file_name))
            offset = max(offset, latest.end_offset)
        self.note_voters(configured, offset)
        return configured

    def note_voters(self, history: VoterHistory, offset: int) -> None:
        """The records of the log from `offset` on; of other batches only the headers are read."""
        while offset < self._log.end_offset:
            data = memoryview(self.read(offset, READ_SIZE))
            for at, header in headers_in(data):
                if header.base_offset >= offset:
                    if header.is_control:
                        (batch,) = batches_in(data[at : at + header.size])
                        history.note(batch)
                    offset = header.last_offset + 1

    def _begin_behind_the_snapshot(self) -> None:
        latest = self.latest_snapshot()
        if latest is None or latest.end_offset == 0:
            return
        agrees = latest.end_offset <= self._log.end_offset and (
            latest.end_offset <= self._log.start_offset
            or self._epoch_of(latest.end_offset - 1) == latest.epoch
        )
        if not agrees:
            self._begin_at(latest, read_last_contained_ms(self._disk, self._path(latest)))

    def _epoch_of(self, offset: int) -> int:
        """Returns the epoch of the batch at `offset`. The noted epochs may begin after the log:
        they were cut when an older snapshot was deleted, and a power cut brought that one back."""
        entries = self._log.epochs.entries
        if not entries or entries[0][1] > offset:
            for _, header in headers_in(memoryview(self.read(offset, 1))):
                if header.base_offset <= offset <= header.last_offset:
                    return header.leader_epoch
        return self._log.epochs.epoch_of(offset)

    def _begin_at(self, snapshot_id: SnapshotId, wall_ms: int) -> None:
        self._lower_recovery_point(min(self._log.recovery_point, snapshot_id.end_offset))
        self._remove(self._log.truncate_fully(snapshot_id.end_offset, wall_ms=wall_ms))

    def _lower_recovery_point(self, offset: int) -> None:
        """Durably, before anything above it is cut."""
        self._recovery_point.begin(offset)

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self._disk.remove(path)

    def _drop_part(self) -> None:
        if self._part is not None:
            snapshot_id, file = self._part
            file.close()
            self._disk.remove(self._part_path(snapshot_id))
            self._part = None

    def _path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._folder}/{snapshot_id.file_name}"

    def _part_path(self, snapshot_id: SnapshotId) -> str:
        return self._path(snapshot_id) + PART


class QuorumStateFile:
    """`quorum-state` as the machine asks for it; its version and static voters stay as they are.

    Beside it `removed-voter`, which exists while this member is a voter that was removed.
    """

    def __init__(self, disk: Disk, folder: str, static_voters: tuple[int, ...] = ()) -> None:
        """`static_voters` are those of a quorum of kraft.version 0, whose file has version 0."""
        self._disk = disk
        self._folder = folder
        version = 0 if static_voters else 1
        new = QuorumState(data_version=version, static_voters=static_voters)
        found = read_quorum_state(disk, folder)
        self._exists = found is not None
        self._state = found or new

    def read(self) -> Election | None:
        """Returns None if there is no file."""
        if not self._exists:
            return None
        state = self._state
        voted = None
        if state.voted_id != NOBODY:
            voted = ReplicaKey(state.voted_id, state.voted_directory_id)
        return Election(state.leader_epoch, state.leader_id, voted)

    def write(self, election: Election) -> None:
        """Flushed, with its name, when it returns."""
        state = self._state
        state.leader_epoch, state.leader_id = election.epoch, election.leader_id
        voted = election.voted or ReplicaKey(NOBODY)
        state.voted_id, state.voted_directory_id = voted
        write_quorum_state(self._disk, self._folder, state)
        self._exists = True

    def read_removal(self) -> bool:
        return self._disk.exists(f"{self._folder}/{REMOVED_VOTER}")

    def write_removal(self, *, removed: bool) -> None:
        path = f"{self._folder}/{REMOVED_VOTER}"
        if removed:
            self._disk.write_file(path, [b"version: 0\n"])
        elif self._disk.exists(path):
            self._disk.remove(path)
            self._disk.flush_folder(self._folder)
