"""Requests and responses between members of the quorum, as plain values.

Kafka's wire messages nest one topic and one partition around every field, since they were made
for many; `wire.py` turns these into those and back. The machine (`machine.py`) knows only these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headrace.node.consensus.snapshots import SnapshotId
from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.primitives import ZERO_ID

NOBODY = -1  # no leader, no candidate, nothing known


class ReplicaKey(NamedTuple):
    """A member and its disk. A member that lost its disk is another replica with the same id."""

    id: int
    directory_id: bytes = ZERO_ID

    def covers(self, other: ReplicaKey) -> bool:
        """Returns whether this key identifies `other`. A key without a directory (kraft.version 0)
        fits any directory."""
        return self.id == other.id and self.directory_id in (ZERO_ID, other.directory_id)


class OffsetAndEpoch(NamedTuple):
    offset: int
    epoch: int


@dataclass(slots=True)
class VoteRequest:
    epoch: int  # the candidate's; a pre-vote names the present epoch and changes no member's
    candidate: ReplicaKey
    last_epoch: int  # of the last record in the candidate's log
    last_offset: int  # the end of its log
    pre_vote: bool
    voter: ReplicaKey | None  # the receiver; None: an old version that does not name it


@dataclass(slots=True)
class BeginEpochRequest:
    epoch: int
    leader_id: int
    endpoints: tuple[VoterEndpoint, ...]
    voter: ReplicaKey | None


@dataclass(slots=True)
class EndEpochRequest:
    epoch: int
    leader_id: int
    endpoints: tuple[VoterEndpoint, ...]
    successors: tuple[ReplicaKey, ...]  # the one with the longest log first


@dataclass(slots=True)
class FetchRequest:
    replica: ReplicaKey
    epoch: int  # that the replica believes in
    offset: int  # everything before it is on the replica's disk
    last_epoch: int  # of the record before `offset`
    max_wait_ms: int
    high_watermark: int = NOBODY  # the replica's; the leader answers at once if its own is higher


@dataclass(slots=True)
class FetchSnapshotRequest:
    replica: ReplicaKey
    epoch: int
    snapshot_id: SnapshotId
    position: int
    max_bytes: int


@dataclass(slots=True)
class KRaftVersionsRequest:
    """Which kraft.version levels a coming voter understands; ApiVersions on the wire."""


@dataclass(slots=True)
class AddVoterRequest:
    voter: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...]
    timeout_ms: int
    ack_when_committed: bool = True  # False (v1): answer as soon as the record is in the log


@dataclass(slots=True)
class RemoveVoterRequest:
    voter: ReplicaKey


@dataclass(slots=True)
class UpdateVoterRequest:
    """A voter reports its endpoints and the kraft.version levels that it supports."""

    epoch: int
    voter: Voter


Request = (
    VoteRequest
    | BeginEpochRequest
    | EndEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | KRaftVersionsRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
)


@dataclass(slots=True)
class Response:
    """Every response names the epoch and its leader, as far as the sender knows them."""

    error: ErrorCode
    epoch: int
    leader_id: int = NOBODY
    endpoints: tuple[VoterEndpoint, ...] = ()  # the leader's


@dataclass(slots=True)
class VoteResponse(Response):
    granted: bool = False


@dataclass(slots=True)
class FetchResponse(Response):
    high_watermark: int = NOBODY
    start_offset: int = 0
    records: bytes = b""
    diverging: OffsetAndEpoch | None = None  # where the two logs part
    snapshot_id: SnapshotId | None = None  # the log does not reach back so far: take this first


@dataclass(slots=True)
class FetchSnapshotResponse(Response):
    snapshot_id: SnapshotId | None = None
    size: int = 0
    position: int = 0
    data: bytes = b""


@dataclass(slots=True)
class KRaftVersionsResponse(Response):
    versions: tuple[int, int] | None = None  # lowest and highest; None: the feature is unknown


@dataclass(slots=True)
class VoterChangeResponse(Response):
    message: str | None = None
