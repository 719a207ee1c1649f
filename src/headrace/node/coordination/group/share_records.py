"""The records of share groups: one function for each recorded change."""

from __future__ import annotations

from headrace.node.coordination.group.assignors import Assignment
from headrace.node.coordination.group.share_group import (
    Shared,
    SharedTopics,
    ShareGroup,
    ShareMember,
)
from headrace.node.coordination.records import Record
from headrace.wire.protocol.messages.share_group_current_member_assignment_key import (
    ShareGroupCurrentMemberAssignmentKey,
)
from headrace.wire.protocol.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from headrace.wire.protocol.messages.share_group_member_metadata_key import (
    ShareGroupMemberMetadataKey,
)
from headrace.wire.protocol.messages.share_group_member_metadata_value import (
    ShareGroupMemberMetadataValue,
)
from headrace.wire.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from headrace.wire.protocol.messages.share_group_metadata_value import ShareGroupMetadataValue
from headrace.wire.protocol.messages.share_group_state_partition_metadata_key import (
    ShareGroupStatePartitionMetadataKey,
)
from headrace.wire.protocol.messages.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from headrace.wire.protocol.messages.share_group_target_assignment_member_key import (
    ShareGroupTargetAssignmentMemberKey,
)
from headrace.wire.protocol.messages.share_group_target_assignment_member_value import (
    ShareGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from headrace.wire.protocol.messages.share_group_target_assignment_metadata_key import (
    ShareGroupTargetAssignmentMetadataKey,
)
from headrace.wire.protocol.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)

STABLE = 0  # the state of every member: it always has what its epoch gives it


def epoch(group_id: str, number: int, metadata_hash: int) -> Record:
    return Record(ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(number, metadata_hash))


def member(group_id: str, one: ShareMember) -> Record:
    value = ShareGroupMemberMetadataValue(
        one.rack_id, one.client_id, one.client_host, list(one.topics)
    )
    return Record(ShareGroupMemberMetadataKey(group_id, one.id), value)


def target_epoch(group_id: str, number: int, wall_ms: int) -> Record:
    value = ShareGroupTargetAssignmentMetadataValue(number, wall_ms)
    return Record(ShareGroupTargetAssignmentMetadataKey(group_id), value)


def target(group_id: str, member_id: str, given: Assignment) -> Record:
    parts = [TopicPartition(topic, sorted(indexes)) for topic, indexes in given.items()]
    value = ShareGroupTargetAssignmentMemberValue(parts)
    return Record(ShareGroupTargetAssignmentMemberKey(group_id, member_id), value)


def current(group_id: str, one: ShareMember) -> Record:
    parts = [TopicPartitions(topic, sorted(indexes)) for topic, indexes in one.assigned.items()]
    value = ShareGroupCurrentMemberAssignmentValue(one.epoch, one.previous_epoch, STABLE, parts)
    return Record(ShareGroupCurrentMemberAssignmentKey(group_id, one.id), value)


def shared(group_id: str, topics: SharedTopics) -> Record:
    value = ShareGroupStatePartitionMetadataValue(
        _infos(topics.initializing),
        _infos(topics.initialized),
        [TopicInfo(*one) for one in sorted(topics.deleting.items())],
    )
    return Record(ShareGroupStatePartitionMetadataKey(group_id), value)


def _infos(topics: Shared) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id, topic.name, sorted(topic.partitions))
        for topic_id, topic in sorted(topics.items())
    ]


def forgotten_member(group_id: str, member_id: str) -> list[Record]:
    return [
        Record(ShareGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        Record(ShareGroupTargetAssignmentMemberKey(group_id, member_id), None),
        Record(ShareGroupMemberMetadataKey(group_id, member_id), None),
    ]


def forgotten_group(group: ShareGroup) -> list[Record]:
    return [
        Record(ShareGroupTargetAssignmentMetadataKey(group.id), None),
        Record(ShareGroupStatePartitionMetadataKey(group.id), None),
        Record(ShareGroupMetadataKey(group.id), None),
    ]
