"""The rules for committing, fetching and deleting offsets of a group, and for their expiration.

Functions that a shard runs: the machine is the first argument, the result a Decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.environment import Now
from headrace.node.coordination.group import consumer_records as kept
from headrace.node.coordination.group import records
from headrace.node.coordination.group.classic_group import CONSUMER, ClassicGroup, ClassicGroupState
from headrace.node.coordination.group.consumer_group import ConsumerGroup, ConsumerMember
from headrace.node.coordination.group.offsets import Committed, Place, is_expired
from headrace.node.coordination.group.streams import streams_records
from headrace.node.coordination.group.streams.streams_group import StreamsGroup, StreamsMember
from headrace.node.coordination.records import Record
from headrace.node.coordination.shard import Decision
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.offset_commit import OffsetCommitRequest
from headrace.wire.protocol.messages.offset_commit_value import OffsetCommitValue

if TYPE_CHECKING:
    from headrace.node.coordination.group.machine import Group, GroupMachine

Commit = tuple[str, int, OffsetCommitValue]  # topic, partition, the offset to commit

FIRST_VERSION_WITH_EPOCHS = 9
OFFSETS_AT_ONCE = 2_000  # checked for their expiration at once; one takes a microsecond
NEVER: Mapping[int, int] = {}


def commit(
    machine: GroupMachine,
    request: OffsetCommitRequest,
    commits: list[Commit],
    response: Any,
    version: int,
    now: Now,
) -> Decision:
    try:
        require_may_commit(
            machine,
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            version,
            commits,
            now,
        )
    except KafkaError as refusal:
        # Older clients do not know either of the newer codes.
        if version < FIRST_VERSION_WITH_EPOCHS and refusal.code in (
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.STALE_MEMBER_EPOCH,
        ):
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION) from refusal
        raise
    group_id = request.group_id
    return Decision([records.committed_offset(group_id, *one) for one in commits], response)


def require_may_commit(
    machine: GroupMachine,
    group_id: str,
    member_id: str,
    instance_id: str | None,
    generation: int,
    version: int,
    commits: list[Commit],
    now: Now,
) -> None:
    """Refuses clients that are not members, or not any longer. Commits of members keep their
    session."""
    _require_no_share_group(machine, group_id)
    streams = machine.streams.groups.get(group_id)
    if streams is not None:
        _require_streams_member(streams, member_id, generation, version, commits)
        return
    if generation < 0 and group_id not in machine.groups:
        return
    group = machine.find(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if generation < 0 and not group.members:
        return
    if isinstance(group, ConsumerGroup):
        reader = group.members.get(member_id)
        if reader is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if reader.classic is None and version < FIRST_VERSION_WITH_EPOCHS:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if generation != reader.epoch and not _had_all(reader, generation, commits):
            raise _stale(reader)
        return
    if generation < 0 and not member_id and instance_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    member = group.require_member(member_id, instance_id)
    if generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    machine.classic.keep_session(group, member, now)


def _require_streams_member(
    group: StreamsGroup, member_id: str, epoch: int, version: int, commits: list[Commit]
) -> None:
    if epoch < 0 and not group.members:
        return
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if version < FIRST_VERSION_WITH_EPOCHS:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if epoch != member.epoch and not _had_all_tasks(group, member, epoch, commits):
        raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)


def _had_all_tasks(
    group: StreamsGroup, member: StreamsMember, epoch: int, commits: list[Commit]
) -> bool:
    """Like `_had_all`: the tasks that read these partitions were the member's then, and still
    are."""
    if epoch > member.epoch:
        return False
    return all(
        topic in group.sources
        and member.since.get((group.sources[topic], partition), epoch + 1) <= epoch
        for topic, partition, _ in commits
    )


def _require_no_share_group(machine: GroupMachine, group_id: str) -> None:
    """Refuses share groups, which have no offsets of this kind."""
    if group_id in machine.share.groups:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


def _had_all(member: ConsumerMember, epoch: int, commits: list[Commit]) -> bool:
    """Returns whether a commit with an older epoch is allowed: all its partitions were the member's
    then, and still are (KIP-1251).

    So a commit that was under way when the member got its next epoch need not be repeated.
    """
    if epoch > member.epoch:
        return False
    return all(
        member.since.get(value.topic_id, NEVER).get(partition, epoch + 1) <= epoch
        for _, partition, value in commits
    )


def _stale(member: ConsumerMember) -> KafkaError:
    stale = ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(stale if member.classic is None else ErrorCode.ILLEGAL_GENERATION)


def require_may_fetch(
    machine: GroupMachine, group_id: str, member_id: str | None, epoch: int
) -> None:
    """Refuses members of a consumer group whose epoch is out of date; other clients may fetch."""
    if member_id is None and epoch < 0:
        return
    _require_no_share_group(machine, group_id)
    streams = machine.streams.groups.get(group_id)
    if streams is not None:
        if member_id not in streams.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if epoch != streams.members[member_id].epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)
        return
    group = machine.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return
    member = group.members.get(member_id or "")
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if epoch != member.epoch:
        raise _stale(member)


def delete_offsets(
    machine: GroupMachine, group_id: str, places: Iterable[Place]
) -> tuple[list[Record], dict[Place, ErrorCode]]:
    """Returns the records, and the places that are refused because the group reads them."""
    _require_no_share_group(machine, group_id)
    group = _with_offsets(machine, group_id)
    if isinstance(group, ClassicGroup) and group.members and group.protocol_type != CONSUMER:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    offsets = machine.offsets
    refused = {
        place: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC for place in places if group.reads(place[0])
    }
    known = offsets.of(group_id)
    gone = [
        place
        for place in places
        if place not in refused and (place in known or offsets.is_unstable(group_id, place))
    ]
    return list(offsets.forget(group_id, gone)), refused


def forget_places(machine: GroupMachine, found: Iterable[Committed]) -> Decision:
    """Deletes the found offsets that still exist: a topic that was created again has offsets of its
    own."""
    return Decision(list(machine.offsets.forget_if_same(found)))


def delete_group(machine: GroupMachine, group_id: str) -> Decision:
    group = _with_offsets(machine, group_id)
    if group.members or (
        isinstance(group, ClassicGroup) and group.state is not ClassicGroupState.EMPTY
    ):
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    return Decision([*machine.offsets.forget_all(group_id), *_forgotten(group)], True)


def _with_offsets(machine: GroupMachine, group_id: str) -> Group | StreamsGroup:
    """Returns the group, which is of a kind that commits offsets."""
    return machine.streams.groups.get(group_id) or machine.require(group_id)


def _forgotten(group: Group | StreamsGroup) -> list[Record]:
    if isinstance(group, StreamsGroup):
        return streams_records.forgotten_group(group)
    if isinstance(group, ConsumerGroup):
        return kept.forgotten_group(group)
    return [records.forgotten_group(group.id)]


# --- expiry


def expire_offsets(machine: GroupMachine, group_ids: list[str], now: Now) -> list[Record]:
    """Returns tombstones of expired offsets, and of groups that have nothing left. Takes groups
    from the end of the list until it has checked OFFSETS_AT_ONCE offsets."""
    expired: list[Record] = []
    looked_at = 0
    while group_ids and looked_at < OFFSETS_AT_ONCE:
        group_id = group_ids.pop()
        if group_id in machine.share.groups:
            continue
        if (
            group_id in machine.groups
            or group_id in machine.streams.groups
            or group_id in machine.offsets.by_group
        ):
            looked_at += 1 + len(machine.offsets.of(group_id))
            expired += _expire_group(machine, _with_offsets(machine, group_id), now)
    return expired


def _expire_group(machine: GroupMachine, group: Group | StreamsGroup, now: Now) -> list[Record]:
    offsets = machine.offsets.of(group.id)
    expired = [place for place in offsets if _is_expired(machine, group, place, now)]
    tombstones = list(machine.offsets.forget(group.id, expired))
    busy = bool(group.members) or machine.offsets.has_open_transaction(group.id)
    if isinstance(group, ClassicGroup):
        busy = busy or bool(group.promised) or group.state is not ClassicGroupState.EMPTY
    if len(expired) == len(offsets) and not busy:
        tombstones += _forgotten(group)
    return tombstones


def _is_expired(machine: GroupMachine, group: Group | StreamsGroup, place: Place, now: Now) -> bool:
    value = machine.offsets.of(group.id)[place]
    base_ms = value.commit_timestamp
    if group.members and group.reads(place[0]):
        return False
    if isinstance(group, ClassicGroup) and group.protocol_type is not None:
        if group.state is ClassicGroupState.EMPTY:
            base_ms = group.since_ms if group.since_ms >= 0 else base_ms
        elif group.state is not ClassicGroupState.STABLE or group.subscribed_topics is None:
            return False
    if machine.offsets.is_unstable(group.id, place):
        return False
    return is_expired(value, base_ms, now.wall_ms, machine.settings().offsets_retention_ms)
