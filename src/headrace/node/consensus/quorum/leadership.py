"""The part of the quorum's leader: appends, answers fetches, commits, resigns in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.environment import Now
from headrace.node.consensus.batches import batches_in, control_batch
from headrace.node.consensus.quorum.effects import Committed, Flush
from headrace.node.consensus.quorum.log_matching import diverges
from headrace.node.consensus.quorum.messages import (
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    ReplicaKey,
)
from headrace.node.consensus.quorum.quorum_log import Election
from headrace.node.consensus.quorum.roles import Leader, ReplicaProgress, Resigned, WaitingFetch
from headrace.node.consensus.quorum.voter_history import BEFORE_THE_LOG, find, key_of
from headrace.node.consensus.snapshots import SnapshotId
from headrace.node.consensus.voters import Voter, kraft_version_record, leader_change, voters_record
from headrace.wire.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.node.consensus.quorum.machine import Quorum

# Apache's raft client asks for as much in one fetch.
FETCH_BYTES = 8 << 20


class Leadership:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        # Half as long again as a follower waits before it doubts its leader, as Apache does.
        self.quorum_timeout_ms = quorum.timeouts.fetch_ms * 3 // 2

    @property
    def _role(self) -> Leader:
        role = self._quorum.role
        assert isinstance(role, Leader)
        return role

    # Appending

    def begin(self, role: Leader, now: Now) -> None:
        """Write the first records of the epoch: the leader and, if the log does not name them, the
        voters."""
        quorum = self._quorum
        voters = quorum.voters
        messages: list[Any] = [leader_change(quorum.me.id, voters.latest, sorted(role.granting))]
        if voters.kraft_version >= 1 and self._must_name_voters():
            named = tuple(self._as_it_is_now(voter) for voter in voters.latest)
            messages += [kraft_version_record(voters.kraft_version), voters_record(named)]
        self._append_control(messages, now)

    def _must_name_voters(self) -> bool:
        """The log has never named them, or this node is reached elsewhere by now."""
        quorum = self._quorum
        mine = find(quorum.voters.latest, quorum.me)
        return quorum.voters.latest_offset == BEFORE_THE_LOG or (
            mine is not None and mine.endpoints != quorum.endpoints
        )

    def _as_it_is_now(self, voter: Voter) -> Voter:
        quorum = self._quorum
        if not key_of(voter).covers(quorum.me):
            return voter
        return Voter(voter.id, quorum.me.directory_id, quorum.endpoints, voter.kraft_versions)

    def append_voters(self, voters: tuple[Voter, ...], now: Now) -> int:
        """The offset of the VotersRecord, which counts from now on."""
        self._append_control([voters_record(voters)], now)
        return self._quorum.voters.latest_offset

    def _append_control(self, messages: list[Any], now: Now) -> None:
        quorum = self._quorum
        batch = control_batch(
            messages, base_offset=quorum.log.end_offset, epoch=quorum.epoch, wall_ms=now.wall_ms
        )
        self.append(batch, now)  # first: what the disk refuses names no voters
        for written in batches_in(memoryview(batch)):
            quorum.voters.note(written)

    def append(self, batches: bytes | bytearray, now: Now) -> None:
        quorum = self._quorum
        quorum.log.append(batches, wall_ms=now.wall_ms)
        quorum.effects.append(Flush())
        self._answer_waiting()

    # Fetches

    def fetch(self, request: FetchRequest, token: Any, now: Now) -> None:
        quorum = self._quorum
        refusal = self.refusal(request.epoch)
        if refusal is None and request.replica.id == quorum.me.id:
            refusal = ErrorCode.INVALID_REQUEST
        if refusal is not None:
            quorum.reply(token, quorum.answer(FetchResponse, refusal))
            return
        parted = diverges(quorum.log, request.offset, request.last_epoch)
        if parted is not None:
            quorum.reply(token, self._parted(parted))
            return
        self._note_progress(request.replica, request.offset, now)
        quorum.commit(now)
        if not isinstance(quorum.role, Leader):  # that committed its own removal
            refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
            quorum.reply(token, quorum.answer(FetchResponse, refusal))
            return
        self._answer_former(request.replica)
        if self._has_news(request) or request.max_wait_ms <= 0:
            quorum.reply(token, self._records(request))
        else:
            deadline_ms = now.monotonic_ms + request.max_wait_ms
            quorum.role.waiting.append(WaitingFetch(request, token, deadline_ms))

    def refusal(self, epoch: int) -> ErrorCode | None:
        """Returns the error for a request that only the leader of `epoch` may answer; None if this
        is the leader."""
        quorum = self._quorum
        if epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > quorum.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(quorum.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return None

    def _parted(self, parted: OffsetAndEpoch | SnapshotId) -> FetchResponse:
        quorum = self._quorum
        high_watermark = self._role.high_watermark
        response: FetchResponse = quorum.answer(FetchResponse, high_watermark=high_watermark)
        if isinstance(parted, OffsetAndEpoch):
            response.diverging = parted
        else:
            response.snapshot_id = parted
        return response

    def _has_news(self, request: FetchRequest) -> bool:
        behind = request.high_watermark < self._role.high_watermark
        return behind or request.offset < self._quorum.log.end_offset

    def _records(self, request: FetchRequest) -> FetchResponse:
        quorum = self._quorum
        records = b""
        if request.offset < quorum.log.end_offset:
            records = quorum.log.read(request.offset, FETCH_BYTES)
        response: FetchResponse = quorum.answer(
            FetchResponse,
            high_watermark=self._role.high_watermark,
            start_offset=quorum.log.start_offset,
            records=records,
        )
        return response

    def _answer_waiting(self) -> None:
        """Fetches that wait for records or for a higher high watermark get them."""
        role = self._role
        waiting, role.waiting = role.waiting, []
        for fetch in waiting:
            if self._has_news(fetch.request):
                self._quorum.reply(fetch.token, self._records(fetch.request))
            else:
                role.waiting.append(fetch)

    def _answer_former(self, replica: ReplicaKey) -> None:
        """A replica that fetches again has given up the fetch before."""
        role = self._role
        former = [f for f in role.waiting if f.request.replica == replica and replica.id >= 0]
        for fetch in former:
            role.waiting.remove(fetch)
            self._quorum.reply(fetch.token, self._records(fetch.request))

    def fetch_snapshot(self, request: FetchSnapshotRequest, now: Now) -> FetchSnapshotResponse:
        quorum = self._quorum
        response: FetchSnapshotResponse = quorum.answer(FetchSnapshotResponse)
        refusal = self.refusal(request.epoch)
        size = None if refusal else quorum.log.snapshot_size(request.snapshot_id)
        if refusal is not None:
            response.error = refusal
        elif size is None:
            response.error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= request.position < size:
            response.error = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            self._note_heard(request.replica, now)
            response.snapshot_id = request.snapshot_id
            response.size, response.position = size, request.position
            response.data = quorum.log.read_snapshot(
                request.snapshot_id, request.position, request.max_bytes
            )
        return response

    # Progress and commits

    def _note_progress(self, replica: ReplicaKey, offset: int, now: Now) -> None:
        quorum, role = self._quorum, self._role
        if replica.id < 0:
            return  # a reader without an id counts for nothing
        voter = find(quorum.voters.latest, replica)
        key = replica if voter is None else key_of(voter)
        found = role.progress.setdefault(key, ReplicaProgress())
        end = quorum.log.end_offset
        if offset >= end:
            found.last_caught_up_ms = now.monotonic_ms
        elif offset >= found.leader_end_at_last_fetch >= 0:
            found.last_caught_up_ms = max(found.last_caught_up_ms, found.last_fetch_ms)
        found.end_offset = offset
        found.last_fetch_ms = now.monotonic_ms
        found.leader_end_at_last_fetch = end
        self._note_heard(replica, now)

    def _note_heard(self, replica: ReplicaKey, now: Now) -> None:
        quorum, role = self._quorum, self._role
        role.fetched_lately.add(replica)
        if role.has_a_majority(quorum.voters.latest, quorum.me):
            role.fetched_lately.clear()
            role.quorum_until_ms = now.monotonic_ms + self.quorum_timeout_ms

    def flushed_end(self) -> int:
        """Returns up to where this node itself counts (rule 2)."""
        return min(self._quorum.log.flushed_offset, self._quorum.log.end_offset)

    def commit(self) -> bool:
        """Move the high watermark to what a majority has on disk; False: it stays."""
        quorum, role = self._quorum, self._role
        point = role.commit_point(quorum.voters.latest, quorum.me, self.flushed_end())
        if not role.may_commit(point) or point <= role.high_watermark:
            return False
        assert point <= quorum.log.end_offset, "only what is in the leader's log is committed"
        role.high_watermark = point
        if point > quorum.high_watermark:
            quorum.high_watermark = point
            quorum.effects.append(Committed(point))
        self._answer_waiting()
        return True

    # Time

    def next_ms(self, role: Leader) -> int:
        times = [role.begin_at_ms, *(fetch.deadline_ms for fetch in role.waiting)]
        if not role.has_a_majority(self._quorum.voters.latest, self._quorum.me):
            times.append(role.quorum_until_ms)
        if role.change is not None:
            times.append(role.change.deadline_ms)
        return min(times)

    def do_what_is_due(self, role: Leader, now: Now) -> None:
        quorum, now_ms = self._quorum, now.monotonic_ms
        has_a_majority = role.has_a_majority(quorum.voters.latest, quorum.me)
        if now_ms >= role.quorum_until_ms and not has_a_majority:
            self.give_up(now)
            return
        for fetch in [fetch for fetch in role.waiting if now_ms >= fetch.deadline_ms]:
            role.waiting.remove(fetch)
            quorum.reply(fetch.token, self._records(fetch.request))
        quorum.voter_changes.expire(role, now)
        if now_ms >= role.begin_at_ms:
            role.begin_at_ms = now_ms + quorum.timeouts.fetch_ms // 2
            self._tell_the_beginning(role, now)

    def _tell_the_beginning(self, role: Leader, now: Now) -> None:
        """Send BeginQuorumEpoch to voters that do not fetch: they may not know the leader."""
        quorum = self._quorum
        fresh_ms = now.monotonic_ms - quorum.timeouts.fetch_ms // 2
        for voter in quorum.other_voters():
            found = role.progress.get(key_of(voter))
            if found is not None and found.last_fetch_ms > fresh_ms:
                continue
            if quorum.in_flight.is_free(voter.id, now.monotonic_ms):
                request = BeginEpochRequest(
                    quorum.epoch, quorum.me.id, quorum.endpoints, key_of(voter)
                )
                quorum.send(voter.id, voter.endpoints, request, now)

    # The end

    def give_up(self, now: Now) -> None:
        quorum, role = self._quorum, self._role
        known = [(progress.end_offset, key) for key, progress in role.progress.items()]
        successors = tuple(
            key
            for _, key in sorted(known, key=lambda pair: -pair[0])
            if find(quorum.voters.latest, key) is not None
        )
        untold = {voter.id for voter in quorum.other_voters()}
        deadline_ms = now.monotonic_ms + quorum.timeouts.election_ms
        resigned = Resigned(deadline_ms, successors, untold)
        quorum.become(resigned, Election(quorum.epoch, quorum.me.id))

    def tell_the_end(self, role: Resigned, now: Now) -> None:
        quorum = self._quorum
        for voter in quorum.other_voters():
            if voter.id in role.untold and quorum.in_flight.is_free(voter.id, now.monotonic_ms):
                request = EndEpochRequest(
                    quorum.epoch, quorum.me.id, quorum.endpoints, role.successors
                )
                quorum.send(voter.id, voter.endpoints, request, now)

    def let_go(self, role: Leader) -> None:
        """Fetches that wait here learn that their records do not come from this node."""
        for fetch in role.waiting:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._quorum.reply(fetch.token, self._quorum.answer(FetchResponse, error))
