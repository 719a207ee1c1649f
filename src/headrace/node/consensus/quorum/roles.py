"""The roles of a member of the quorum, the state of each, and the allowed transitions.

Nothing here acts; `machine.py` does. An observer is only ever Unattached or a Follower.

    Unattached   knows no leader of its epoch that it could ask
    Prospective  its time is up: asks whether others would vote for it, in the present epoch
    Candidate    asks for votes in a new epoch
    Leader       appends the records of its epoch
    Follower     fetches them from the leader
    Resigned     led this epoch, before a restart or until it gave up, and must not lead it again
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.node.consensus.quorum.messages import NOBODY, FetchRequest, ReplicaKey
from headrace.node.consensus.quorum.voter_history import find, key_of, majority_of
from headrace.node.consensus.snapshots import SnapshotId
from headrace.node.consensus.voters import Voter, VoterEndpoint


@dataclass(slots=True)
class Votes:
    """One answer per voter that was there when the election began."""

    voters: tuple[Voter, ...]
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)

    @property
    def won(self) -> bool:
        return len(self.granted) >= majority_of(self.voters)

    @property
    def lost(self) -> bool:
        return len(self.voters) - len(self.rejected) < majority_of(self.voters)

    def silent(self) -> list[Voter]:
        return [v for v in self.voters if v.id not in self.granted and v.id not in self.rejected]

    def note(self, voter: int, *, granted: bool) -> None:
        if granted:
            self.granted.add(voter)
            self.rejected.discard(voter)
        elif voter not in self.granted:
            self.rejected.add(voter)


@dataclass(slots=True)
class Unattached:
    deadline_ms: int  # then a voter begins an election
    voted: ReplicaKey | None = None  # in this epoch; it is on disk
    leader_id: int = NOBODY  # the epoch's leader, if this node knows it but not how to reach it


@dataclass(slots=True)
class Prospective:
    votes: Votes
    deadline_ms: int
    voted: ReplicaKey | None = None
    leader_id: int = NOBODY  # the leader that it followed until its fetches failed
    leader_endpoints: tuple[VoterEndpoint, ...] = ()


@dataclass(slots=True)
class Candidate:
    votes: Votes
    deadline_ms: int


@dataclass(slots=True)
class Download:
    """A snapshot on its way from the leader, piece by piece into a file of its own."""

    snapshot_id: SnapshotId
    position: int = 0


@dataclass(slots=True)
class Follower:
    leader_id: int
    endpoints: tuple[VoterEndpoint, ...]
    deadline_ms: int  # a voter that has not fetched by then doubts its leader
    update_voter_at_ms: int  # when to tell the leader that this voter is reached elsewhere by now
    join_at_ms: int = 0  # when to ask the leader to make this member a voter
    has_fetched: bool = False  # it hears its leader: pre-votes of others are refused
    download: Download | None = None


@dataclass(slots=True)
class ReplicaProgress:
    """A replica as its leader sees it."""

    end_offset: int = NOBODY  # everything before it is on the replica's disk
    last_fetch_ms: int = NOBODY
    last_caught_up_ms: int = NOBODY  # when it last had everything that the leader had
    leader_end_at_last_fetch: int = NOBODY


@dataclass(slots=True)
class WaitingFetch:
    request: FetchRequest
    token: Any
    deadline_ms: int


@dataclass(slots=True)
class VoterChange:
    """The one change of the voter set that is under way."""

    token: Any
    deadline_ms: int
    offset: int = NOBODY  # of the VotersRecord, once it is in the log
    coming: Voter | None = None  # the voter to add, until its kraft.version levels are known
    ack_when_committed: bool = True


@dataclass(slots=True)
class Leader:
    epoch_start: int  # offset of the record that began the epoch
    granting: set[int]
    begin_at_ms: int  # tell voters of the epoch again
    quorum_until_ms: int  # a majority must fetch before, else this node gives up
    high_watermark: int = NOBODY  # NOBODY until a record of this epoch is committed
    progress: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    fetched_lately: set[ReplicaKey] = field(default_factory=set)
    waiting: list[WaitingFetch] = field(default_factory=list)
    change: VoterChange | None = None

    def commit_point(self, voters: tuple[Voter, ...], me: ReplicaKey, my_end: int) -> int:
        """The offset before which a majority of voters has everything on disk."""
        ends = []
        for voter in voters:
            if key_of(voter).covers(me):
                ends.append(my_end)
            else:
                found = self.progress.get(key_of(voter))
                ends.append(NOBODY if found is None else found.end_offset)
        ends.sort(reverse=True)
        return ends[majority_of(voters) - 1] if voters else NOBODY

    def may_commit(self, point: int) -> bool:
        """Only what reaches into the leader's own epoch: a record of an older epoch can be on a
        majority of disks and still lose to a longer log (Raft, figure 8)."""
        return point > self.epoch_start

    def has_a_majority(self, voters: tuple[Voter, ...], me: ReplicaKey) -> bool:
        """Returns whether enough voters have fetched since this was last true."""
        heard = sum(1 for replica in self.fetched_lately if find(voters, replica) is not None)
        return heard + (find(voters, me) is not None) >= majority_of(voters)


@dataclass(slots=True)
class Resigned:
    deadline_ms: int
    successors: tuple[ReplicaKey, ...]
    untold: set[int]  # voters that have not heard of the end of the epoch


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned

# From which role to which, within an epoch or by a new one; the test walks all of it.
NEXT_ROLES: dict[type[Role], set[type[Role]]] = {
    Unattached: {Unattached, Prospective, Follower, Leader},  # Leader: the only voter, at a start
    Prospective: {Unattached, Candidate, Follower},
    Candidate: {Unattached, Prospective, Leader, Follower},
    Leader: {Unattached, Resigned, Follower},
    Follower: {Unattached, Prospective, Follower},
    Resigned: {Unattached, Follower},
}
