"""Elections: how a member becomes a candidate, and how it votes.

A candidacy begins with pre-votes in the present epoch (KIP-996), so that a member that was only
disconnected does not disturb the quorum; with a majority of them it becomes a candidate in the next
epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.environment import Now
from headrace.node.consensus.quorum.effects import Elected
from headrace.node.consensus.quorum.messages import (
    NOBODY,
    OffsetAndEpoch,
    ReplicaKey,
    VoteRequest,
    VoteResponse,
)
from headrace.node.consensus.quorum.quorum_log import Election
from headrace.node.consensus.quorum.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Unattached,
    Votes,
)
from headrace.node.consensus.quorum.vote_rules import grants, is_malformed
from headrace.node.consensus.quorum.voter_history import key_of
from headrace.node.consensus.voters import VoterEndpoint
from headrace.node.storage.durability.open_files import is_full
from headrace.wire.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.node.consensus.quorum.machine import Quorum


class Elections:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # Standing

    def stand(self, now: Now) -> None:
        """Begin a pre-vote: ask whether others would vote for this node. No member changes its
        epoch yet."""
        quorum, role = self._quorum, self._quorum.role
        voted: ReplicaKey | None = None
        leader_id = NOBODY
        endpoints: tuple[VoterEndpoint, ...] = ()
        match role:
            case Unattached():
                voted, leader_id = role.voted, role.leader_id
            case Candidate():
                voted = quorum.me
            case Follower():
                leader_id, endpoints = role.leader_id, role.endpoints
        votes = self._votes()
        standing = Prospective(votes, quorum.election_deadline(now), voted, leader_id, endpoints)
        quorum.become(standing, Election(quorum.epoch, leader_id, voted))

    def _votes(self) -> Votes:
        """Its own vote counts only if this node is a voter."""
        quorum = self._quorum
        return Votes(quorum.voters.latest, granted={quorum.me.id} if quorum.is_voter else set())

    def lead_alone(self, now: Now) -> None:
        """Begin the next epoch as the leader, in one write; for the only voter, which needs no
        other votes."""
        self._lead(self._quorum.epoch + 1, {self._quorum.me.id}, now)

    def canvass(self, role: Prospective, now: Now, *, is_late: bool) -> None:
        self._ask_for_votes(role.votes, now, pre_vote=True)
        if role.votes.won:
            self._become_candidate(now)
        elif is_late or role.votes.lost:
            self._stand_down(role, now)

    def campaign(self, role: Candidate, now: Now, *, is_late: bool) -> None:
        quorum = self._quorum
        self._ask_for_votes(role.votes, now, pre_vote=False)
        if role.votes.won:
            try:
                self._lead(quorum.epoch, set(role.votes.granted), now)
            except OSError as problem:
                if not is_full(problem):
                    raise
                self.stand(now)
        elif is_late:
            self.stand(now)

    def _ask_for_votes(self, votes: Votes, now: Now, *, pre_vote: bool) -> None:
        quorum = self._quorum
        for voter in votes.silent():
            if quorum.in_flight.is_free(voter.id, now.monotonic_ms):
                request = VoteRequest(
                    quorum.epoch,
                    quorum.me,
                    quorum.log.last_epoch,
                    quorum.log.end_offset,
                    pre_vote,
                    key_of(voter),
                )
                quorum.send(voter.id, voter.endpoints, request, now)

    def _stand_down(self, role: Prospective, now: Now) -> None:
        """End the pre-vote without a candidacy, after a refusal or a timeout; another one follows
        later."""
        quorum = self._quorum
        if role.votes.lost and role.leader_endpoints:
            quorum.become_follower(quorum.epoch, role.leader_id, role.leader_endpoints, now)
        else:
            quorum.become_unattached(quorum.epoch, now, role.leader_id)

    def _become_candidate(self, now: Now) -> None:
        quorum = self._quorum
        candidate = Candidate(self._votes(), quorum.election_deadline(now))
        try:
            quorum.become(candidate, Election(quorum.epoch + 1, NOBODY, quorum.me))
        except OSError as problem:
            if not is_full(problem):
                raise
            quorum.become_unattached(quorum.epoch, now, quorum.leader_id)

    def _lead(self, epoch: int, granting: set[int], now: Now) -> None:
        quorum = self._quorum
        leader = Leader(
            epoch_start=quorum.log.end_offset,
            granting=granting,
            begin_at_ms=now.monotonic_ms,
            quorum_until_ms=now.monotonic_ms + quorum.leadership.quorum_timeout_ms,
        )
        quorum.become(leader, Election(epoch, quorum.me.id))
        try:
            quorum.leadership.begin(leader, now)
        except KafkaError:  # the disk refuses the first record of the epoch
            quorum.noted.has_no_room = True
            if not quorum.other_voters():
                raise
            quorum.leadership.give_up(now)
        else:
            quorum.effects.append(Elected(quorum.epoch))

    def vote_heard(self, voter: int, request: VoteRequest, response: VoteResponse) -> None:
        role = self._quorum.role
        asked = Prospective if request.pre_vote else Candidate
        if isinstance(role, asked) and response.error == ErrorCode.NONE:
            assert isinstance(role, Prospective | Candidate)
            role.votes.note(voter, granted=response.granted)

    # Voting

    def vote(self, request: VoteRequest, now: Now) -> VoteResponse:
        quorum = self._quorum
        if is_malformed(request) or request.candidate.id == quorum.me.id:
            return quorum.answer(VoteResponse, ErrorCode.INVALID_REQUEST)
        if request.epoch < quorum.epoch:
            return quorum.fenced(VoteResponse)
        if request.epoch > quorum.epoch:
            quorum.become_unattached(request.epoch, now)
        if not quorum.is_meant(request.voter):
            return quorum.answer(VoteResponse, ErrorCode.INVALID_VOTER_KEY)
        mine = OffsetAndEpoch(quorum.log.end_offset, quorum.log.last_epoch)
        granted = grants(quorum.role, request, mine)
        if granted and not request.pre_vote:
            try:
                self._promise(request.candidate, now)
            except OSError as problem:
                if not is_full(problem):
                    raise
                granted = False  # a vote that is not on the disk could be given twice
        return quorum.answer(VoteResponse, granted=granted)

    def _promise(self, candidate: ReplicaKey, now: Now) -> None:
        quorum = self._quorum
        promised = Unattached(quorum.election_deadline(now), candidate)
        quorum.become(promised, Election(quorum.epoch, NOBODY, candidate))

    def turn_of_successor(self, successors: tuple[ReplicaKey, ...]) -> int:
        """Returns after how many ms this node should begin an election when the leader resigns. The
        voter with the longest log begins at once, the others later, so that they seldom compete."""
        quorum = self._quorum
        ranks = [rank for rank, key in enumerate(successors) if key.covers(quorum.me)]
        if ranks and ranks[0] == 0:
            return 0
        rank = ranks[0] if ranks else len(successors)
        step = max(quorum.timeouts.election_backoff_max_ms // (len(successors) + 1), 1)
        return rank * step + quorum.chance(step)
