"""The interface of the metadata log, its snapshots and `quorum-state`, as the quorum needs it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headrace.node.consensus.quorum.log_matching import Matching
from headrace.node.consensus.quorum.messages import NOBODY, ReplicaKey
from headrace.node.consensus.snapshots import Snapshot, SnapshotId


class QuorumLog(Matching, Protocol):
    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot before the log; 0 without either."""
        ...

    @property
    def flushed_offset(self) -> int:
        """Everything before it is on the disk, in the form that the log has now."""
        ...

    def append(self, batches: bytes | bytearray, *, wall_ms: int) -> None:
        """Whole batches that carry their offsets and epochs and begin at the end."""
        ...

    def truncate(self, to_offset: int, *, wall_ms: int) -> None:
        """Cut the log's end. A flush that is under way then proves nothing behind `to_offset`."""
        ...

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on; at least one if there is any."""
        ...

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """Returns None if the snapshot does not exist."""
        ...

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes: ...

    def write_snapshot(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        """Store a piece of the leader's snapshot in a temporary file; position 0 starts a new
        file."""
        ...

    def install_snapshot(self, snapshot_id: SnapshotId, *, wall_ms: int) -> Snapshot:
        """All pieces are there: flush and name the file, and begin the log at its end.

        MalformedMessage: it is not whole, and everything stays as it was.
        """
        ...


class Election(NamedTuple):
    """The contents of `quorum-state`."""

    epoch: int = 0
    leader_id: int = NOBODY
    voted: ReplicaKey | None = None


class StateFile(Protocol):
    """`quorum-state`. `write` has flushed when it returns; an OSError must end the node."""

    def read(self) -> Election | None:
        """Returns None if there is no file."""
        ...

    def write(self, election: Election) -> None: ...

    def read_removal(self) -> bool:
        """Returns whether this member is noted as a voter that was removed."""
        ...

    def write_removal(self, *, removed: bool) -> None:
        """Note it, or forget it. Flushed when it returns; OSError: nothing has changed."""
        ...
