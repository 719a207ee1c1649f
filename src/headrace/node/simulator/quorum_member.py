"""One simulated member of the quorum: the real machine, on a log in memory that a crash cuts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.node.consensus.batches import batches_in
from headrace.node.consensus.quorum.machine import Quorum
from headrace.node.consensus.quorum.messages import ReplicaKey
from headrace.node.consensus.quorum.voter_history import VoterHistory
from headrace.node.consensus.snapshots import SnapshotId, read_snapshot, snapshot_batches
from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.node.simulator.memory_log import MemoryLog, MemoryState, StoredBatch
from headrace.wire.protocol.messages.topic_record import TopicRecord

METADATA_VERSION = 30
ADDRESSES_PER_NODE = 1_000  # a node's ports; only its present one answers


@dataclass(slots=True)
class Member:
    id: int
    formatted: VoterHistory | None  # the voters that configuration or formatting names
    log: MemoryLog = field(default_factory=MemoryLog)
    state: MemoryState = field(default_factory=MemoryState)
    disks: int = 1  # how many it has had
    moves: int = 0
    quorum: Quorum | None = None  # None: it is down
    life: int = 0
    applied: int = 0  # up to where its committed records were compared with those of all
    unanswered: list[StoredBatch] = field(default_factory=list)  # appends that are not committed
    unanswered_requests: dict[Any, Callable[[None], None]] = field(default_factory=dict)
    wakes_at_ms: int | None = None
    paused_until_ms: int = 0

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, bytes([self.id, self.disks]) * 8)

    @property
    def endpoints(self) -> tuple[VoterEndpoint, ...]:
        port = self.id * ADDRESSES_PER_NODE + self.moves
        return (VoterEndpoint("CONTROLLER", f"node{self.id}", port),)

    @property
    def as_voter(self) -> Voter:
        return Voter(self.id, self.key.directory_id, self.endpoints)

    def lose_disk(self, log: MemoryLog) -> None:
        """Lose the disk: the member restarts empty and as another replica, which is not a voter
        yet."""
        self.disks += 1
        self.log, self.state = log, MemoryState()
        self.formatted = None

    def load_voters(self, configured: VoterHistory) -> tuple[VoterHistory, bytes | None]:
        """The voters according to log and snapshot, and the digest in the snapshot."""
        history, digest = configured, None
        latest = self.log.latest_snapshot()
        if latest is not None:
            snapshot = read_snapshot(self.log.snapshots[latest], latest.file_name)
            history.begin_with(latest.end_offset, snapshot)
            digest = bytes.fromhex(snapshot.records[0].name)
        for stored in self.log.batches:
            if latest is None or stored.base_offset >= latest.end_offset:
                for batch in batches_in(memoryview(stored.data)):
                    history.note(batch)
        return history, digest

    def take_snapshot(self, digest: bytes, wall_ms: int) -> bool:
        """Takes a snapshot of everything applied; returns False if there is nothing new."""
        assert self.quorum is not None
        latest = self.log.latest_snapshot()
        ends = [b for b in self.log.batches if b.end_offset == self.applied]
        if not ends or (latest is not None and latest.end_offset >= self.applied):
            return False
        snapshot_id = SnapshotId(self.applied, ends[0].epoch)
        entry = self.quorum.voters.before(self.applied)
        content = snapshot_batches(
            [TopicRecord(name=digest.hex())],
            epoch=snapshot_id.epoch,
            last_contained_ms=wall_ms,
            wall_ms=wall_ms,
            metadata_version=METADATA_VERSION,
            kraft_version=entry.kraft_version,
            voters=entry.voters,
        )
        self.log.add_snapshot(snapshot_id, b"".join(content))
        self.quorum.voters.forget_before(self.log.start_offset)
        return True
