"""The metadata log of a quorum of one: a KRaft log with a single voter, in Kafka's own files.

Start: the latest snapshot and the log behind it give the image; then this voter elects itself with
a new epoch, which it writes to `quorum-state` before the first record of that epoch (a leader
change) goes to the log. A record is committed when it is flushed: a majority of one has it.
A folder whose voters are others, or whose disk is not the one that voted, is refused.

Not done: any other voter. Reads and writes on the loop are small; snapshots are made elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from struct import Struct
from typing import Any

from headrace.consensus.batches import Batch, batches_in, control_batch, metadata_batch
from headrace.consensus.metadata_recovery import UnusableMetadata, what_to_type
from headrace.consensus.quorum_state import (
    NOBODY,
    BadQuorumState,
    QuorumState,
    read_quorum_state,
    write_quorum_state,
)
from headrace.consensus.recovery_point import RecoveryPoint
from headrace.consensus.replicated_log import ReplicatedLog
from headrace.consensus.snapshots import (
    Snapshot,
    SnapshotId,
    SnapshotWork,
    list_snapshots,
    read_last_contained_ms,
    read_snapshot,
    snapshot_batches,
)
from headrace.consensus.voters import (
    Voter,
    kraft_version_record,
    leader_change,
    voters_in,
    voters_record,
)
from headrace.environment import Buffer, Disk
from headrace.metadata.image import InconsistentMetadata, MetadataImage
from headrace.metadata.snapshot_records import records_of
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.messages.kraft_version_record import KRaftVersionRecord
from headrace.protocol.messages.voters_record import VotersRecord
from headrace.protocol.record_batch import BASE_OFFSET_AT, LEADER_EPOCH_AT
from headrace.protocol.uuids import METADATA_TOPIC_ID, to_text

READ_SIZE = 1 << 20
_PLACE = Struct(">q")
_EPOCH = Struct(">i")
_TOPIC_ID_TEXT = to_text(METADATA_TOPIC_ID)


class MetadataLog:
    __slots__ = (
        "disk",
        "folder",
        "log",
        "voter",
        "image",
        "epoch",
        "voters",
        "kraft_version",
        "snapshots",
        "snapshot_bytes",
        "bytes_since_snapshot",
        "_state",
        "_recovery_point",
        "_voters_are_in_log",
    )

    def __init__(self, disk: Disk, folder: str, log: ReplicatedLog, *, voter: Voter) -> None:
        self.disk = disk
        self.folder = folder
        self.log = log
        self.voter = voter  # this node, as it wants to be known
        self.image = MetadataImage(cluster_id="")  # what `load` found
        self.epoch = 0
        self.voters: tuple[Voter, ...] = ()
        self.kraft_version = 0
        self.snapshots: list[SnapshotId] = []  # oldest first
        self.snapshot_bytes = 0  # size of the latest
        self.bytes_since_snapshot = 0
        self._state = QuorumState()
        self._recovery_point = RecoveryPoint(disk, folder)
        self._voters_are_in_log = False

    def load(self, cluster_id: str) -> MetadataImage:
        """The image of all that is in the folder; leads nothing yet."""
        try:
            self._state = read_quorum_state(self.disk, self.folder) or QuorumState()
        except BadQuorumState as fault:
            raise UnusableMetadata(f"{fault}. {what_to_type(self.folder)}") from fault
        self.epoch = self._state.leader_epoch
        self.snapshots = list_snapshots(self.disk, self.folder)
        counted = len(self.snapshots)
        image = self._load_snapshot(MetadataImage(cluster_id=cluster_id))
        self.image = replace(self._replay_log(image), kraft_version=self.kraft_version)
        if len(self.snapshots) < counted:
            self._require_voters()
        self.epoch = max(self.epoch, self.image.epoch)
        self._require_sole_voter()
        return self.image

    def lead(self, wall_ms: int) -> None:
        """Begin a new epoch as its leader."""
        self.epoch += 1
        self._state.leader_id = self.voter.id
        self._state.leader_epoch = self.epoch
        self._state.voted_id = NOBODY
        write_quorum_state(self.disk, self.folder, self._state)
        self._recovery_point.begin(self.log.recovery_point)
        self._name_the_topic()
        messages: list[Any] = [leader_change(self.voter.id, (self.voter,))]
        if self.kraft_version >= 1 and (
            not self._voters_are_in_log or self.voters != (self.voter,)
        ):
            # As Apache's first leader does: from now on the log itself says who votes.
            messages += [kraft_version_record(self.kraft_version), voters_record((self.voter,))]
            self.voters = (self.voter,)
            self._voters_are_in_log = True
        self._append_control(messages, wall_ms)

    def _name_the_topic(self) -> None:
        """`partition.metadata`, which every partition's folder has in Kafka."""
        path = f"{self.folder}/partition.metadata"
        if not self.disk.exists(path):
            self.disk.write_file(path, [f"version: 0\ntopic_id: {_TOPIC_ID_TEXT}".encode()])

    def append(self, records: Sequence[Any], *, metadata_version: int, wall_ms: int) -> int:
        """One batch; returns the offset of its last record."""
        batch = metadata_batch(
            records,
            base_offset=self.log.end_offset,
            epoch=self.epoch,
            wall_ms=wall_ms,
            metadata_version=metadata_version,
        )
        self._write(batch, wall_ms)
        return self.log.end_offset - 1

    def append_prepared(self, batch: bytearray, *, wall_ms: int) -> None:
        """A batch that was made before, for a place that was not known then."""
        _PLACE.pack_into(batch, BASE_OFFSET_AT, self.log.end_offset)
        _EPOCH.pack_into(batch, LEADER_EPOCH_AT, self.epoch)  # the CRC covers neither
        self._write(batch, wall_ms)

    def flushed(self, flush: Any) -> bool:
        """A flush of the log has run; False: it proves nothing, ask again."""
        counts = self.log.flushed(flush)
        self._recovery_point.advance(self.log.recovery_point)
        return counts

    @property
    def latest_snapshot_end(self) -> int:
        return self.snapshots[-1].end_offset if self.snapshots else 0

    def snapshot(
        self, image: MetadataImage, wall_ms: int, finished: Callable[[OSError | None], None]
    ) -> SnapshotWork:
        """The work of writing `image`, which must be committed, to a snapshot of its own."""
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        self.bytes_since_snapshot = 0

        def note(error: OSError | None) -> None:
            if error is None:
                self.snapshots.append(snapshot_id)
                self.snapshot_bytes = self.disk.size(self._path(snapshot_id))
            finished(error)

        return SnapshotWork(
            self.disk,
            f"{self.folder}/{snapshot_id.file_name}",
            snapshot_batches(
                records_of(image),
                epoch=snapshot_id.epoch,
                last_contained_ms=image.wall_ms,
                wall_ms=wall_ms,
                metadata_version=image.metadata_version,
                kraft_version=self.kraft_version,
                voters=self.voters,
            ),
            note,
        )

    def clean_up(self, wall_ms: int, *, retention_bytes: int, retention_ms: int) -> None:
        """Let the oldest snapshots go, and the log before the oldest that stays, when they are too
        many bytes or too old. The latest snapshot always stays."""
        sizes = [self.disk.size(self._path(snapshot)) for snapshot in self.snapshots]
        total = sum(sizes) + self.log.size_bytes
        while len(self.snapshots) > 1:
            if total <= retention_bytes and not self._is_older(retention_ms, wall_ms):
                break
            oldest = self.snapshots.pop(0)
            total -= sizes.pop(0)
            before = self.log.size_bytes
            self.log.delete_records_before(self.snapshots[0].end_offset)
            removed = self.log.apply_retention(wall_ms)
            total -= before - self.log.size_bytes
            for path in (self._path(oldest), *removed):
                self.disk.remove(path)

    def _is_older(self, retention_ms: int, wall_ms: int) -> bool:
        """Whether what the second snapshot holds is so old that the first is not needed."""
        newer_ms = read_last_contained_ms(self.disk, self._path(self.snapshots[1]))
        return wall_ms - newer_ms > retention_ms

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self.folder}/{snapshot.file_name}"

    def _append_control(self, messages: list[Any], wall_ms: int) -> None:
        batch = control_batch(
            messages, base_offset=self.log.end_offset, epoch=self.epoch, wall_ms=wall_ms
        )
        self._write(batch, wall_ms)

    def _write(self, batch: Buffer, wall_ms: int) -> None:
        self.log.writer.append_as_is(memoryview(batch), wall_ms=wall_ms)
        # At once, not at the end of the turn: what the disk refuses must not reach the image.
        self.log.write_at_once()
        self.bytes_since_snapshot += len(batch)

    def _load_snapshot(self, image: MetadataImage) -> MetadataImage:
        """The newest snapshot that can be read and that the log continues; without any, the log has
        everything if it begins at 0. Damaged ones are kept as files and not counted any more."""
        faults = []
        for snapshot_id in reversed(self.snapshots):
            if snapshot_id.end_offset < self.log.start_offset:
                break
            path = self._path(snapshot_id)
            content = self.disk.read_file(path)
            try:
                snapshot = read_snapshot(content, path)
            except MalformedMessage as fault:
                faults.append(f"{path} is damaged: {fault}")
                self.snapshots.remove(snapshot_id)
                continue
            self.snapshot_bytes = len(content)
            return self._begin_with(image, snapshot_id, snapshot)
        if self.log.start_offset > 0:
            reason = "; ".join(faults) or "there is no snapshot of what is before it"
            raise UnusableMetadata(
                f"The metadata log in {self.folder} begins at offset {self.log.start_offset}, and "
                f"{reason}. {what_to_type(self.folder)}"
            )
        return image

    def _begin_with(
        self, image: MetadataImage, snapshot_id: SnapshotId, snapshot: Snapshot
    ) -> MetadataImage:
        self.voters = snapshot.voters
        self.kraft_version = snapshot.kraft_version
        # The voters of the first checkpoint were put there by formatting, by no leader.
        self._voters_are_in_log = bool(snapshot.voters) and snapshot_id.end_offset > 0
        if self.log.end_offset < snapshot_id.end_offset:
            # All of the log is in the snapshot; it goes on from there, as Apache's would.
            begin = snapshot_id.end_offset
            for path in self.log.truncate_fully(begin, wall_ms=snapshot.last_contained_ms):
                self.disk.remove(path)
        return image.apply(
            snapshot.records,
            offset=snapshot_id.end_offset - 1,
            epoch=snapshot_id.epoch,
            wall_ms=snapshot.last_contained_ms,
        )

    def _replay_log(self, image: MetadataImage) -> MetadataImage:
        while image.offset + 1 < self.log.end_offset:
            image = self._replay_some(image)
        return image

    def _replay_some(self, image: MetadataImage) -> MetadataImage:
        """One read's worth of whole batches behind the image."""
        offset = image.offset + 1
        records: list[Any] = []
        last: Batch | None = None
        try:
            for batch in batches_in(self._read(offset)):
                if batch.last_offset < offset:
                    continue
                last = batch
                if batch.is_control:
                    self._note_control(batch.records)
                else:
                    records += batch.records
        except MalformedMessage as fault:
            raise self._unreadable(offset, str(fault)) from fault
        if last is None:
            raise self._unreadable(offset, "nothing is there")
        behind = {"offset": last.last_offset, "epoch": last.epoch, "wall_ms": last.wall_ms}
        try:
            return image.apply(records, **behind)
        except InconsistentMetadata as fault:
            raise self._unreadable(offset, str(fault)) from fault

    def _unreadable(self, offset: int, reason: str) -> UnusableMetadata:
        return UnusableMetadata(
            f"The metadata log in {self.folder} cannot be read from offset {offset} on: {reason}. "
            f"{what_to_type(self.folder)}"
        )

    def _read(self, offset: int) -> memoryview:
        found = self.log.read(offset, READ_SIZE, up_to=self.log.end_offset, at_least_one=True)
        if found is None:
            raise self._unreadable(
                offset, f"nothing is there, and it ends at {self.log.end_offset}"
            )
        self.bytes_since_snapshot += found.length
        return memoryview(found.file.read(found.length, found.position))

    def _note_control(self, messages: list[Any]) -> None:
        for message in messages:
            if isinstance(message, KRaftVersionRecord):
                self.kraft_version = message.kraft_version
            elif isinstance(message, VotersRecord):
                self.voters = voters_in(message)
                self._voters_are_in_log = True

    def _require_voters(self) -> None:
        """A damaged snapshot was passed over: the log must say all that it said."""
        if not self.voters and not self._state.static_voters:
            raise UnusableMetadata(
                f"The snapshot in {self.folder} that names the voters is damaged, and the log does "
                f"not name them. {what_to_type(self.folder)}"
            )

    def _require_sole_voter(self) -> None:
        ids = [voter.id for voter in self.voters] or list(self._state.static_voters)
        if ids not in ([], [self.voter.id]):
            others = ", ".join(str(voter) for voter in ids)
            raise UnusableMetadata(
                f"The metadata in {self.folder} belongs to a quorum with the voter(s) {others}; "
                f"node {self.voter.id} cannot lead it alone."
            )
        if self.voters and self.voters[0].directory_id != self.voter.directory_id:
            raise UnusableMetadata(
                f"The metadata in {self.folder} was written by node {self.voter.id} on another "
                "disk: its directory.id is not the one in meta.properties."
            )
