"""A share group (KIP-932): its state, and how records change it.

The same three numbers drive it as a consumer group (`consumer_group.py`), but nothing has to be
revoked first: members may share partitions, so a member reaches its target in one step.

`SharedTopics` lists the partitions for which the share coordinator has a state: those whose state
is requested, those that have one, and topics whose state is being deleted. Only the second are
assigned.

Everything here changes by `replay` alone. Decides nothing: `share.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from headrace.node.coordination.group.assignors import Assignment
from headrace.node.coordination.group.consumer_group import NOTHING, assignment_of
from headrace.node.coordination.records import Record
from headrace.wire.protocol.messages.share_group_current_member_assignment_key import (
    ShareGroupCurrentMemberAssignmentKey,
)
from headrace.wire.protocol.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
)
from headrace.wire.protocol.messages.share_group_member_metadata_key import (
    ShareGroupMemberMetadataKey,
)
from headrace.wire.protocol.messages.share_group_member_metadata_value import (
    ShareGroupMemberMetadataValue,
)
from headrace.wire.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from headrace.wire.protocol.messages.share_group_state_partition_metadata_key import (
    ShareGroupStatePartitionMetadataKey,
)
from headrace.wire.protocol.messages.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
)
from headrace.wire.protocol.messages.share_group_target_assignment_member_key import (
    ShareGroupTargetAssignmentMemberKey,
)
from headrace.wire.protocol.messages.share_group_target_assignment_metadata_key import (
    ShareGroupTargetAssignmentMetadataKey,
)

LEAVES = -1  # the epoch of a member that goes


@dataclass(slots=True)
class ShareMember:
    id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()  # the names it reads, in order
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Assignment = field(default_factory=dict)

    def copy(self, **changes: Any) -> ShareMember:
        return replace(self, **changes)


class SharedTopic(NamedTuple):
    name: str
    partitions: frozenset[int]


Shared = Mapping[bytes, SharedTopic]  # by topic id


class SharedTopics(NamedTuple):
    """Partitions whose state is requested, or exists; topics whose state is being deleted."""

    initializing: Shared
    initialized: Shared
    deleting: Mapping[bytes, str]  # topic id -> name


NOTHING_SHARED = SharedTopics({}, {}, {})


@dataclass(slots=True)
class ShareGroup:
    id: str
    epoch: int = 1  # so that the first member finds 2, as in Apache Kafka 4.3
    metadata_hash: int = 0
    target_epoch: int = 0
    target_at_ms: int = -1  # wall clock; when the target was computed
    members: dict[str, ShareMember] = field(default_factory=dict)
    target: dict[str, Assignment] = field(default_factory=dict)
    shared: SharedTopics = NOTHING_SHARED
    topics_seen: Any = None  # the image's topics at the last check of the hash; not recorded

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    def names_read(self) -> frozenset[str]:
        return frozenset[str]().union(*(member.topics for member in self.members.values()))

    # --- replay

    def replay_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        if value is None:
            self.members.pop(member_id, None)
            return
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ShareMember(member_id)
        member.rack_id = value.rack_id
        member.client_id = value.client_id
        member.client_host = value.client_host
        member.topics = tuple(value.subscribed_topic_names)

    def replay_current(
        self, member_id: str, value: ShareGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(member_id)
        if member is None:
            if value is None:
                return
            member = self.members[member_id] = ShareMember(member_id)
        if value is None:
            member.epoch = member.previous_epoch = LEAVES
            member.assigned = NOTHING
            return
        member.epoch = value.member_epoch
        member.previous_epoch = value.previous_member_epoch
        member.assigned = assignment_of(value.assigned_partitions)


def replay(groups: dict[str, ShareGroup], record: Record) -> bool:
    """Apply a record to its share group; returns False if it is of another kind."""
    key, value = record.key, record.value
    kind = type(key)
    if kind not in KINDS:
        return False
    group = groups.get(key.group_id)
    if group is None:
        if value is None:
            return True
        group = groups[key.group_id] = ShareGroup(key.group_id)
    if kind is ShareGroupMemberMetadataKey:
        group.replay_member(key.member_id, value)
    elif kind is ShareGroupCurrentMemberAssignmentKey:
        group.replay_current(key.member_id, value)
    elif kind is ShareGroupTargetAssignmentMemberKey:
        if value is None:
            group.target.pop(key.member_id, None)
        else:
            group.target[key.member_id] = assignment_of(value.topic_partitions)
    elif kind is ShareGroupTargetAssignmentMetadataKey:
        group.target_epoch = -1 if value is None else value.assignment_epoch
        group.target_at_ms = -1 if value is None else value.assignment_timestamp
    elif kind is ShareGroupStatePartitionMetadataKey:
        group.shared = NOTHING_SHARED if value is None else _shared_of(value)
    elif value is None:
        del groups[key.group_id]
    else:
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
    return True


KINDS = frozenset(
    {
        ShareGroupMetadataKey,
        ShareGroupMemberMetadataKey,
        ShareGroupTargetAssignmentMetadataKey,
        ShareGroupTargetAssignmentMemberKey,
        ShareGroupCurrentMemberAssignmentKey,
        ShareGroupStatePartitionMetadataKey,
    }
)


def _shared_of(value: ShareGroupStatePartitionMetadataValue) -> SharedTopics:
    def topics(found: Iterable[Any]) -> Shared:
        return {
            one.topic_id: SharedTopic(one.topic_name, frozenset(one.partitions)) for one in found
        }

    return SharedTopics(
        topics(value.initializing_topics),
        topics(value.initialized_topics),
        {one.topic_id: one.topic_name for one in value.deleting_topics},
    )


def added(one: Shared, other: Shared) -> Shared:
    """Returns the partitions of both."""
    both = dict(one)
    for topic_id, topic in other.items():
        known = both.get(topic_id)
        had = frozenset[int]() if known is None else known.partitions
        both[topic_id] = SharedTopic(topic.name, had | topic.partitions)
    return both


def without(one: Shared, other: Shared) -> Shared:
    """Returns the partitions of the first that the second does not have."""
    left = {
        topic_id: topic._replace(
            partitions=topic.partitions - other[topic_id].partitions
            if topic_id in other
            else topic.partitions
        )
        for topic_id, topic in one.items()
    }
    return {topic_id: topic for topic_id, topic in left.items() if topic.partitions}
