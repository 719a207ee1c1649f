"""All groups of one partition of `__consumer_offsets`: the state machine behind a shard.

Finds the group of a request and lets its kind decide; the rules for offsets are in
`offset_rules.py`, the views of groups in `views.py`. A group that has nothing but offsets (a
consumer that assigns itself, an admin's commit) has no object of its own: it exists as long as its
offsets do, so 100,000 such names cost only their offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headrace.environment import Now
from headrace.node.coordination.deadlines import Deadlines
from headrace.node.coordination.group import classic_answers as classic
from headrace.node.coordination.group import (
    consumer,
    consumer_group,
    offset_rules,
    records,
    share,
    share_group,
)
from headrace.node.coordination.group import consumer_records as kept
from headrace.node.coordination.group.classic import ClassicGroups
from headrace.node.coordination.group.classic_answers import Client
from headrace.node.coordination.group.classic_group import ClassicGroup, ClassicGroupState
from headrace.node.coordination.group.consumer import ConsumerGroups
from headrace.node.coordination.group.consumer_group import (
    LEFT_FOR_A_MOMENT,
    ConsumerGroup,
    MemberState,
)
from headrace.node.coordination.group.epochs import JOINS, known_member
from headrace.node.coordination.group.migration import Migration
from headrace.node.coordination.group.offsets import Offsets
from headrace.node.coordination.group.settings import GroupSettings
from headrace.node.coordination.group.share import ShareGroups
from headrace.node.coordination.group.share_group import LEAVES
from headrace.node.coordination.group.streams import streams, streams_group, streams_records
from headrace.node.coordination.group.streams.streams import StreamsGroups
from headrace.node.coordination.group.streams.streams_group import StreamsGroup
from headrace.node.coordination.records import Record
from headrace.node.coordination.shard import Decision, Later
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.protocol.messages.group_metadata_key import GroupMetadataKey
from headrace.wire.protocol.messages.heartbeat import HeartbeatRequest
from headrace.wire.protocol.messages.join_group import JoinGroupRequest
from headrace.wire.protocol.messages.leave_group import LeaveGroupRequest
from headrace.wire.protocol.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from headrace.wire.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from headrace.wire.protocol.messages.sync_group import SyncGroupRequest

Group = ClassicGroup | ConsumerGroup

SOON_MS = 1
EXPIRY = ("expiry",)  # the deadline for the next search for expired offsets


class GroupMachine:
    codec = records.CODEC

    def __init__(
        self,
        answered: list[Later],
        settings: Callable[[], GroupSettings],
        new_id: Callable[[], str],
        image: Callable[[], MetadataImage],
    ) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.deadlines = Deadlines()
        self._to_expire: list[str] = []  # groups whose offsets are to be checked
        self.settings = settings
        self.classic = ClassicGroups(self.groups, self.deadlines, answered, settings, new_id)
        self.consumer = ConsumerGroups(self.groups, self.deadlines, image, settings, new_id)
        self.migration = Migration(self.classic, self.consumer, settings, new_id)
        self.share = ShareGroups(self.deadlines, image, settings)  # it keeps its groups itself
        self.streams = StreamsGroups(self.deadlines, image, settings)  # and so does it

    # --- called by the shard

    @property
    def next_due_ms(self) -> int | None:
        return self.deadlines.next_ms

    def replay(self, record: Record) -> None:
        key, value = record.key, record.value
        if type(key) is OffsetCommitKey:
            self.offsets.replay(key, value)
        elif type(key) is GroupMetadataKey:
            self._replay_classic(key.group, value)
        elif not (
            share_group.replay(self.share.groups, record)
            or streams_group.replay(self.streams.groups, record)
        ):
            consumer_group.replay(self.groups, record)

    def _replay_classic(self, group_id: str, value: Any) -> None:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group = None  # it was one before; its own records say when it ends
        if value is None:
            if group is not None:
                del self.groups[group_id]
        elif group is None or group.members.keys() != {one.member_id for one in value.members}:
            self.groups[group_id] = ClassicGroup.from_record(group_id, value)
        else:
            group.is_recorded = True
            for one in value.members:
                group.members[one.member_id].assignment = one.assignment

    def replay_pending(self, producer_id: int, record: Record) -> None:
        if type(record.key) is OffsetCommitKey:
            self.offsets.replay_pending(producer_id, record.key, record.value)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed=committed)

    def loaded(self, now: Now) -> None:
        interval_ms = self.settings().offsets_check_interval_ms
        self.deadlines.set(EXPIRY, now.monotonic_ms + interval_ms)
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                self.classic.resume(group, now)
            else:
                for reader in group.members.values():
                    self.consumer.keep_session(group.id, reader, now)
                    self.consumer.watch_revocation(group.id, reader, now, moved=True)
        self.share.resume(now)
        self.streams.resume(now)

    def abandon(self) -> None:
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                self.classic.end(group, ErrorCode.NOT_COORDINATOR)

    def dismantle(self) -> Iterator[None]:
        while self.offsets.by_group:
            self.offsets.by_group.popitem()
            yield

    def due(self, now: Now) -> Decision:
        key: Any = self.deadlines.reached(now.monotonic_ms)
        if key is None:
            return classic.NOTHING
        reached_ms = self.deadlines.at[key]
        decision = self._decide_by_time(key, now)

        def done() -> None:
            if self.deadlines.at.get(key) == reached_ms:
                self.deadlines.drop(key)
            if decision.then is not None:
                decision.then()

        return Decision(decision.records, None, done)

    def _decide_by_time(self, key: Any, now: Now) -> Decision:
        kind = key[0]
        if key == EXPIRY:
            return self._expire_offsets(now)
        if kind == share.SESSION:
            return self.share.session_is_over(key[1], key[2])
        if kind in streams.KINDS:
            return self.streams.due(key, now)
        group = self.groups.get(key[1])
        if isinstance(group, ConsumerGroup):
            return self._member_is_late(group, key, now)
        if group is None or kind not in classic.KINDS:
            return classic.NOTHING
        if kind == classic.SESSION:
            return self.classic.session_is_over(group, key[2], now)
        if kind == classic.FIRST_JOIN:
            return self.classic.first_join_is_due(group, now)
        if kind == classic.JOIN:
            return self.classic.join_is_due(group, now)
        return self.classic.sync_is_due(group, key[2], now)

    def _expire_offsets(self, now: Now) -> Decision:
        """Expire offsets of some groups at a time: the next are checked a millisecond later."""
        if not self._to_expire:
            self._to_expire = self.group_ids()
        expired = offset_rules.expire_offsets(self, self._to_expire, now)
        pause_ms = SOON_MS if self._to_expire else self.settings().offsets_check_interval_ms
        self.deadlines.set(EXPIRY, now.monotonic_ms + pause_ms)
        return Decision(expired)

    def _member_is_late(self, group: ConsumerGroup, key: Any, now: Now) -> Decision:
        """Remove a member whose session is over, or that has not revoked or joined in time."""
        if key[0] in classic.KINDS:
            return classic.NOTHING  # left over from when it was a classic group
        kind, _, member_id = key
        member = group.members.get(member_id)
        if member is None:
            return classic.NOTHING
        if kind == consumer.REVOCATION and member.state is not MemberState.UNREVOKED_PARTITIONS:
            return classic.NOTHING
        return self.migration.remove(group, [member], now)

    def group_ids(self) -> list[str]:
        """Returns all groups, also those that have nothing but offsets."""
        return [
            *{**self.groups, **self.share.groups, **self.streams.groups, **self.offsets.by_group}
        ]

    def is_taken(self, group_id: str) -> bool:
        """Returns whether a share or streams group has this name."""
        return group_id in self.share.groups or group_id in self.streams.groups

    # --- membership

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, now: Now
    ) -> Decision:
        """Joins, stays or leaves, by its epoch."""
        consumer.require_sensible(request, client.version)
        if request.member_epoch < JOINS:
            return self._consumer_leaves(request, now)
        self.consumer.require_assignor(request.server_assignor)
        found = self.groups.get(request.group_id)
        if isinstance(found, ConsumerGroup):
            return self.consumer.heartbeat(found, request, client, now)
        if request.member_epoch != JOINS:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found."
            )
        if found is None and self.is_taken(request.group_id):
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group."
            )
        if found is None or found.state is ClassicGroupState.EMPTY:
            new = ConsumerGroup(request.group_id)
            before = [] if found is None else [records.forgotten_group(request.group_id)]
        elif self.migration.may_upgrade(found):
            new, before = self.migration.upgrade(found, now)
        else:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group."
            )
        decision = self.consumer.heartbeat(new, request, client, now)

        def then() -> None:
            if found is not None:
                self.migration.upgraded(found, new, now)
            if decision.then is not None:
                decision.then()

        return Decision([*before, *decision.records], decision.response, then)

    def _consumer_leaves(self, request: ConsumerGroupHeartbeatRequest, now: Now) -> Decision:
        group = self.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group."
            )
        member = known_member(group, request.member_id, request.instance_id)
        if request.member_epoch == LEFT_FOR_A_MOMENT:
            return self.consumer.step_aside(group, member)
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        return classic.answered(self.migration.remove(group, [member], now), response)

    def share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, client: Client, now: Now
    ) -> Decision:
        """Joins, stays or leaves, by its epoch."""
        share.require_sensible(request)
        self.require_share_name(request.group_id)
        if request.member_epoch == LEAVES:
            return self.share.leave(request)
        return self.share.heartbeat(request, client, now)

    def require_share_name(self, group_id: str) -> None:
        """Refuses the name of a group of another kind, also of one that has nothing but offsets."""
        if group_id in self.share.groups:
            return
        if group_id in self.streams.groups or self.find(group_id) is not None:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group."
            )

    def streams_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client: Client, now: Now
    ) -> Decision:
        """Joins, stays or leaves, by its epoch. An empty classic group makes room, and its offsets
        stay: so an application of the classic protocol continues with this one."""
        streams.require_sensible(request)
        found = self.groups.get(request.group_id)
        is_other = found is not None or request.group_id in self.share.groups
        if request.member_epoch == JOINS and isinstance(found, ClassicGroup):
            is_other = found.state is not ClassicGroupState.EMPTY
        if is_other:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a streams group."
            )
        if request.member_epoch == LEAVES:
            return self.streams.leave(request)
        decision = self.streams.heartbeat(request, client, now)
        if found is None:
            return decision
        before = records.forgotten_group(request.group_id)
        return Decision([before, *decision.records], decision.response, decision.then)

    def join(self, request: JoinGroupRequest, client: Client, now: Now) -> Decision:
        settings = self.settings()
        timeout_ms = request.session_timeout_ms
        if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        empty = self._empty_streams_group(request.group_id)
        if empty is not None:
            decision = self.classic.join(None, request, client, now)
            return Decision(
                [*streams_records.forgotten_group(empty), *decision.records],
                decision.response,
                decision.then,
            )
        if self.is_taken(request.group_id) and request.group_id not in self.groups:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return Decision(response=classic.join_refused(classic.UNKNOWN, code))
        group = self.find(request.group_id)
        if isinstance(group, ClassicGroup) or group is None:
            return self.classic.join(group, request, client, now)
        if group.members:
            try:
                return self.migration.join(group, request, client, now)
            except KafkaError as refusal:
                return Decision(response=classic.join_refused(classic.UNKNOWN, refusal.code))
        # The group has no members of the other protocol, so it begins again in this one.
        decision = self.classic.join(None, request, client, now)
        return Decision(
            [*kept.forgotten_group(group), *decision.records], decision.response, decision.then
        )

    def sync(self, request: SyncGroupRequest, client: Client, now: Now) -> Decision:
        group = self._with_members(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self.migration.sync(group, request, now)
        return self.classic.sync(group, request, now)

    def heartbeat(self, request: HeartbeatRequest, client: Client, now: Now) -> Decision:
        group = self._with_members(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self.migration.heartbeat(group, request, now)
        return self.classic.heartbeat(group, request, now)

    def leave(self, request: LeaveGroupRequest, client: Client, now: Now) -> Decision:
        group = self.find(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(group, ConsumerGroup):
            return self.migration.leave(group, request, now)
        return self.classic.leave(group, request, now)

    def find(self, group_id: str) -> Group | None:
        group = self.groups.get(group_id)
        if group is None and group_id in self.offsets.by_group and not self.is_taken(group_id):
            return ClassicGroup(group_id)  # has nothing but offsets
        return group

    def _empty_streams_group(self, group_id: str) -> StreamsGroup | None:
        """Returns the group if a classic one may take its name: it has no members."""
        group = self.streams.groups.get(group_id)
        return None if group is None or group.members else group

    def require(self, group_id: str) -> Group:
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def _with_members(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None or not group.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group
