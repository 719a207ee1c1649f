"""A group of the consumer protocol (KIP-848): its state, and how records change it.

Three numbers drive it. The *group epoch* rises with every change of members or subscriptions; the
*target epoch* is the group epoch of the last assignment; a *member epoch* is the target that the
member has reached. A member moves from its present partitions to its target on its own: it first
revokes partitions, and gets new ones once the former owners have revoked them. So no partition has
two owners at one moment, and a member that stalls blocks only its own partitions.

Everything here changes by `replay` alone. Decides nothing: `consumer.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from operator import attrgetter
from typing import Any, NamedTuple

from headrace.node.coordination.group.assignors import Assignment
from headrace.node.coordination.records import Record
from headrace.wire.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from headrace.wire.protocol.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from headrace.wire.protocol.messages.consumer_group_member_metadata_key import (
    ConsumerGroupMemberMetadataKey,
)
from headrace.wire.protocol.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from headrace.wire.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from headrace.wire.protocol.messages.consumer_group_regular_expression_key import (
    ConsumerGroupRegularExpressionKey,
)
from headrace.wire.protocol.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from headrace.wire.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)

NOTHING: Assignment = {}
Epochs = Mapping[bytes, Mapping[int, int]]  # topic id -> partition -> epoch
LEFT_FOR_A_MOMENT = -2  # the epoch of a static member that will come back


class MemberState(IntEnum):
    """The numbers are those of the records."""

    STABLE = 0  # has what its epoch gives it
    UNREVOKED_PARTITIONS = 1  # has to revoke some first
    UNRELEASED_PARTITIONS = 2  # waits for others to revoke
    UNKNOWN = 127  # written by a later release


class Wish(NamedTuple):
    """The subscription of a member. Most members of a group have the same, so wishes are
    counted."""

    topics: tuple[str, ...]
    regex: str | None
    assignor: str | None


@dataclass(slots=True)
class ConsumerMember:
    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()  # the names it reads, in order
    regex: str | None = None  # and a pattern, if it reads by one
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None  # it speaks the classic protocol
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)
    # The epoch in which it got each of both: an older one may still commit for it (KIP-1251).
    since: Epochs = field(default_factory=dict)

    def copy(self, **changes: Any) -> ConsumerMember:
        other = ConsumerMember(*_fields_of(self))  # a tenth of the time of `copy.copy`
        for name, value in changes.items():
            setattr(other, name, value)
        return other

    def has_reached(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    @property
    def wish(self) -> Wish:
        return Wish(self.topics, self.regex, self.assignor)

    @property
    def session_timeout_ms(self) -> int | None:
        return None if self.classic is None else self.classic.session_timeout_ms


_fields_of = attrgetter(*(one.name for one in fields(ConsumerMember)))


@dataclass(slots=True)
class ConsumerGroup:
    id: str
    epoch: int = 1  # so that the first member finds 2, as in Apache Kafka 4.3
    metadata_hash: int = 0
    target_epoch: int = 0
    target_at_ms: int = -1  # wall clock; when the target was computed
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    wishes: dict[Wish, int] = field(default_factory=dict)  # and how many members have each
    static: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    target: dict[str, Assignment] = field(default_factory=dict)
    owners: dict[tuple[bytes, int], str] = field(default_factory=dict)  # partition -> member id
    patterns: dict[str, frozenset[str]] = field(default_factory=dict)  # regex -> topics it matches
    topics_seen: Any = None  # the image's topics at the last check of the hash; not recorded
    names_seen: frozenset[str] | None = None  # the names in that hash; not recorded
    sight_seen: int = 0  # the change of rights at the last check of the patterns

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        reached = all(member.has_reached(self.target_epoch) for member in self.members.values())
        return "Stable" if reached else "Reconciling"

    def reads(self, topic: str) -> bool:
        return any(
            topic in names_read(wish.topics, wish.regex, self.patterns) for wish in self.wishes
        )

    def add(self, member: ConsumerMember) -> None:
        self.members[member.id] = member
        count_wish(self.wishes, member.wish, 1)

    def is_free(self, partition: tuple[bytes, int], member_ids: Iterable[str]) -> bool:
        owner = self.owners.get(partition)
        return owner is None or owner in member_ids

    # --- replay

    def replay_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is None:
            member = self.members.pop(member_id, None)
            if member is None:
                return
            count_wish(self.wishes, member.wish, -1)
            self._forget_instance(member)
            self._forget_patterns()
            return
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ConsumerMember(member_id)
        else:
            count_wish(self.wishes, member.wish, -1)
        self._forget_instance(member)
        member.instance_id = value.instance_id
        member.rack_id = value.rack_id
        member.client_id = value.client_id
        member.client_host = value.client_host
        member.topics = tuple(value.subscribed_topic_names)
        member.regex = value.subscribed_topic_regex or None
        member.rebalance_timeout_ms = value.rebalance_timeout_ms
        member.assignor = value.server_assignor
        member.classic = value.classic_member_metadata
        count_wish(self.wishes, member.wish, 1)
        if value.instance_id:
            self.static[value.instance_id] = member_id

    def _forget_instance(self, member: ConsumerMember) -> None:
        if member.instance_id and self.static.get(member.instance_id) == member.id:
            del self.static[member.instance_id]

    def _forget_patterns(self) -> None:
        if self.patterns:
            used = {wish.regex for wish in self.wishes}
            for regex in self.patterns.keys() - used:
                del self.patterns[regex]

    def replay_current(
        self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(member_id)
        if member is None:
            if value is None:
                return
            member = ConsumerMember(member_id)
            self.add(member)
        for partition in _partitions(member.assigned, member.revoking):
            if self.owners.get(partition) == member_id:
                del self.owners[partition]
        if value is None:
            member.epoch = member.previous_epoch = 0
            member.state = MemberState.STABLE
            member.assigned = member.revoking = NOTHING
            member.since = {}
            return
        member.epoch = value.member_epoch
        member.previous_epoch = value.previous_member_epoch
        member.state = _state(value.state)
        member.assigned = assignment_of(value.assigned_partitions)
        member.revoking = assignment_of(value.partitions_pending_revocation)
        member.since = _epochs_of(value)
        for partition in _partitions(member.assigned, member.revoking):
            self.owners[partition] = member_id


def replay(groups: dict[str, Any], record: Record) -> None:
    """Apply a record to its group; other kinds of records are skipped."""
    key, value = record.key, record.value
    kind = type(key)
    if kind not in KINDS:
        return
    group = groups.get(key.group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return
        group = groups[key.group_id] = ConsumerGroup(key.group_id)
    if kind is ConsumerGroupMemberMetadataKey:
        group.replay_member(key.member_id, value)
    elif kind is ConsumerGroupCurrentMemberAssignmentKey:
        group.replay_current(key.member_id, value)
    elif kind is ConsumerGroupTargetAssignmentMemberKey:
        if value is None:
            group.target.pop(key.member_id, None)
        else:
            group.target[key.member_id] = assignment_of(value.topic_partitions)
    elif kind is ConsumerGroupTargetAssignmentMetadataKey:
        group.target_epoch = -1 if value is None else value.assignment_epoch
        group.target_at_ms = -1 if value is None else value.assignment_timestamp
    elif kind is ConsumerGroupRegularExpressionKey:
        if value is None:
            group.patterns.pop(key.regular_expression, None)
        else:
            group.patterns[key.regular_expression] = frozenset(value.topics)
    elif value is None:
        del groups[key.group_id]
    else:
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


KINDS = frozenset(
    {
        ConsumerGroupMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupRegularExpressionKey,
    }
)


def count_wish(wishes: dict[Wish, int], wish: Wish, change: int) -> None:
    """One member more, or one less, has this wish."""
    count = wishes.get(wish, 0) + change
    if count:
        wishes[wish] = count
    else:
        del wishes[wish]


def names_read(
    topics: Collection[str], regex: str | None, patterns: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    """Returns all names that a member reads, including those that its pattern matches."""
    matched = patterns.get(regex or "", frozenset())
    return matched.union(topics) if topics else matched


def assignment_of(parts: Iterable[Any]) -> Assignment:
    return {part.topic_id: frozenset(part.partitions) for part in parts if part.partitions}


def _epochs_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> Epochs:
    """Releases before Kafka 4.3 wrote none: then only the present epoch of the member counts."""
    found: dict[bytes, dict[int, int]] = {}
    for part in (*value.assigned_partitions, *value.partitions_pending_revocation):
        epochs: Sequence[int] = part.assignment_epochs or ()
        if len(epochs) != len(part.partitions):
            epochs = [value.member_epoch] * len(part.partitions)
        found.setdefault(part.topic_id, {}).update(zip(part.partitions, epochs, strict=True))
    return found


def _partitions(*assignments: Assignment) -> list[tuple[bytes, int]]:
    return [
        (topic, index)
        for assignment in assignments
        for topic, indexes in assignment.items()
        for index in indexes
    ]


def _state(number: int) -> MemberState:
    known = {0, 1, 2}
    return MemberState(number) if number in known else MemberState.UNKNOWN
