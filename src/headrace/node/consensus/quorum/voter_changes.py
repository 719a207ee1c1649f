"""Changes of the voter set by the leader: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853).

One change at a time: two majorities of sets that differ by one voter share a member, two that
differ by more may not. So a change waits until the VotersRecord before it is committed, and for
a record of the leader's own epoch, since an older leader's change may still be in the log.
A leader that has removed itself gives up once that is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.environment import Now
from headrace.node.consensus.quorum.messages import (
    NOBODY,
    AddVoterRequest,
    KRaftVersionsRequest,
    KRaftVersionsResponse,
    RemoveVoterRequest,
    ReplicaKey,
    Response,
    UpdateVoterRequest,
    VoterChangeResponse,
)
from headrace.node.consensus.quorum.roles import Leader, VoterChange
from headrace.node.consensus.quorum.voter_history import find, key_of
from headrace.node.consensus.voters import Voter
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.primitives import ZERO_ID

if TYPE_CHECKING:
    from headrace.node.consensus.quorum.machine import Quorum

# As Apache's leader: a voter is added only if it fetched within the last hour and caught up.
RECENT_MS = 3_600_000

Refusal = tuple[ErrorCode, str]


class VoterChanges:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # Add

    def add(self, request: AddVoterRequest, token: Any, now: Now) -> None:
        """Begin to add a voter. The record is written when that node has answered which versions it
        supports."""
        quorum = self._quorum
        refusal = self._refusal(request.voter)
        if refusal is None and any(v.id == request.voter.id for v in quorum.voters.latest):
            refusal = ErrorCode.DUPLICATE_VOTER, f"Node {request.voter.id} is a voter already."
        if refusal is None and not request.endpoints:
            refusal = ErrorCode.INVALID_REQUEST, "The request names no endpoint of the voter."
        if refusal is None and not quorum.in_flight.is_free(request.voter.id, now.monotonic_ms):
            refusal = ErrorCode.REQUEST_TIMED_OUT, f"Node {request.voter.id} is not ready."
        if refusal is not None:
            self._answer(token, refusal)
            return
        role = quorum.role
        assert isinstance(role, Leader)
        role.change = VoterChange(
            token,
            now.monotonic_ms + min(max(request.timeout_ms, 1), quorum.timeouts.request_ms),
            coming=Voter(request.voter.id, request.voter.directory_id, request.endpoints),
            ack_when_committed=request.ack_when_committed,
        )
        quorum.send(request.voter.id, request.endpoints, KRaftVersionsRequest(), now)

    def versions_heard(self, member: int, response: Response | None, now: Now) -> None:
        quorum, role = self._quorum, self._quorum.role
        if not isinstance(role, Leader) or role.change is None or role.change.coming is None:
            return
        coming = role.change.coming
        if coming.id != member:
            return
        refusal = self._refusal_of_coming(role, coming, response, now)
        if refusal is not None:
            self._finish(role, *refusal)
            return
        assert isinstance(response, KRaftVersionsResponse) and response.versions is not None
        added = Voter(coming.id, coming.directory_id, coming.endpoints, response.versions)
        role.change.coming = None
        self._write(role, (*quorum.voters.latest, added), now)

    def _refusal_of_coming(
        self, role: Leader, coming: Voter, response: Response | None, now: Now
    ) -> Refusal | None:
        if not isinstance(response, KRaftVersionsResponse) or response.error != ErrorCode.NONE:
            return ErrorCode.REQUEST_TIMED_OUT, f"Node {coming.id} does not answer."
        if not self._understands(response.versions):
            return (
                ErrorCode.INVALID_REQUEST,
                f"Node {coming.id} does not understand kraft.version "
                f"{self._quorum.voters.kraft_version}.",
            )
        progress = role.progress.get(key_of(coming))
        is_caught_up = progress is not None and (
            progress.last_caught_up_ms != NOBODY
            and progress.last_fetch_ms > now.monotonic_ms - RECENT_MS
        )
        if not is_caught_up:
            return ErrorCode.REQUEST_TIMED_OUT, f"Node {coming.id} has not caught up yet."
        return None

    # Remove and update

    def remove(self, request: RemoveVoterRequest, token: Any, now: Now) -> None:
        quorum = self._quorum
        refusal = self._refusal(request.voter)
        voters = quorum.voters.latest
        rest = tuple(voter for voter in voters if key_of(voter) != request.voter)
        if refusal is None and (len(rest) == len(voters) or not rest):
            refusal = (
                ErrorCode.VOTER_NOT_FOUND,
                f"Node {request.voter.id} with this directory is not one of several voters.",
            )
        if refusal is not None:
            self._answer(token, refusal)
            return
        role = quorum.role
        assert isinstance(role, Leader)
        role.change = VoterChange(token, now.monotonic_ms + quorum.timeouts.request_ms)
        self._write(role, rest, now)

    def update(self, request: UpdateVoterRequest, now: Now) -> Response:
        """Answered when the record is written, not when it is committed: an update changes no
        majority."""
        quorum, new = self._quorum, request.voter
        error = quorum.leadership.refusal(request.epoch)
        if error is None and (refusal := self._refusal(key_of(new))) is not None:
            error = refusal[0]
        if error is None and not (new.endpoints and self._understands(new.kraft_versions)):
            error = ErrorCode.INVALID_REQUEST
        old = find(quorum.voters.latest, key_of(new))
        if error is None and old is None:
            error = ErrorCode.VOTER_NOT_FOUND
        if error is not None:
            return quorum.answer(Response, error)
        if old != new:
            voters = tuple(new if voter is old else voter for voter in quorum.voters.latest)
            quorum.leadership.append_voters(voters, now)
        return quorum.answer(Response)

    # Common parts of all changes

    def _refusal(self, voter: ReplicaKey) -> Refusal | None:
        quorum, role = self._quorum, self._quorum.role
        if not isinstance(role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node does not lead the quorum."
        if voter.id < 0 or voter.directory_id == ZERO_ID:
            return ErrorCode.INVALID_REQUEST, "The request names no voter with its directory."
        if quorum.voters.kraft_version < 1:
            return (
                ErrorCode.UNSUPPORTED_VERSION,
                "Voters are configured in this quorum: its kraft.version is 0.",
            )
        if not self.may_begin(role):
            return ErrorCode.REQUEST_TIMED_OUT, "The change of voters before is not committed yet."
        return None

    def may_begin(self, role: Leader) -> bool:
        """Returns whether the next change may begin (rule 4)."""
        return role.change is None and self._quorum.voters.latest_offset < role.high_watermark

    def _understands(self, versions: tuple[int, int] | None) -> bool:
        return versions is not None and (
            versions[0] <= self._quorum.voters.kraft_version <= versions[1]
        )

    def _write(self, role: Leader, voters: tuple[Voter, ...], now: Now) -> None:
        assert role.change is not None
        role.change.offset = self._quorum.leadership.append_voters(voters, now)
        if not role.change.ack_when_committed:
            self._finish(role, ErrorCode.NONE, None)
        self._quorum.commit(now)  # a smaller set may have its majority already

    def committed(self, now: Now) -> None:
        """The high watermark has moved."""
        quorum, role = self._quorum, self._quorum.role
        assert isinstance(role, Leader)
        change = role.change
        if change is not None and NOBODY != change.offset < role.high_watermark:
            self._finish(role, ErrorCode.NONE, None)
        if not quorum.is_voter and quorum.voters.latest_offset < role.high_watermark:
            quorum.leadership.give_up(now)

    def expire(self, role: Leader, now: Now) -> None:
        if role.change is not None and now.monotonic_ms >= role.change.deadline_ms:
            self._finish(role, ErrorCode.REQUEST_TIMED_OUT, "The change is not committed yet.")

    def let_go(self, role: Leader) -> None:
        if role.change is not None:
            self._finish(role, ErrorCode.NOT_LEADER_OR_FOLLOWER, "Another node leads now.")

    def _finish(self, role: Leader, error: ErrorCode, message: str | None) -> None:
        change, role.change = role.change, None
        assert change is not None
        self._answer(change.token, (error, message))

    def _answer(self, token: Any, refusal: tuple[ErrorCode, str | None]) -> None:
        error, message = refusal
        self._quorum.reply(token, self._quorum.answer(VoterChangeResponse, error, message=message))
