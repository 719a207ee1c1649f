"""The part of followers and observers: find the leader, fetch, append, truncate, install
snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.environment import Now
from headrace.node.consensus.batches import batches_in, whole_batches
from headrace.node.consensus.quorum.effects import Committed, Flush, SnapshotInstalled, Truncated
from headrace.node.consensus.quorum.log_matching import truncation_point
from headrace.node.consensus.quorum.messages import (
    NOBODY,
    AddVoterRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    RemoveVoterRequest,
    Request,
    UpdateVoterRequest,
)
from headrace.node.consensus.quorum.roles import Download, Follower
from headrace.node.consensus.quorum.voter_history import find, key_of
from headrace.node.consensus.snapshots import SnapshotId
from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.wire.protocol.errors import ErrorCode, KafkaError, MalformedMessage

if TYPE_CHECKING:
    from headrace.node.consensus.quorum.machine import Quorum

SNAPSHOT_PIECE_BYTES = 1 << 20


class CommittedRecordsDiverge(Exception):
    """A leader asks this member to truncate committed records: some member has forgotten what it
    promised."""


class Fetcher:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # Asking

    def fetch(self, role: Follower, now: Now) -> None:
        """The next request to the leader, unless one is in flight or the disk lags behind."""
        quorum = self._quorum
        if not quorum.in_flight.is_free(role.leader_id, now.monotonic_ms):
            return
        request: Request
        about_me = self.request_about_my_vote(role)
        if about_me is not None and now.monotonic_ms >= self.next_word_ms(role):
            role.update_voter_at_ms = now.monotonic_ms + quorum.timeouts.fetch_ms
            # Sooner: the leader refuses while another member's change is under way.
            role.join_at_ms = now.monotonic_ms + quorum.timeouts.fetch_ms // 8
            request = about_me
        elif role.download is not None:
            request = FetchSnapshotRequest(
                quorum.me,
                quorum.epoch,
                role.download.snapshot_id,
                role.download.position,
                SNAPSHOT_PIECE_BYTES,
            )
        elif self.disk_lags():
            return  # the end of the flush comes back here
        else:
            request = self._fetch_request()
        quorum.send(role.leader_id, role.endpoints, request, now)

    def disk_lags(self) -> bool:
        """Rule 2: a fetch confirms that everything before its offset is on the disk."""
        return self._quorum.log.flushed_offset < self._quorum.log.end_offset

    def request_about_my_vote(self, role: Follower) -> Request | None:
        """The change of the voter set that the leader must make because of this member, if any."""
        quorum = self._quorum
        if quorum.voters.kraft_version < 1:
            return None
        me = Voter(quorum.me.id, quorum.me.directory_id, quorum.endpoints)
        mine = find(quorum.voters.latest, quorum.me)
        if mine is not None:
            return None if mine == me else UpdateVoterRequest(quorum.epoch, me)
        return self._request_to_join(role)

    def next_word_ms(self, role: Follower) -> int:
        """When `request_about_my_vote` may be sent."""
        return role.update_voter_at_ms if self._quorum.is_voter else role.join_at_ms

    def _request_to_join(self, role: Follower) -> Request | None:
        """Build the request to become a voter, as Apache Kafka does
        (`controller.quorum.auto.join.enable`, KIP-1186): a member whose id votes with another disk
        has that voter removed first, and never votes in its place. Unlike at Apache Kafka a voter
        that was removed does not ask: an operator removed it, and 2 s later it would be back."""
        quorum = self._quorum
        has_caught_up = (
            role.has_fetched
            and role.download is None
            and quorum.log.end_offset >= quorum.leader_high_watermark > 0
        )
        # The second part: its removal may not be committed yet.
        was_removed = quorum.noted.was_removed or quorum.voters.has_named(quorum.me)
        if not quorum.joins_by_itself or was_removed or not has_caught_up:
            return None
        for voter in quorum.voters.latest:
            if voter.id == quorum.me.id:
                return RemoveVoterRequest(key_of(voter))
        # Not answered when committed: the commit may need this member's next fetch.
        return AddVoterRequest(
            quorum.me, quorum.endpoints, quorum.timeouts.request_ms, ack_when_committed=False
        )

    def look_for_a_leader(self, now: Now) -> None:
        """Ask the voters or the bootstrap servers, one at a time and each time another.

        Not while the disk lags: the member asked may turn out to be the leader.
        """
        quorum = self._quorum
        candidates: list[tuple[int, tuple[VoterEndpoint, ...]]] = [
            (voter.id, voter.endpoints) for voter in quorum.other_voters()
        ]
        # As in Apache Kafka, bootstrap servers get ids below -1, since their real ids are not
        # known.
        candidates += [(-2 - n, (point,)) for n, point in enumerate(quorum.bootstrap)]
        free = [
            candidate
            for candidate in candidates
            if quorum.in_flight.is_free(candidate[0], now.monotonic_ms)
        ]
        if len(free) < len(candidates) or not free or self.disk_lags():
            return
        to, endpoints = free[quorum.chance(len(free))]
        quorum.send(to, endpoints, self._fetch_request(), now)

    def _fetch_request(self) -> FetchRequest:
        quorum = self._quorum
        return FetchRequest(
            quorum.me,
            quorum.epoch,
            quorum.log.end_offset,
            quorum.log.last_epoch,
            quorum.timeouts.fetch_wait_ms,
            quorum.high_watermark,
        )

    # Hearing

    def fetched(self, request: FetchRequest, response: FetchResponse, now: Now) -> None:
        quorum, role = self._quorum, self._quorum.role
        if response.error != ErrorCode.NONE or not isinstance(role, Follower):
            return
        if request.offset != quorum.log.end_offset:
            return  # the log has changed since
        role.deadline_ms = quorum.fetch_deadline(now)
        role.has_fetched = True
        quorum.leader_heard = role.leader_id, now.monotonic_ms
        if response.diverging is not None:
            self._truncate(response.diverging, now)
        elif response.snapshot_id is not None:
            self._require_uncommitted(response.snapshot_id.end_offset)
            role.download = Download(response.snapshot_id)
        else:
            self._append(response.records, now)
            self._follow_high_watermark(response.high_watermark)

    def _truncate(self, diverging: OffsetAndEpoch, now: Now) -> None:
        quorum = self._quorum
        point = truncation_point(quorum.log, diverging)
        self._require_uncommitted(point)
        quorum.log.truncate(point, wall_ms=now.wall_ms)
        quorum.voters.truncate(point)
        quorum.effects += [Truncated(point), Flush()]

    def _require_uncommitted(self, point: int) -> None:
        quorum = self._quorum
        if point < quorum.high_watermark:
            raise CommittedRecordsDiverge(
                f"node {quorum.me.id} should cut its metadata log at {point}, below the committed "
                f"offset {quorum.high_watermark}"
            )

    def _append(self, records: bytes, now: Now) -> None:
        quorum = self._quorum
        records = whole_batches(records)
        if not records:
            return
        try:
            batches = list(batches_in(memoryview(records)))
        except MalformedMessage:
            batches = []
        if not batches or batches[0].base_offset != quorum.log.end_offset:
            quorum.damaged_responses += 1  # the same fetch again
            return
        try:
            quorum.log.append(records, wall_ms=now.wall_ms)
        except KafkaError:  # a full disk, which its log has reported: the same fetch after a rest
            quorum.noted.has_no_room = True
            rest_ms = quorum.timeouts.fetch_ms // 4
            quorum.in_flight.rest(quorum.leader_id, now.monotonic_ms, rest_ms)
            return
        quorum.noted.has_no_room = False
        for batch in batches:
            quorum.voters.note(batch)
        quorum.effects.append(Flush())

    def _follow_high_watermark(self, high_watermark: int) -> None:
        quorum = self._quorum
        quorum.leader_high_watermark = max(quorum.leader_high_watermark, high_watermark)
        point = min(high_watermark, quorum.log.end_offset)
        if point > quorum.high_watermark and point != NOBODY:
            quorum.high_watermark = point
            quorum.effects.append(Committed(point))

    def snapshot_piece(self, response: FetchSnapshotResponse, now: Now) -> None:
        """Take a piece of a snapshot; with the last one, start the log again at the snapshot's
        end."""
        quorum, role = self._quorum, self._quorum.role
        if not isinstance(role, Follower) or role.download is None:
            return
        download = role.download
        if response.error != ErrorCode.NONE:
            if response.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
                role.download = None  # the leader has a newer one by now: fetch again
            return
        if response.snapshot_id != download.snapshot_id or response.position != download.position:
            return
        role.deadline_ms = quorum.fetch_deadline(now)
        role.has_fetched = True
        quorum.leader_heard = role.leader_id, now.monotonic_ms
        quorum.log.write_snapshot(download.snapshot_id, download.position, response.data)
        download.position += len(response.data)
        if download.position >= response.size:
            role.download = None
            self._install(download.snapshot_id, now)

    def _install(self, snapshot_id: SnapshotId, now: Now) -> None:
        quorum = self._quorum
        try:
            snapshot = quorum.log.install_snapshot(snapshot_id, wall_ms=now.wall_ms)
        except MalformedMessage:
            quorum.damaged_responses += 1  # the next fetch starts from the beginning
            return
        end = snapshot_id.end_offset
        has_voted = quorum.voters.has_named(quorum.me)
        quorum.voters.begin_with(end, snapshot)
        if has_voted:
            quorum.note_removal()
        assert end >= quorum.high_watermark, "what is committed stays: seen when the download began"
        quorum.high_watermark = end
        quorum.effects.append(SnapshotInstalled(end))
