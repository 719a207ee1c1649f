"""The records of `__consumer_offsets`: which kinds there are and how a change becomes one.

The formats are those that Apache Kafka 4.3 writes, so that its tools read them and its brokers go
on with them. Kinds of share and streams groups are passed over.
"""

from __future__ import annotations

from headrace.coordination.records import Record, RecordCodec
from headrace.protocol.messages import (
    consumer_group_current_member_assignment_key,
    consumer_group_current_member_assignment_value,
    consumer_group_member_metadata_key,
    consumer_group_member_metadata_value,
    consumer_group_metadata_key,
    consumer_group_metadata_value,
    consumer_group_partition_metadata_key,
    consumer_group_partition_metadata_value,
    consumer_group_regular_expression_key,
    consumer_group_regular_expression_value,
    consumer_group_target_assignment_member_key,
    consumer_group_target_assignment_member_value,
    consumer_group_target_assignment_metadata_key,
    consumer_group_target_assignment_metadata_value,
    group_metadata_key,
    group_metadata_value,
    legacy_offset_commit_key,
    legacy_offset_commit_value,
    offset_commit_key,
    offset_commit_value,
)
from headrace.protocol.messages.group_metadata_key import GroupMetadataKey
from headrace.protocol.messages.group_metadata_value import GroupMetadataValue
from headrace.protocol.messages.offset_commit_key import OffsetCommitKey
from headrace.protocol.messages.offset_commit_value import OffsetCommitValue

CODEC = RecordCodec(
    [
        (legacy_offset_commit_key, legacy_offset_commit_value),
        (offset_commit_key, offset_commit_value),
        (group_metadata_key, group_metadata_value),
        (consumer_group_metadata_key, consumer_group_metadata_value),
        (consumer_group_partition_metadata_key, consumer_group_partition_metadata_value),
        (consumer_group_member_metadata_key, consumer_group_member_metadata_value),
        (
            consumer_group_target_assignment_metadata_key,
            consumer_group_target_assignment_metadata_value,
        ),
        (
            consumer_group_target_assignment_member_key,
            consumer_group_target_assignment_member_value,
        ),
        (
            consumer_group_current_member_assignment_key,
            consumer_group_current_member_assignment_value,
        ),
        (consumer_group_regular_expression_key, consumer_group_regular_expression_value),
    ]
)

# Version 1 of a committed offset is the only one that has room for a time to forget it.
OFFSET_WITH_EXPIRY = 1
OFFSET = 4  # with the topic's id
GROUP_METADATA = 3


def committed_offset(group: str, topic: str, partition: int, value: OffsetCommitValue) -> Record:
    version = OFFSET if value.expire_timestamp == -1 else OFFSET_WITH_EXPIRY
    return Record(OffsetCommitKey(group, topic, partition), value, version)


def forgotten_offset(group: str, topic: str, partition: int) -> Record:
    return Record(OffsetCommitKey(group, topic, partition), None)


def group_metadata(group: str, value: GroupMetadataValue) -> Record:
    return Record(GroupMetadataKey(group), value, GROUP_METADATA)


def forgotten_group(group: str) -> Record:
    return Record(GroupMetadataKey(group), None)
