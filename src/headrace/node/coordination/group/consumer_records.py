"""The records of consumer groups: one function for each recorded change."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.node.coordination.group.assignors import Assignment
from headrace.node.coordination.group.consumer_group import ConsumerGroup, ConsumerMember
from headrace.node.coordination.records import Record
from headrace.wire.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from headrace.wire.protocol.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from headrace.wire.protocol.messages.consumer_group_member_metadata_key import (
    ConsumerGroupMemberMetadataKey,
)
from headrace.wire.protocol.messages.consumer_group_member_metadata_value import (
    ConsumerGroupMemberMetadataValue,
)
from headrace.wire.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from headrace.wire.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from headrace.wire.protocol.messages.consumer_group_regular_expression_key import (
    ConsumerGroupRegularExpressionKey,
)
from headrace.wire.protocol.messages.consumer_group_regular_expression_value import (
    ConsumerGroupRegularExpressionValue,
)
from headrace.wire.protocol.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from headrace.wire.protocol.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from headrace.wire.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from headrace.wire.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)


def epoch(group_id: str, number: int, metadata_hash: int) -> Record:
    value = ConsumerGroupMetadataValue(number, metadata_hash)
    return Record(ConsumerGroupMetadataKey(group_id), value)


def member(group_id: str, one: ConsumerMember) -> Record:
    value = ConsumerGroupMemberMetadataValue(
        one.instance_id,
        one.rack_id,
        one.client_id,
        one.client_host,
        list(one.topics),
        one.regex,
        one.rebalance_timeout_ms,
        one.assignor,
        one.classic,
    )
    return Record(ConsumerGroupMemberMetadataKey(group_id, one.id), value)


def target_epoch(group_id: str, number: int, wall_ms: int) -> Record:
    value = ConsumerGroupTargetAssignmentMetadataValue(number, wall_ms)
    return Record(ConsumerGroupTargetAssignmentMetadataKey(group_id), value)


def target(group_id: str, member_id: str, given: Assignment) -> Record:
    parts = [TopicPartition(topic, sorted(indexes)) for topic, indexes in given.items()]
    value = ConsumerGroupTargetAssignmentMemberValue(parts)
    return Record(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), value)


def current(group_id: str, one: ConsumerMember) -> Record:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        one.epoch,
        one.previous_epoch,
        int(one.state),
        [_with_epochs(one, topic, found) for topic, found in one.assigned.items()],
        [_with_epochs(one, topic, found) for topic, found in one.revoking.items()],
    )
    return Record(ConsumerGroupCurrentMemberAssignmentKey(group_id, one.id), value)


def _with_epochs(one: ConsumerMember, topic: bytes, found: frozenset[int]) -> TopicPartitions:
    indexes = sorted(found)
    since = one.since[topic]
    return TopicPartitions(topic, indexes, [since[index] for index in indexes])


def pattern(group_id: str, regex: str, topics: Iterable[str], version: int, wall_ms: int) -> Record:
    value = ConsumerGroupRegularExpressionValue(sorted(topics), version, wall_ms)
    return Record(ConsumerGroupRegularExpressionKey(group_id, regex), value)


def forgotten_pattern(group_id: str, regex: str) -> Record:
    return Record(ConsumerGroupRegularExpressionKey(group_id, regex), None)


def forgotten_member(group_id: str, member_id: str) -> list[Record]:
    return [
        Record(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        Record(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        Record(ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]


def forgotten_group(group: ConsumerGroup) -> list[Record]:
    ids = group.members.keys()
    return [
        *(Record(ConsumerGroupCurrentMemberAssignmentKey(group.id, one), None) for one in ids),
        *(Record(ConsumerGroupTargetAssignmentMemberKey(group.id, one), None) for one in ids),
        Record(ConsumerGroupTargetAssignmentMetadataKey(group.id), None),
        *(Record(ConsumerGroupMemberMetadataKey(group.id, one), None) for one in ids),
        *(forgotten_pattern(group.id, regex) for regex in group.patterns),
        Record(ConsumerGroupMetadataKey(group.id), None),
    ]
