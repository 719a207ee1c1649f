"""The records of `__consumer_offsets`: their kinds, and how a change becomes a record.

The formats are those that Apache Kafka 4.3 writes, so that its tools read them and its brokers can
continue with them.
"""

from __future__ import annotations

from struct import Struct

from headrace.node.coordination.records import Encoded, Record, RecordCodec
from headrace.wire.protocol.messages import (
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
    share_group_current_member_assignment_key,
    share_group_current_member_assignment_value,
    share_group_member_metadata_key,
    share_group_member_metadata_value,
    share_group_metadata_key,
    share_group_metadata_value,
    share_group_state_partition_metadata_key,
    share_group_state_partition_metadata_value,
    share_group_target_assignment_member_key,
    share_group_target_assignment_member_value,
    share_group_target_assignment_metadata_key,
    share_group_target_assignment_metadata_value,
    streams_group_current_member_assignment_key,
    streams_group_current_member_assignment_value,
    streams_group_member_metadata_key,
    streams_group_member_metadata_value,
    streams_group_metadata_key,
    streams_group_metadata_value,
    streams_group_target_assignment_member_key,
    streams_group_target_assignment_member_value,
    streams_group_target_assignment_metadata_key,
    streams_group_target_assignment_metadata_value,
    streams_group_topology_key,
    streams_group_topology_value,
)
from headrace.wire.protocol.messages.group_metadata_key import GroupMetadataKey
from headrace.wire.protocol.messages.group_metadata_value import GroupMetadataValue
from headrace.wire.protocol.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.protocol.messages.offset_commit_value import OffsetCommitValue
from headrace.wire.protocol.primitives import BROKEN, ZERO_ID

# Version 1 of a committed offset is the only one with a field for its expiration time.
OFFSET_WITH_EXPIRY = 1
OFFSET = 4  # with the topic's id
GROUP_METADATA = 3

_SHORT = 127  # bytes of a string whose length, and one more, takes one byte as a varint
_two_shorts = Struct(">hh").pack
_short = Struct(">h").pack
_int = Struct(">i").pack
_offset_head = Struct(">hqiB").pack  # version, offset, leader epoch, length of the note and one
_offset_tail = Struct(">qBBB16s").pack  # time; one tag, number 0, 16 bytes: the topic's id
_OFFSET_KEY = offset_commit_key.API_KEY
_read_short = Struct(">h").unpack_from
_read_int = Struct(">i").unpack_from
_read_offset_head = Struct(">hqiB").unpack_from
_read_offset_tail = Struct(">qBBB16s").unpack_from
_HEAD_SIZE, _TAIL_SIZE = 15, 27


def _encode_offset(record: Record) -> Encoded | None:
    """Encodes a committed offset like the generated codecs, in a third of their time."""
    key, value, version = record
    if version != OFFSET or value is None or value.topic_id == ZERO_ID:
        return None
    group, topic, note = key.group.encode(), key.topic.encode(), value.metadata.encode()
    length = len(note) + 1
    if length > _SHORT:
        return None
    return (
        _two_shorts(_OFFSET_KEY, len(group)) + group + _short(len(topic)) + topic
        + _int(key.partition),
        _offset_head(OFFSET, value.offset, value.leader_epoch, length) + note
        + _offset_tail(value.commit_timestamp, 1, 0, 16, value.topic_id),
    )  # fmt: skip


def _decode_offset(key: bytes, value: bytes) -> Record | None:
    """Decodes a committed offset: most of the time of a start with many offsets."""
    try:
        version, offset, leader_epoch, length = _read_offset_head(value)
        topic_at = 4 + _read_short(key, 2)[0]
        end = topic_at + 2 + _read_short(key, topic_at)[0]
        note_end = _HEAD_SIZE + length - 1
        sizes = len(key) - end, len(value) - note_end
        if version != OFFSET or not 0 < length <= _SHORT or sizes != (4, _TAIL_SIZE):
            return None
        if not 4 <= topic_at <= end - 2:
            return None  # a length below zero
        time, tags, tag, size, topic_id = _read_offset_tail(value, note_end)
        if (tags, tag, size) != (1, 0, 16):
            return None
        return Record(
            OffsetCommitKey(
                key[4:topic_at].decode(), key[topic_at + 2 : end].decode(), _read_int(key, end)[0]
            ),
            OffsetCommitValue(
                offset, leader_epoch, value[_HEAD_SIZE:note_end].decode(), time, -1, topic_id
            ),
            version,
        )
    except BROKEN:
        return None  # the general path reports the error


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
        (share_group_current_member_assignment_key, share_group_current_member_assignment_value),
        (share_group_member_metadata_key, share_group_member_metadata_value),
        (share_group_metadata_key, share_group_metadata_value),
        (share_group_state_partition_metadata_key, share_group_state_partition_metadata_value),
        (share_group_target_assignment_member_key, share_group_target_assignment_member_value),
        (share_group_target_assignment_metadata_key, share_group_target_assignment_metadata_value),
        (streams_group_metadata_key, streams_group_metadata_value),
        (streams_group_topology_key, streams_group_topology_value),
        (streams_group_member_metadata_key, streams_group_member_metadata_value),
        (
            streams_group_target_assignment_metadata_key,
            streams_group_target_assignment_metadata_value,
        ),
        (streams_group_target_assignment_member_key, streams_group_target_assignment_member_value),
        (
            streams_group_current_member_assignment_key,
            streams_group_current_member_assignment_value,
        ),
    ],
    shortcuts={OffsetCommitKey: _encode_offset},
    reading_shortcuts={_OFFSET_KEY: _decode_offset},
)


def committed_offset(group: str, topic: str, partition: int, value: OffsetCommitValue) -> Record:
    version = OFFSET if value.expire_timestamp == -1 else OFFSET_WITH_EXPIRY
    return Record(OffsetCommitKey(group, topic, partition), value, version)


def forgotten_offset(group: str, topic: str, partition: int) -> Record:
    return Record(OffsetCommitKey(group, topic, partition), None)


def group_metadata(group: str, value: GroupMetadataValue) -> Record:
    return Record(GroupMetadataKey(group), value, GROUP_METADATA)


def forgotten_group(group: str) -> Record:
    return Record(GroupMetadataKey(group), None)
