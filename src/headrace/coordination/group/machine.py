"""All groups of one partition of `__consumer_offsets`: the state machine behind a shard.

Finds the group a request speaks of, lets its kind decide, and keeps the offsets. A group that has
nothing but offsets (a consumer that assigns itself, an admin's commit) is not kept as an object of
its own: it is there as long as its offsets are, so 100,000 such names cost only their offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headrace.coordination.deadlines import Deadlines
from headrace.coordination.group import classic_answers as classic
from headrace.coordination.group import records
from headrace.coordination.group.classic import ClassicGroups
from headrace.coordination.group.classic_answers import Client
from headrace.coordination.group.classic_group import CONSUMER, ClassicGroup, State
from headrace.coordination.group.offsets import Offsets, Place, is_expired
from headrace.coordination.group.settings import GroupSettings
from headrace.coordination.records import Record
from headrace.coordination.shard import Decision, Later
from headrace.environment import Now
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from headrace.protocol.messages.group_metadata_key import GroupMetadataKey
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest
from headrace.protocol.messages.leave_group import LeaveGroupRequest
from headrace.protocol.messages.list_groups import ListedGroup
from headrace.protocol.messages.offset_commit import OffsetCommitRequest
from headrace.protocol.messages.offset_commit_key import OffsetCommitKey
from headrace.protocol.messages.offset_commit_value import OffsetCommitValue
from headrace.protocol.messages.sync_group import SyncGroupRequest

Commit = tuple[str, int, OffsetCommitValue]  # topic, partition, what is committed

EXPIRY = ("expiry",)  # the deadline of looking for offsets to forget


class GroupMachine:
    codec = records.CODEC

    def __init__(
        self,
        settled: list[Later],
        settings: Callable[[], GroupSettings],
        new_id: Callable[[], str],
    ) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self.deadlines = Deadlines()
        self._settings = settings
        self.classic = ClassicGroups(self.groups, self.deadlines, settled, settings, new_id)

    # --- what the shard asks

    @property
    def next_due_ms(self) -> int | None:
        return self.deadlines.next_ms

    def replay(self, record: Record) -> None:
        key, value = record.key, record.value
        if type(key) is OffsetCommitKey:
            self.offsets.replay(key, value)
        elif type(key) is GroupMetadataKey:
            self._replay_classic(key.group, value)

    def _replay_classic(self, group_id: str, value: Any) -> None:
        group = self.groups.get(group_id)
        if value is None:
            self.groups.pop(group_id, None)
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
        interval_ms = self._settings().offsets_check_interval_ms
        self.deadlines.set(EXPIRY, now.monotonic_ms + interval_ms)
        for group in self.groups.values():
            for member in group.members.values():
                self.classic.keep_session(group, member, now)

    def abandon(self) -> None:
        for group in self.groups.values():
            self.classic.abandon(group)

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
            self.deadlines.set(
                EXPIRY, now.monotonic_ms + self._settings().offsets_check_interval_ms
            )
            return Decision(self.expire_offsets(now))
        group = self.groups.get(key[1])
        if group is None:
            return classic.NOTHING
        if kind == classic.SESSION:
            return self.classic.session_is_over(group, key[2], now)
        if kind == classic.FIRST_JOIN:
            return self.classic.first_join_is_due(group, key[2], now)
        if kind == classic.JOIN:
            return self.classic.join_is_due(group, now)
        return self.classic.sync_is_due(group, key[2], now)

    # --- membership

    def join(self, request: JoinGroupRequest, client: Client, now: Now) -> Decision:
        settings = self._settings()
        timeout_ms = request.session_timeout_ms
        if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        return self.classic.join(self.find(request.group_id), request, client, now)

    def sync(self, request: SyncGroupRequest, client: Client, now: Now) -> Decision:
        return self.classic.sync(self._with_members(request.group_id), request, now)

    def heartbeat(self, request: HeartbeatRequest, client: Client, now: Now) -> Decision:
        return self.classic.heartbeat(self._with_members(request.group_id), request, now)

    def leave(self, request: LeaveGroupRequest, client: Client, now: Now) -> Decision:
        group = self.find(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return self.classic.leave(group, request, now)

    def find(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        if group is None and group_id in self.offsets.by_group:
            return ClassicGroup(group_id)  # has nothing but offsets
        return group

    def require(self, group_id: str) -> ClassicGroup:
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def _with_members(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None or group.state is State.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # --- offsets

    def require_may_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: Now
    ) -> None:
        """Refuses whoever is not, or no longer, a member; commits of members keep their session."""
        group = self.find(group_id)
        if group is None:
            if generation >= 0:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            return
        if generation < 0 and group.state is State.EMPTY:
            return
        if generation < 0 and not member_id and instance_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.require_member(member_id, instance_id)
        if generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if group.state is State.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self.classic.keep_session(group, member, now)

    def commit(
        self, request: OffsetCommitRequest, commits: list[Commit], response: Any, now: Now
    ) -> Decision:
        self.require_may_commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            now,
        )
        group_id = request.group_id
        return Decision(
            [records.committed_offset(group_id, *commit) for commit in commits], response
        )

    def require_may_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Members of a consumer group are told when they are out of date; others may look."""

    def delete_offsets(
        self, group_id: str, places: Iterable[Place]
    ) -> tuple[list[Record], dict[Place, ErrorCode]]:
        """The records, and which places are refused because the group reads them."""
        group = self.require(group_id)
        if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        refused = {
            place: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC for place in places if group.reads(place[0])
        }
        known = self.offsets.of(group_id)
        gone = [
            place
            for place in places
            if place not in refused
            and (place in known or self.offsets.is_unstable(group_id, place))
        ]
        return list(self.offsets.forget(group_id, gone)), refused

    def expire_offsets(self, now: Now) -> list[Record]:
        """Tombstones of what was kept long enough, and of groups that have nothing left."""
        expired: list[Record] = []
        for group_id in list({**self.groups, **self.offsets.by_group}):
            expired += self._expire_group(self.require(group_id), now)
        return expired

    def _expire_group(self, group: ClassicGroup, now: Now) -> list[Record]:
        offsets = self.offsets.of(group.id)
        expired = [place for place in offsets if self._is_expired(group, place, now)]
        tombstones = list(self.offsets.forget(group.id, expired))
        nothing_left = len(expired) == len(offsets) and group.state is State.EMPTY
        if nothing_left and not group.pending and not self.offsets.has_open_transaction(group.id):
            tombstones.append(records.forgotten_group(group.id))
        return tombstones

    def _is_expired(self, group: ClassicGroup, place: Place, now: Now) -> bool:
        value = self.offsets.of(group.id)[place]
        base_ms = value.commit_timestamp
        if group.protocol_type is not None:
            if group.state is State.EMPTY:
                base_ms = group.since_ms if group.since_ms >= 0 else base_ms
            elif group.state is not State.STABLE or group.subscribed_topics is None:
                return False
            if group.state is not State.EMPTY and group.reads(place[0]):
                return False
        if self.offsets.is_unstable(group.id, place):
            return False
        return is_expired(value, base_ms, now.wall_ms, self._settings().offsets_retention_ms)

    def forget_topics(self, topics: frozenset[str]) -> Decision:
        return Decision(self.offsets.forget_topics(topics))

    # --- looking at groups

    def list_groups(self) -> list[ListedGroup]:
        return [
            ListedGroup(group.id, group.protocol_type or "", group.state.value, "classic")
            for group in map(self.require, {**self.groups, **self.offsets.by_group})
        ]

    def describe(self, group_id: str) -> DescribedGroup:
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        stable = group.state is State.STABLE
        return DescribedGroup(
            group_id=group.id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if stable else "",
            members=[
                DescribedGroupMember(
                    member.id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.protocols.get(group.protocol or "", b"") if stable else b"",
                    member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def delete_group(self, group_id: str) -> Decision:
        group = self.require(group_id)
        if group.state is not State.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        tombstones = self.offsets.forget_all(group_id)
        tombstones.append(records.forgotten_group(group_id))
        return Decision(tombstones)
