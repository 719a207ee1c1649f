"""The classic group protocol: join, sync, heartbeat, leave, and timeouts.

A rebalance has two halves. Members join and wait until all have joined (or time is up): a
generation begins, and one member leads. Then all sync and wait until the leader has sent the
assignment; that is recorded, and each member gets its part. A request for another generation is
refused.

Requests of members wait as `Later`s, which these functions answer. The log keeps only the outcome,
so decisions here change the group at once except where the outcome is recorded. Member ids are
given out by the first JoinGroup and asked for in the second (KIP-394); static members (KIP-345)
keep their place over a restart; a rejoining static leader may skip the assignment (KIP-814).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.environment import Now
from headrace.node.coordination.deadlines import Deadlines
from headrace.node.coordination.group import records
from headrace.node.coordination.group.classic_answers import (
    FIRST_JOIN,
    JOIN,
    NOTHING,
    SESSION,
    SYNC,
    UNKNOWN,
    Client,
    answered,
    differs,
    join_refused,
    joined,
    rebalance_timeout_ms,
    restarted,
    sync_refused,
    synced,
)
from headrace.node.coordination.group.classic_group import (
    ClassicGroup,
    ClassicGroupState,
    ClassicMember,
)
from headrace.node.coordination.group.promised_ids import PromisedIds
from headrace.node.coordination.group.settings import GroupSettings
from headrace.node.coordination.shard import Decision, Later
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.wire.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from headrace.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# A client with a pending join must send its next request within this time.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
FIRST_VERSION_WITH_REQUIRED_ID = 4


class ClassicGroups:
    """The decisions about classic groups; `groups` is shared with the machines of other kinds."""

    __slots__ = ("groups", "deadlines", "answered", "_settings", "_new_id", "_promised")

    def __init__(
        self,
        groups: dict[str, Any],
        deadlines: Deadlines,
        answered: list[Later],
        settings: Callable[[], GroupSettings],
        new_id: Callable[[], str],
    ) -> None:
        self.groups = groups
        self.deadlines = deadlines
        self.answered = answered
        self._settings = settings
        self._new_id = new_id
        self._promised = PromisedIds(deadlines)

    # --- JoinGroup

    def join(
        self, group: ClassicGroup | None, request: JoinGroupRequest, client: Client, now: Now
    ) -> Decision:
        member_id = request.member_id
        if group is None:
            if member_id != UNKNOWN:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = ClassicGroup(request.group_id, now.wall_ms)
        if not group.has_room_for(member_id, self._settings().max_size):
            group.remove(member_id)
            return Decision(response=join_refused(UNKNOWN, ErrorCode.GROUP_MAX_SIZE_REACHED))
        protocols = {protocol.name: protocol.metadata for protocol in request.protocols}
        if not group.supports(request.protocol_type, protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self.groups[group.id] = group
        if member_id == UNKNOWN:
            return self._join_new(group, request, protocols, client, now)
        if member_id in group.promised:
            if request.group_instance_id is not None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            self._promised.used((SESSION, group.id, member_id))
            return self._add(group, member_id, request, protocols, client, now)
        return self._join_again(group, request, protocols, client, now)

    def _join_new(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        client: Client,
        now: Now,
    ) -> Decision:
        instance_id = request.group_instance_id
        new_id = f"{client.id if instance_id is None else instance_id}-{self._new_id()}"
        if instance_id is not None:
            known = group.static.get(instance_id)
            if known is not None:
                return self._join_restarted(group, known, new_id, request, protocols, client, now)
        elif client.version >= FIRST_VERSION_WITH_REQUIRED_ID:
            group.promised.add(new_id)
            until_ms = now.monotonic_ms + request.session_timeout_ms
            self._promised.add((SESSION, group.id, new_id), until_ms, now.monotonic_ms)
            return Decision(response=join_refused(new_id, ErrorCode.MEMBER_ID_REQUIRED))
        return self._add(group, new_id, request, protocols, client, now)

    def _add(
        self,
        group: ClassicGroup,
        member_id: str,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        client: Client,
        now: Now,
    ) -> Decision:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            client.id,
            client.host,
            request.session_timeout_ms,
            rebalance_timeout_ms(request, client),
            protocols,
        )
        member.is_new = True
        if (
            group.state is ClassicGroupState.PREPARING_REBALANCE
            and group.previous_state is ClassicGroupState.EMPTY
        ):
            group.members_joined = True
        group.add(member, request.protocol_type)
        waits = self._await_join(group, member)
        self._expect(group.id, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS, now)
        return answered(self._rebalance_or_complete(group, now), waits)

    def _join_again(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        client: Client,
        now: Now,
    ) -> Decision:
        member = group.require_member(request.member_id, request.group_instance_id)
        unchanged = list(member.protocols.items()) == list(protocols.items())
        if group.state is ClassicGroupState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is ClassicGroupState.COMPLETING_REBALANCE and unchanged:
            # It has not got our answer: send it again.
            return Decision(response=joined(group, member.id))
        if group.state is ClassicGroupState.STABLE and unchanged and group.leader != member.id:
            return Decision(response=joined(group, member.id))
        self._update(group, member, request, protocols, client)
        waits = self._await_join(group, member)
        return answered(self._rebalance_or_complete(group, now), waits)

    def _join_restarted(
        self,
        group: ClassicGroup,
        old_id: str,
        new_id: str,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        client: Client,
        now: Now,
    ) -> Decision:
        """A static member restarts within its session: in a stable group no partition moves."""
        leader_before = group.leader
        old = group.members[old_id]
        self._refuse_waiting(group, old, ErrorCode.FENCED_INSTANCE_ID)
        member = group.replace_static(old_id, new_id)
        self.deadlines.drop((SESSION, group.id, old_id))
        self._update(group, member, request, protocols, client)
        self._expect(group.id, new_id, member.session_timeout_ms, now)
        if group.state is ClassicGroupState.STABLE and group.protocol == group.choose_protocol():

            def put_back(_: KafkaError) -> None:
                group.put_back(old, new_id)
                self.deadlines.drop((SESSION, group.id, new_id))
                self.keep_session(group, old, now)

            answer = restarted(group, new_id, leader_before, client)
            assignments = {one.id: one.assignment for one in group.members.values()}
            kept = [records.group_metadata(group.id, group.as_record(assignments))]
            return Decision(kept, answer, otherwise=put_back)
        waits = self._await_join(group, member)
        return answered(self._rebalance_or_complete(group, now), waits)

    def _update(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        client: Client,
    ) -> None:
        group.set_protocols(member, protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms(request, client)

    def _await_join(self, group: ClassicGroup, member: ClassicMember) -> Later:
        if member.joining is None:
            group.joining += 1
        else:
            self._answer_later(member.joining, join_refused(member.id, ErrorCode.UNKNOWN_MEMBER_ID))
        member.joining = Later(join_refused(member.id, ErrorCode.NOT_COORDINATOR))
        return member.joining

    # --- rebalance

    def _rebalance_or_complete(self, group: ClassicGroup, now: Now) -> Decision:
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            return self._complete_if_all_joined(group, now)
        return self._prepare_rebalance(group, now)

    def _complete_if_all_joined(self, group: ClassicGroup, now: Now) -> Decision:
        """The first rebalance of a group is not completed early: it waits for other members to
        appear."""
        if group.previous_state is ClassicGroupState.EMPTY or not group.all_have_joined:
            return NOTHING
        return self._complete_join(group, now)

    def _prepare_rebalance(self, group: ClassicGroup, now: Now) -> Decision:
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                self._answer_sync(group, member, ErrorCode.REBALANCE_IN_PROGRESS, now)
        self._no_sync_owed(group)
        first = group.state is ClassicGroupState.EMPTY
        group.become(ClassicGroupState.PREPARING_REBALANCE, now.wall_ms)
        if first:
            group.members_joined = False
            delay_ms = self._settings().initial_rebalance_delay_ms
            if delay_ms <= 0:
                return self._complete_join(group, now)
            group.delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self.deadlines.set((FIRST_JOIN, group.id), now.monotonic_ms + delay_ms)
            return NOTHING
        if group.all_have_joined:
            return self._complete_join(group, now)
        self.deadlines.set((JOIN, group.id), now.monotonic_ms + group.rebalance_timeout_ms)
        return NOTHING

    def first_join_is_due(self, group: ClassicGroup, now: Now) -> Decision:
        """The delay is over; extend it if members came meanwhile and there is time left."""
        if (
            group.state is not ClassicGroupState.PREPARING_REBALANCE
            or group.previous_state is not ClassicGroupState.EMPTY
        ):
            return NOTHING
        if group.members_joined and group.delay_left_ms:
            group.members_joined = False
            delay_ms = min(self._settings().initial_rebalance_delay_ms, group.delay_left_ms)
            group.delay_left_ms -= delay_ms
            self.deadlines.set((FIRST_JOIN, group.id), now.monotonic_ms + delay_ms)
            return NOTHING
        return self._complete_join(group, now)

    def join_is_due(self, group: ClassicGroup, now: Now) -> Decision:
        """Complete the rebalance without the members that have not joined by now."""
        if group.state is not ClassicGroupState.PREPARING_REBALANCE:
            return NOTHING
        return self._complete_join(group, now)

    def _complete_join(self, group: ClassicGroup, now: Now) -> Decision:
        self.deadlines.drop((FIRST_JOIN, group.id))
        self.deadlines.drop((JOIN, group.id))
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                self._forget_member(group, member)
        if not group.elect_leader_who_joined() and group.members:
            # Only static members are left and none has joined: they keep their places.
            self.deadlines.set((JOIN, group.id), now.monotonic_ms + group.rebalance_timeout_ms)
            return NOTHING
        group.begin_generation(now.wall_ms)
        if group.state is ClassicGroupState.EMPTY:
            return Decision([records.group_metadata(group.id, group.as_record({}))])
        for member in group.members.values():
            self._answer_join(group, member, joined(group, member.id))
            self._expect(group.id, member.id, member.session_timeout_ms, now)
            member.is_new = False
            member.owes_sync = True
        self.deadlines.set(
            (SYNC, group.id, group.generation), now.monotonic_ms + group.rebalance_timeout_ms
        )
        return NOTHING

    def sync_is_due(self, group: ClassicGroup, generation: int, now: Now) -> Decision:
        """Remove members that got the generation and have not sent SyncGroup."""
        silent = [member for member in group.members.values() if member.owes_sync]
        in_time = group.state in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE)
        if generation != group.generation or not in_time or not silent:
            return NOTHING
        for member in silent:
            self._forget_member(group, member)
        return self._prepare_rebalance(group, now)

    # --- SyncGroup

    def sync(self, group: ClassicGroup, request: SyncGroupRequest, now: Now) -> Decision:
        member = group.require_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if differs(request.protocol_type, group.protocol_type) or differs(
            request.protocol_name, group.protocol
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        if group.state is ClassicGroupState.STABLE:
            self._synced(group, member)
            return Decision(response=synced(group, member))
        if member.syncing is not None:
            self._answer_later(member.syncing, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
        waits = member.syncing = Later(sync_refused(ErrorCode.NOT_COORDINATOR))
        self._synced(group, member)
        if group.leader != member.id:
            return Decision(response=waits)
        return self._assign(group, request, waits, now)

    def _assign(
        self, group: ClassicGroup, request: SyncGroupRequest, waits: Later, now: Now
    ) -> Decision:
        """The leader has sent the assignment: record it first, then answer the members."""
        assignments = {one.member_id: bytes(one.assignment) for one in request.assignments}

        def tell() -> None:
            group.become(ClassicGroupState.STABLE, now.wall_ms)
            for member in group.members.values():
                self._answer_sync(group, member, ErrorCode.NONE, now)

        def refuse(refusal: KafkaError) -> None:
            for member in group.members.values():
                self._answer_sync(group, member, refusal.code, now)
            self._prepare_rebalance(group, now)

        kept = [records.group_metadata(group.id, group.as_record(assignments))]
        return Decision(kept, waits, tell, otherwise=refuse)

    def _synced(self, group: ClassicGroup, member: ClassicMember) -> None:
        member.owes_sync = False
        if not any(one.owes_sync for one in group.members.values()):
            self.deadlines.drop((SYNC, group.id, group.generation))

    def _no_sync_owed(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            member.owes_sync = False
        self.deadlines.drop((SYNC, group.id, group.generation))

    # --- Heartbeat and sessions

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest, now: Now) -> Decision:
        member = group.require_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self.keep_session(group, member, now)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return Decision(response=HeartbeatResponse())

    def keep_session(self, group: ClassicGroup, member: ClassicMember, now: Now) -> None:
        self._expect(group.id, member.id, member.session_timeout_ms, now)

    def session_is_over(self, group: ClassicGroup, member_id: str, now: Now) -> Decision:
        member = group.members.get(member_id)
        if member is None:
            group.promised.discard(member_id)
            self._promised.given_back((SESSION, group.id, member_id))
            self._drop_if_nothing_is_left(group)
            if group.state is ClassicGroupState.PREPARING_REBALANCE and group.all_have_joined:
                return self._complete_join(group, now)
            return NOTHING
        if member.keeps_session_by_waiting:
            self.keep_session(group, member, now)
            return NOTHING
        self._forget_member(group, member)
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            return self._prepare_rebalance(group, now)
        if group.state is ClassicGroupState.PREPARING_REBALANCE and group.all_have_joined:
            return self._complete_join(group, now)
        return NOTHING

    def _expect(self, group_id: str, member_id: str, within_ms: int, now: Now) -> None:
        self.deadlines.set((SESSION, group_id, member_id), now.monotonic_ms + within_ms)

    # --- LeaveGroup

    def leave(self, group: ClassicGroup, request: LeaveGroupRequest, now: Now) -> Decision:
        answers = [self._leave_one(group, one) for one in request.members]
        response = LeaveGroupResponse(members=answers)
        if all(answer.error_code for answer in answers):
            return Decision(response=response)
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            decision = self._prepare_rebalance(group, now)
        elif group.state is ClassicGroupState.PREPARING_REBALANCE:
            decision = self._complete_if_all_joined(group, now)
        else:
            decision = NOTHING
        self._drop_if_nothing_is_left(group)
        return answered(decision, response)

    def _leave_one(self, group: ClassicGroup, one: MemberIdentity) -> MemberResponse:
        answer = MemberResponse(one.member_id, one.group_instance_id)
        if one.member_id in group.promised:
            group.promised.discard(one.member_id)
            self._promised.given_back((SESSION, group.id, one.member_id))
            return answer
        member_id = one.member_id
        if member_id == UNKNOWN and one.group_instance_id is not None:
            member_id = group.static.get(one.group_instance_id, UNKNOWN)
        try:
            member = group.require_member(member_id, one.group_instance_id)
        except KafkaError as refusal:
            answer.error_code = refusal.code
        else:
            self._forget_member(group, member)
        return answer

    def _forget_member(self, group: ClassicGroup, member: ClassicMember) -> None:
        self.deadlines.drop((SESSION, group.id, member.id))
        self._refuse_waiting(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member.id)

    def _drop_if_nothing_is_left(self, group: ClassicGroup) -> None:
        """Drop a group that was only asked for an id: a client can invent any number of groups."""
        nothing_left = not group.members and not group.promised
        if nothing_left and not group.is_recorded and group.state is ClassicGroupState.EMPTY:
            self.groups.pop(group.id, None)

    # --- answers to waiting members

    def _answer_join(
        self, group: ClassicGroup, member: ClassicMember, answer: JoinGroupResponse
    ) -> None:
        if member.joining is not None:
            self._answer_later(member.joining, answer)
            member.joining = None
            group.joining -= 1

    def _answer_sync(
        self, group: ClassicGroup, member: ClassicMember, code: ErrorCode, now: Now
    ) -> None:
        if member.syncing is not None:
            answer = sync_refused(code) if code else synced(group, member)
            self._answer_later(member.syncing, answer)
            member.syncing = None
            self.keep_session(group, member, now)

    def _refuse_waiting(self, group: ClassicGroup, member: ClassicMember, code: ErrorCode) -> None:
        said_id = UNKNOWN if code == ErrorCode.UNKNOWN_MEMBER_ID else member.id
        self._answer_join(group, member, join_refused(said_id, code))
        if member.syncing is not None:
            self._answer_later(member.syncing, sync_refused(code))
            member.syncing = None

    def end(self, group: ClassicGroup, code: ErrorCode) -> None:
        """The group is deleted, or becomes another kind: refuse the waiting requests."""
        for member in group.members.values():
            self._refuse_waiting(group, member, code)
            self.deadlines.drop((SESSION, group.id, member.id))

    def take_over(self, group: ClassicGroup, now: Now, *, rebalances: bool) -> None:
        """Take over a group that was of another kind; if it rebalances, its members have to
        rejoin."""
        self.groups[group.id] = group
        self.resume(group, now, rebalances=rebalances)

    def resume(self, group: ClassicGroup, now: Now, *, rebalances: bool = False) -> None:
        """Begin the sessions; rebalance a group that is larger than the present limit."""
        for member in group.members.values():
            self.keep_session(group, member, now)
        if rebalances or len(group.members) > self._settings().max_size:
            self._prepare_rebalance(group, now)

    def _answer_later(self, later: Later, answer: JoinGroupResponse | SyncGroupResponse) -> None:
        later.answer = answer
        self.answered.append(later)
