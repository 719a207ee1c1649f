"""One member of the metadata quorum: KRaft as a pure machine (KIP-595, KIP-853, KIP-996).

Requests, responses, finished flushes and the passing of time come in by a method each; the effects
to perform come out in `effects`. The host performs the effects and brings the results back. Nothing
here waits, opens a socket or reads a clock.

Rules that everything rests on:
1. Epoch, vote and leader are on disk before anything that depends on them leaves (`become`).
   A vote always needs this write; following a leader works with a full disk
   (`noted_election.py`).
2. A member counts as having a record only when its disk has it: a follower's next fetch leaves
   after the flush, a leader's own end counts as far as it is flushed.
3. A leader commits nothing before a record of its own epoch is committed.
4. The voters are those of the latest VotersRecord in the log, committed or not; the next one is
   written only when the one before is committed.
5. An epoch far ahead of this member's own is not believed (`believable_epochs.py`).
6. A voter that has lost its `quorum-state` skips the epochs in which it may have voted.

`elections.py` has candidacies and votes, `leadership.py` and `voter_changes.py` the leader's part,
`fetcher.py` that of followers and observers. Not done: raising kraft.version 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.environment import Now
from headrace.node.consensus.quorum.believable_epochs import (
    FORGOTTEN_EPOCHS,
    LAST_EPOCH,
    is_believable,
)
from headrace.node.consensus.quorum.effects import Deposed, Effect, Flush, Reply, Send
from headrace.node.consensus.quorum.elections import Elections
from headrace.node.consensus.quorum.fetcher import Fetcher
from headrace.node.consensus.quorum.leadership import Leadership
from headrace.node.consensus.quorum.messages import (
    NOBODY,
    AddVoterRequest,
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    KRaftVersionsRequest,
    KRaftVersionsResponse,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from headrace.node.consensus.quorum.noted_election import NotedElection
from headrace.node.consensus.quorum.quorum_log import Election, QuorumLog, StateFile
from headrace.node.consensus.quorum.requests_in_flight import RequestsInFlight
from headrace.node.consensus.quorum.roles import (
    NEXT_ROLES,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from headrace.node.consensus.quorum.voter_changes import VoterChanges
from headrace.node.consensus.quorum.voter_history import VoterHistory, find
from headrace.node.consensus.voters import KRAFT_VERSIONS, Voter, VoterEndpoint
from headrace.wire.protocol.errors import ErrorCode, KafkaError

R = TypeVar("R", bound=Response)


@dataclass(slots=True)
class Timeouts:
    """Kafka's settings `controller.quorum.*` and their defaults."""

    election_ms: int = 1_000
    fetch_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    request_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_wait_ms: int = 500  # how long a leader may keep a fetch that finds nothing new


class TwoLeaders(Exception):
    """Two members claim to lead one epoch: some voter has forgotten its vote."""


