"""This node's copy of the metadata log: its contents as images, and the quorum that writes it.

Start: the latest snapshot and the log behind it give the image. A node that is alone reads all of
its log at once: as the only voter it leads the next epoch, and all that it has is committed by its
next flush. A node with peers cannot know how much of its log is committed, so it begins with the
snapshot, and reads on (`replay`) as the quorum commits.

Writing goes through the quorum's host (`join`), which is the only one that appends. Snapshots are
made elsewhere (`SnapshotWork`), of committed images; the oldest go by retention.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from struct import Struct
from typing import Any

from headrace.environment import Disk, Now, Peers
from headrace.node.consensus.batches import Batch, batches_in, metadata_batch
from headrace.node.consensus.metadata_recovery import UnusableMetadata, what_to_type
from headrace.node.consensus.quorum.believable_epochs import LAST_EPOCH
from headrace.node.consensus.quorum.machine import Quorum, Timeouts
from headrace.node.consensus.quorum.messages import ReplicaKey
from headrace.node.consensus.quorum.roles import Leader
from headrace.node.consensus.quorum.voter_history import VoterHistory
from headrace.node.consensus.quorum.wire.names import Names
from headrace.node.consensus.quorum_files import QuorumFiles, QuorumStateFile
from headrace.node.consensus.quorum_host import MetadataListener, QuorumHost
from headrace.node.consensus.quorum_state import BadQuorumState, QuorumState, read_quorum_state
from headrace.node.consensus.replicated_log import ReplicatedLog
from headrace.node.consensus.snapshots import (
    Snapshot,
    SnapshotId,
    SnapshotWork,
    list_snapshots,
    read_last_contained_ms,
    read_snapshot,
    snapshot_batches,
)
from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.node.metadata.image import InconsistentMetadata, MetadataImage
from headrace.node.metadata.snapshot_records import records_of
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.record_batch import BASE_OFFSET_AT, LEADER_EPOCH_AT
from headrace.wire.protocol.uuids import METADATA_TOPIC_ID, to_text

log = logging.getLogger(__name__)

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
        "voters",
        "snapshots",
        "snapshot_bytes",
        "files",
        "host",
        "_alone",
        "_state",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        log: ReplicatedLog,
        *,
        voter: Voter,
        configured: tuple[Voter, ...] = (),
        alone: bool = True,
    ) -> None:
        """`configured`: by `controller.quorum.voters`, of a quorum of kraft.version 0."""
        self.disk = disk
        self.folder = folder
        self.log = log
        self.voter = voter  # this node, as it wants to be known
        self.image = MetadataImage(cluster_id="")  # what `load` found
        self.voters = VoterHistory(configured)
        self.snapshots: list[SnapshotId] = []  # oldest first; shared with `files`
        self.snapshot_bytes = 0  # size of the latest
        self.files: QuorumFiles
        self.host: QuorumHost
        self._alone = alone  # no other node can be reached
        self._state = QuorumState()

    # Start

    def load(self, cluster_id: str) -> MetadataImage:
        """Returns the image of the records known to be committed; for a node alone, of all records
        in the folder."""
        try:
            found = read_quorum_state(self.disk, self.folder)
        except BadQuorumState as fault:
            raise UnusableMetadata(f"{fault}. {what_to_type(self.folder)}") from fault
        self._state = found or QuorumState()
        if found is None and self.log.end_offset > 0:
            log.error(
                "%s/quorum-state is missing, but the metadata log has records: this node has lost "
                "its votes. If it is a voter, it goes on in a later epoch, in which it cannot have "
                "voted; the controllers elect their leader again",
                self.folder,
            )
        if self._state.leader_epoch >= LAST_EPOCH:
            raise UnusableMetadata(
                f"The epoch of {self.folder}/quorum-state, {self._state.leader_epoch}, is the last "
                f"one: no election can follow. {what_to_type(self.folder)}"
            )
        self.snapshots = list_snapshots(self.disk, self.folder)
        counted = len(self.snapshots)
        image = self._load_snapshot(MetadataImage(cluster_id=cluster_id))
        self.files = QuorumFiles(self.disk, self.folder, self.log, self.snapshots)
        if self._alone:
            self.image = self._replay(image, self.log.end_offset, note_voters=True)
        else:
            self.files.note_voters(self.voters, image.offset + 1)
            self.image = self._with_kraft_version(image)
        if len(self.snapshots) < counted:
            self._require_voters()
        if self._alone:
            self._require_sole_voter()
        return self.image

    def join(
        self,
        *,
        listener: MetadataListener,
        peers: Peers | None,
        names: Names,
        bootstrap: tuple[VoterEndpoint, ...] = (),
        timeouts: Timeouts,
        chance: Callable[[int], int],
        wants_flush: list[Any],
        now: Callable[[], Now],
        on_failure: Callable[[OSError], None] | None = None,
        joins_by_itself: bool = False,
    ) -> None:
        """Make this node a member of the quorum; `host.start()` begins."""
        self._name_the_topic()
        static = () if self.voters.kraft_version else tuple(v.id for v in self.voters.latest)
        state_file = QuorumStateFile(self.disk, self.folder, static)
        if not self.voters.latest and self._alone:
            # Formatted without naming voters, by an older version: this node is the only one.
            self.voters = VoterHistory((self.voter,), self.voters.kraft_version)
        quorum = Quorum(
            ReplicaKey(self.voter.id, self.voter.directory_id),
            self.voter.endpoints,
            log=self.files,
            state_file=state_file,
            voters=self.voters,
            bootstrap=bootstrap,
            timeouts=timeouts,
            chance=chance,
            joins_by_itself=joins_by_itself,
        )
        self.host = QuorumHost(
            quorum,
            self.files,
            peers=peers,
            names=names,
            listener=listener,
            wants_flush=wants_flush,
            now=now,
            on_failure=on_failure,
        )

    def _name_the_topic(self) -> None:
        """`partition.metadata`, which every partition's folder has in Kafka."""
        path = f"{self.folder}/partition.metadata"
        if not self.disk.exists(path):
            self.disk.write_file(path, [f"version: 0\ntopic_id: {_TOPIC_ID_TEXT}".encode()])

    # The leader

    @property
    def epoch(self) -> int:
        return self.host.quorum.epoch

    @property
    def leads(self) -> bool:
        return isinstance(self.host.quorum.role, Leader)

    @property
    def kraft_version(self) -> int:
        return self.voters.kraft_version

    @property
    def leader_high_watermark(self) -> int:
        """The leader's high watermark, as far as this node knows it."""
        return self.host.quorum.leader_high_watermark

    # Writing

    def append(self, records: Sequence[Any], *, metadata_version: int, wall_ms: int) -> int:
        """One batch; returns the offset of its last record."""
        batch = metadata_batch(
            records,
            base_offset=self.log.end_offset,
            epoch=self.epoch,
            wall_ms=wall_ms,
            metadata_version=metadata_version,
        )
        self.host.append(batch)
        return self.log.end_offset - 1

    def append_prepared(self, batch: bytearray) -> None:
        """A batch that was made before, for a place that was not known then."""
        _PLACE.pack_into(batch, BASE_OFFSET_AT, self.log.end_offset)
        _EPOCH.pack_into(batch, LEADER_EPOCH_AT, self.epoch)  # the CRC covers neither
        self.host.append(batch)

    # Reading

    def replay(self, image: MetadataImage, up_to: int) -> MetadataImage:
        """The image after all records before `up_to`."""
        return self._with_kraft_version(self._replay(image, up_to))

    def load_latest_snapshot(self, cluster_id: str) -> MetadataImage:
        """The quorum has just installed it in place of the log."""
        latest = self.snapshots[-1]
        content = self.disk.read_file(self._path(latest))
        self.snapshot_bytes = len(content)
        snapshot = read_snapshot(content, latest.file_name)
        image = self._of_snapshot(MetadataImage(cluster_id=cluster_id), latest, snapshot)
        return self._with_kraft_version(image)

    # Snapshots

    @property
    def latest_snapshot_end(self) -> int:
        return self.snapshots[-1].end_offset if self.snapshots else 0

    @property
    def bytes_since_snapshot(self) -> int:
        return self.files.bytes_since_snapshot

    def snapshot(
        self, image: MetadataImage, wall_ms: int, finished: Callable[[OSError | None], None]
    ) -> SnapshotWork:
        """The work of writing `image`, which must be committed, to a snapshot of its own."""
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        self.files.bytes_since_snapshot = 0
        named = self.voters.before(snapshot_id.end_offset)

        def note(error: OSError | None) -> None:
            if error is None:
                self._note_snapshot(snapshot_id)
            finished(error)

        return SnapshotWork(
            self.disk,
            self._path(snapshot_id),
            snapshot_batches(
                records_of(image),
                epoch=snapshot_id.epoch,
                last_contained_ms=image.wall_ms,
                wall_ms=wall_ms,
                metadata_version=image.metadata_version,
                kraft_version=named.kraft_version,
                voters=named.voters,
            ),
            note,
        )

    def _note_snapshot(self, snapshot_id: SnapshotId) -> None:
        if snapshot_id.end_offset <= self.latest_snapshot_end:
            # A newer snapshot of the leader was installed in the meantime.
            if snapshot_id not in self.snapshots:
                self.disk.remove(self._path(snapshot_id))
            return
        self.snapshots.append(snapshot_id)
        self.snapshot_bytes = self.disk.size(self._path(snapshot_id))
        self.voters.forget_before(snapshot_id.end_offset)

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
        """Returns whether the records in the second snapshot are so old that the first is not
        needed."""
        newer_ms = read_last_contained_ms(self.disk, self._path(self.snapshots[1]))
        return wall_ms - newer_ms > retention_ms

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self.folder}/{snapshot.file_name}"

    def _load_snapshot(self, image: MetadataImage) -> MetadataImage:
        """The newest snapshot that can be read and that the log continues; without any, the log has
        everything if it begins at 0. Damaged ones are kept as files and not counted any more."""
        faults = []
        for snapshot_id in reversed(self.snapshots[:]):
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
            self.voters.begin_with(snapshot_id.end_offset, snapshot)
            return self._of_snapshot(image, snapshot_id, snapshot)
        if self.log.start_offset > 0:
            reason = "; ".join(faults) or "there is no snapshot of what is before it"
            raise UnusableMetadata(
                f"The metadata log in {self.folder} begins at offset {self.log.start_offset}, and "
                f"{reason}. {what_to_type(self.folder)}"
            )
        return image

    def _of_snapshot(
        self, image: MetadataImage, snapshot_id: SnapshotId, snapshot: Snapshot
    ) -> MetadataImage:
        return image.apply(
            snapshot.records,
            offset=snapshot_id.end_offset - 1,
            epoch=snapshot_id.epoch,
            wall_ms=snapshot.last_contained_ms,
        )

    # Replay

    def _with_kraft_version(self, image: MetadataImage) -> MetadataImage:
        level = self.voters.before(image.offset + 1).kraft_version
        return image if image.kraft_version == level else replace(image, kraft_version=level)

    def _replay(
        self, image: MetadataImage, up_to: int, *, note_voters: bool = False
    ) -> MetadataImage:
        while image.offset + 1 < up_to:
            image = self._replay_some(image, up_to, note_voters)
        return self._with_kraft_version(image) if note_voters else image

    def _replay_some(self, image: MetadataImage, up_to: int, note_voters: bool) -> MetadataImage:
        """One read's worth of whole batches behind the image."""
        offset = image.offset + 1
        records: list[Any] = []
        last: Batch | None = None
        try:
            for batch in batches_in(self._read(offset, up_to, count=note_voters)):
                if batch.last_offset < offset:
                    continue
                last = batch
                if not batch.is_control:
                    records += batch.records
                elif note_voters:
                    self.voters.note(batch)
        except MalformedMessage as fault:
            raise self._unreadable(offset, str(fault)) from fault
        if last is None:
            raise self._unreadable(offset, "nothing is there")
        behind = {"offset": last.last_offset, "epoch": last.epoch, "wall_ms": last.wall_ms}
        try:
            return image.apply(records, **behind)
        except InconsistentMetadata as fault:
            raise self._unreadable(offset, str(fault)) from fault

    def _read(self, offset: int, up_to: int, *, count: bool) -> memoryview:
        found = self.log.read(offset, READ_SIZE, up_to=up_to, at_least_one=True)
        if found is None:
            raise self._unreadable(
                offset, f"nothing is there, and it ends at {self.log.end_offset}"
            )
        if count:
            self.files.bytes_since_snapshot += found.length
        return memoryview(found.file.read(found.length, found.position))

    def _unreadable(self, offset: int, reason: str) -> UnusableMetadata:
        return UnusableMetadata(
            f"The metadata log in {self.folder} cannot be read from offset {offset} on: {reason}. "
            f"{what_to_type(self.folder)}"
        )

    # For a node alone

    def _require_voters(self) -> None:
        """Raises UnusableMetadata if the voters are unknown: a damaged snapshot that named them was
        skipped, and the log does not name them either."""
        if not self.voters.latest and not self._state.static_voters:
            raise UnusableMetadata(
                f"The snapshot in {self.folder} that names the voters is damaged, and the log does "
                f"not name them. {what_to_type(self.folder)}"
            )

    def _require_sole_voter(self) -> None:
        ids = [voter.id for voter in self.voters.latest] or list(self._state.static_voters)
        if ids not in ([], [self.voter.id]):
            others = ", ".join(str(voter) for voter in ids)
            raise UnusableMetadata(
                f"The metadata in {self.folder} belongs to a quorum with the voter(s) {others}; "
                f"node {self.voter.id} cannot lead it alone."
            )
        if self.voters.kraft_version and self.voters.latest[0].directory_id != (
            self.voter.directory_id
        ):
            raise UnusableMetadata(
                f"The metadata in {self.folder} was written by node {self.voter.id} on another "
                "disk: its directory.id is not the one in meta.properties."
            )