class Quorum:
    def __init__(
        self,
        me: ReplicaKey,
        endpoints: tuple[VoterEndpoint, ...],
        *,
        log: QuorumLog,
        state_file: StateFile,
        voters: VoterHistory,
        bootstrap: tuple[VoterEndpoint, ...] = (),
        timeouts: Timeouts,
        chance: Callable[[int], int],
        joins_by_itself: bool = False,
    ) -> None:
        """`voters` comes from the log and its snapshots; `chance(n)` is at least 0 and below n.
        `joins_by_itself`: a member that does not vote asks the leader to become a voter."""
        self.me = me
        self.endpoints = endpoints
        self.log = log
        self.voters = voters
        self.bootstrap = bootstrap
        self.timeouts = timeouts
        self.chance = chance
        self.joins_by_itself = joins_by_itself
        self.epoch = 0
        self.role: Role = Unattached(0)
        self.high_watermark = NOBODY
        self.leader_high_watermark = NOBODY  # as last heard; this log may not reach so far yet
        self.leader_heard = NOBODY, 0  # the leader that has answered last, and when
        self.damaged_responses = 0  # that could not be appended; for a metric
        self.unbelievable_epochs = 0  # requests and responses that named one; for a metric
        self.effects: list[Effect] = []
        self.in_flight = RequestsInFlight(
            timeout_ms=timeouts.request_ms, backoff_ms=timeouts.retry_backoff_ms
        )
        self.noted = NotedElection(state_file)
        self._elections = Elections(self)
        self.leadership = Leadership(self)
        self.voter_changes = VoterChanges(self)
        self._fetcher = Fetcher(self)
        self._judged_offset = NOBODY  # of the voters by which `_note_removal` has judged last

    # Entry points

    def start(self, now: Now) -> None:
        election = self.noted.read() or self._election_without_file()
        if election.epoch < self.log.last_epoch:  # the file is older than the log
            election = Election(self.log.last_epoch)
        assert election.epoch < LAST_EPOCH, "a folder without a next epoch is not started"
        self.epoch = election.epoch
        if (snapshot := self.log.latest_snapshot()) is not None:
            self.high_watermark = snapshot.end_offset  # only committed records are in snapshots
        if self.log.flushed_offset < self.log.end_offset:
            self.effects.append(Flush())  # what a crash has left counts only then (rule 2)
        if self.is_voter and len(self.voters.latest) == 1:
            self._elections.lead_alone(now)
        else:
            self.role = self._role_after_restart(election, now)
        self.tick(now)

    def _election_without_file(self) -> Election:
        """A log with records had a file: this member has forgotten its votes. Elections that left
        no record in its log are passed over, so it cannot vote twice in one of them. The epoch is
        on disk before anything leaves; the other members follow it by one election."""
        if self.log.end_offset == 0 or not self.is_voter:
            return Election(self.log.last_epoch)
        election = Election(min(self.log.last_epoch + FORGOTTEN_EPOCHS, LAST_EPOCH - 1))
        self.noted.note(election, promises=True)
        return election

    def _role_after_restart(self, election: Election, now: Now) -> Role:
        if election.leader_id == self.me.id:
            # Records that were not flushed may be lost, so leading on could give an offset two
            # values.
            return Resigned(self.election_deadline(now), (), set())
        where = self.endpoints_of(election.leader_id)
        if election.leader_id != NOBODY and where:
            return self._follower(election.leader_id, where, now)
        return Unattached(self.election_deadline(now), election.voted, election.leader_id)

    def receive(self, request: Request, token: Any, now: Now) -> None:
        """The response is a `Reply` with this token, now or later."""
        match request:
            case VoteRequest() | BeginEpochRequest() | EndEpochRequest() if not self.believes(
                request.epoch
            ):
                kind = VoteResponse if isinstance(request, VoteRequest) else Response
                self.reply(token, self.answer(kind, ErrorCode.INVALID_REQUEST))
            case VoteRequest():
                self.reply(token, self._elections.vote(request, now))
            case BeginEpochRequest():
                self.reply(token, self._begin_epoch(request, now))
            case EndEpochRequest():
                self.reply(token, self._end_epoch(request, now))
            case FetchRequest():
                self.leadership.fetch(request, token, now)
            case FetchSnapshotRequest():
                self.reply(token, self.leadership.fetch_snapshot(request, now))
            case KRaftVersionsRequest():
                self.reply(token, self.answer(KRaftVersionsResponse, versions=KRAFT_VERSIONS))
            case AddVoterRequest():
                self.voter_changes.add(request, token, now)
            case RemoveVoterRequest():
                self.voter_changes.remove(request, token, now)
            case UpdateVoterRequest():
                self.reply(token, self.voter_changes.update(request, now))
        self.tick(now)

    def answered(self, to: int, correlation_id: int, response: Response | None, now: Now) -> None:
        request = self.in_flight.take(to, correlation_id)
        if request is None:
            return
        if response is None or response.error != ErrorCode.NONE:
            self.in_flight.rest(to, now.monotonic_ms)
        if isinstance(request, KRaftVersionsRequest):
            self.voter_changes.versions_heard(to, response, now)
        elif response is not None:
            self._hear(to, request, response, now)
        self.tick(now)

    def refused(self, to: int, now: Now) -> None:
        """The host of that member refuses connections to it: its process has ended. If it led, this
        node does not wait for the rest of its fetch timeout, and grants votes to other
        candidates."""
        role = self.role
        if isinstance(role, Follower) and role.leader_id == to:
            role.has_fetched = False
            soon_ms = now.monotonic_ms + 1 + self.chance(self.timeouts.fetch_ms // 10 + 1)
            role.deadline_ms = min(role.deadline_ms, soon_ms)

    def flushed(self, now: Now) -> None:
        """The log's `flushed_offset` has grown."""
        self.commit(now)
        self.tick(now)

    def append(self, batches: bytes | bytearray, now: Now) -> None:
        """Records of the present epoch, by its leader. KafkaError: the disk has refused them, and
        this member resigns if there are others."""
        assert isinstance(self.role, Leader), "only a leader appends"
        try:
            self.leadership.append(batches, now)
        except KafkaError:
            self.noted.has_no_room = True
            if self.other_voters():
                self.resign(now)
            raise
        self.noted.has_no_room = False

    def commit(self, now: Now) -> None:
        """Move the high watermark, if this node leads and a majority has more than before."""
        if isinstance(self.role, Leader) and self.leadership.commit():
            self.voter_changes.committed(now)

    def resign(self, now: Now) -> None:
        """Give the lead away, before a shutdown; the voter with the longest log should be next."""
        if isinstance(self.role, Leader):
            self.leadership.give_up(now)
            self.tick(now)

    def tick(self, now: Now) -> None:
        """Do what is due. One pass may make the next thing due, so repeat until nothing is due."""
        self._note_removal()
        while True:
            role = self.role
            self._do_what_is_due(now)
            if self.role is role:
                return

    def next_ms(self, now_ms: int) -> int:
        """When `tick` has something to do at the latest."""
        role = self.role
        times = []
        if isinstance(role, Leader):
            times.append(self.leadership.next_ms(role))
        elif not isinstance(role, Unattached) or self.may_stand:
            times.append(role.deadline_ms)
        if isinstance(role, Follower) and self._fetcher.request_about_my_vote(role) is not None:
            times.append(self._fetcher.next_word_ms(role))
        if (request_ms := self.in_flight.next_ms(now_ms)) is not None:
            times.append(request_ms)
        return max(min(times, default=now_ms + self.timeouts.fetch_ms), now_ms + 1)

    # Roles

    @property
    def leader_id(self) -> int:
        match self.role:
            case Leader():
                return self.me.id
            case Follower() | Unattached() | Prospective():
                return self.role.leader_id
        return NOBODY

    @property
    def leader_endpoints(self) -> tuple[VoterEndpoint, ...]:
        """The leader's endpoints, as far as this node knows them."""
        match self.role:
            case Leader():
                return self.endpoints
            case Follower():
                return self.role.endpoints
        return ()

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self.me)

    @property
    def may_stand(self) -> bool:
        """Returns whether this node may become a candidate: a voter may, and so may one whose
        removal is perhaps not committed. If it alone has the record of its removal, no other log is
        long enough for its vote (Raft's thesis, 4.2.2)."""
        if self.epoch >= LAST_EPOCH or self.noted.has_no_room:
            return False
        if self.is_voter:
            return True
        is_perhaps_undone = self.voters.latest_offset >= self.high_watermark
        return is_perhaps_undone and find(self.voters.previous, self.me) is not None

    def is_left_behind(self) -> bool:
        """Returns whether more is committed than this member knows, and its disk refuses to take
        it: what the member knows of the cluster becomes wrong."""
        return (
            self.noted.has_no_room
            and isinstance(self.role, Follower)
            and self.leader_high_watermark > self.high_watermark
        )

    def _note_removal(self) -> None:
        """A voter that was removed keeps that on its disk, and forgets it if it is added again.
        Only committed records of voters count: others may be undone."""
        judged = self.voters.latest_offset
        if judged == self._judged_offset or judged >= self.high_watermark:
            return
        self._judged_offset = judged
        if self.voters.has_named(self.me):
            self.note_removal()

    def note_removal(self) -> None:
        """The member votes, or has voted before: note which, if it is not noted yet."""
        is_removed = not self.is_voter
        if is_removed != self.noted.was_removed:
            self.noted.note_removal(removed=is_removed)

    def endpoints_of(self, member: int) -> tuple[VoterEndpoint, ...]:
        return next((v.endpoints for v in self.voters.latest if v.id == member), ())

    def other_voters(self) -> list[Voter]:
        return [voter for voter in self.voters.latest if voter.id != self.me.id]

    def is_meant(self, voter: ReplicaKey | None) -> bool:
        return voter is None or voter.covers(self.me)

    # Deadlines

    def _do_what_is_due(self, now: Now) -> None:
        role = self.role
        is_late = not isinstance(role, Leader) and now.monotonic_ms >= role.deadline_ms
        match role:
            case Leader():
                self.leadership.do_what_is_due(role, now)
            case Follower():
                if not is_late:
                    self._fetcher.fetch(role, now)
                elif self.may_stand:
                    self._elections.stand(now)
                else:
                    # It keeps the leader's name, so that it cannot vote in this epoch again.
                    self.become_unattached(self.epoch, now, role.leader_id)
            case Unattached():
                present = Election(self.epoch, role.leader_id, role.voted)
                if is_late and self.noted.has_no_room and not self.noted.find_room(present):
                    role.deadline_ms = self.election_deadline(now)
                elif is_late and self.may_stand:
                    self._elections.stand(now)
                else:
                    self._fetcher.look_for_a_leader(now)
            case Prospective():
                self._elections.canvass(role, now, is_late=is_late)
            case Candidate():
                self._elections.campaign(role, now, is_late=is_late)
            case Resigned():
                if is_late and self.epoch < LAST_EPOCH:
                    self.become_unattached(self.epoch + 1, now)
                else:
                    self.leadership.tell_the_end(role, now)

    # Requests of leaders

    def _begin_epoch(self, request: BeginEpochRequest, now: Now) -> Response:
        if request.epoch < self.epoch:
            return self.fenced(Response)
        if request.leader_id < 0 or request.leader_id == self.me.id:
            return self.answer(Response, ErrorCode.INVALID_REQUEST)
        self.learn(request.epoch, request.leader_id, request.endpoints, now, by_leader=True)
        if not self.is_meant(request.voter):
            return self.answer(Response, ErrorCode.INVALID_VOTER_KEY)
        return self.answer(Response)

    def _end_epoch(self, request: EndEpochRequest, now: Now) -> Response:
        if request.epoch < self.epoch:
            return self.fenced(Response)
        if request.leader_id < 0 or request.leader_id == self.me.id:
            return self.answer(Response, ErrorCode.INVALID_REQUEST)
        self.learn(request.epoch, request.leader_id, request.endpoints, now, by_leader=True)
        if isinstance(self.role, Follower) and self.role.leader_id == request.leader_id:
            turn_ms = self._elections.turn_of_successor(request.successors)
            self.role.deadline_ms = now.monotonic_ms + turn_ms
        return self.answer(Response)

    def believes(self, epoch: int) -> bool:
        """Returns whether another member may name this epoch. Counts the epochs that are
        refused."""
        has_log = self.log.end_offset > 0
        is_good = is_believable(epoch, self.epoch, has_log=has_log)
        self.unbelievable_epochs += not is_good
        return is_good

    # Responses

    def _hear(self, to: int, request: Request, response: Response, now: Now) -> None:
        if not self.believes(response.epoch):
            return
        known = (self.epoch, self.leader_id)
        self.learn(response.epoch, response.leader_id, response.endpoints, now)
        if (self.epoch, self.leader_id) != known or response.epoch < self.epoch:
            return
        match request, response:
            case VoteRequest(), VoteResponse():
                self._elections.vote_heard(to, request, response)
            case FetchRequest(), FetchResponse():
                self._fetcher.fetched(request, response, now)
            case FetchSnapshotRequest(), FetchSnapshotResponse():
                self._fetcher.snapshot_piece(response, now)
            case EndEpochRequest(), _:
                if isinstance(self.role, Resigned):
                    self.role.untold.discard(to)
            case _:
                pass  # a voter shows by its fetches that it knows of the epoch

    def learn(
        self,
        epoch: int,
        leader_id: int,
        endpoints: tuple[VoterEndpoint, ...],
        now: Now,
        *,
        by_leader: bool = False,
    ) -> None:
        """Another member, perhaps the leader itself, names an epoch and perhaps its leader."""
        if epoch < self.epoch:
            return
        if leader_id == NOBODY or leader_id == self.me.id:
            if epoch > self.epoch:
                self.become_unattached(epoch, now)
            return
        if epoch == self.epoch and isinstance(self.role, Leader | Follower | Resigned):
            self._require_one_leader(leader_id)
            return
        if epoch == self.epoch and not by_leader and self._doubts(leader_id):
            return
        if where := endpoints or self.endpoints_of(leader_id):
            self.become_follower(epoch, leader_id, where, now)
        elif epoch > self.epoch:
            self.become_unattached(epoch, now, leader_id)

    def _doubts(self, leader_id: int) -> bool:
        """Others still name the leader that this node could not reach: that proves nothing."""
        role = self.role
        if not isinstance(role, Prospective) or not role.leader_endpoints:
            return False
        return role.leader_id == leader_id

    def _require_one_leader(self, leader_id: int) -> None:
        known = self.me.id if isinstance(self.role, Resigned) else self.leader_id
        if known != leader_id:
            raise TwoLeaders(f"epoch {self.epoch} is led by {known} and by {leader_id}")

    # Roles

    def become_unattached(self, epoch: int, now: Now, leader_id: int = NOBODY) -> None:
        voted = None
        if epoch == self.epoch and isinstance(self.role, Unattached | Prospective):
            voted = self.role.voted
        role = Unattached(self.election_deadline(now), voted, leader_id)
        self.become(role, Election(epoch, leader_id, voted))

    def become_follower(
        self, epoch: int, leader_id: int, endpoints: tuple[VoterEndpoint, ...], now: Now
    ) -> None:
        self.become(self._follower(leader_id, endpoints, now), Election(epoch, leader_id))

    def _follower(self, leader_id: int, endpoints: tuple[VoterEndpoint, ...], now: Now) -> Follower:
        doubt_ms = self.fetch_deadline(now)
        return Follower(leader_id, endpoints, doubt_ms, update_voter_at_ms=doubt_ms)

    def become(self, role: Role, election: Election) -> None:
        before, led = self.role, self.epoch
        assert type(role) in NEXT_ROLES[type(before)], f"{before} does not become {role}"
        assert election.epoch >= self.epoch, "an epoch never goes back"
        assert election.epoch <= LAST_EPOCH, "an epoch has a successor"
        # Rule 1: the write to the disk comes before any message that depends on it.
        promises = isinstance(role, Candidate | Leader) or election.voted is not None
        self.noted.note(election, promises=promises)
        self.role, self.epoch = role, election.epoch
        self.in_flight.forget_all()
        if isinstance(before, Leader):
            self.leadership.let_go(before)
            self.voter_changes.let_go(before)
            self.effects.append(Deposed(led))

    def election_deadline(self, now: Now) -> int:
        """The deadline is random, so that two voters seldom begin an election at the same
        moment."""
        election_ms = self.timeouts.election_ms
        return now.monotonic_ms + election_ms + self.chance(election_ms)

    def fetch_deadline(self, now: Now) -> int:
        """Returns when a follower that hears nothing doubts its leader. A tenth of the timeout is
        random: followers fetch at the same moments, and would otherwise begin elections at the same
        moment and split their votes."""
        fetch_ms = self.timeouts.fetch_ms
        return now.monotonic_ms + fetch_ms + self.chance(fetch_ms // 10 + 1)

    # Messages

    def send(
        self, to: int, endpoints: tuple[VoterEndpoint, ...], request: Request, now: Now
    ) -> None:
        correlation_id = self.in_flight.begin(to, request, now.monotonic_ms)
        self.effects.append(Send(to, endpoints, request, correlation_id))

    def reply(self, token: Any, response: Response) -> None:
        self.effects.append(Reply(token, response))

    def answer(self, kind: type[R], error: ErrorCode = ErrorCode.NONE, **more: Any) -> R:
        return kind(error, self.epoch, self.leader_id, self.leader_endpoints, **more)

    def fenced(self, kind: type[R]) -> R:
        return self.answer(kind, ErrorCode.FENCED_LEADER_EPOCH)
