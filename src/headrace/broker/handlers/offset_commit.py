"""OffsetCommit, v2-10: a group's place in partitions, with a note if it likes.

Members commit for their generation or epoch; others may as long as the group has no members.
Topics that are not there are refused; partitions are not looked at, as in Apache Kafka.
v2-4 retention time. v3 throttle time. v6 leader epoch (KIP-320). v7 static members. v8 flexible.
v9 groups of the consumer protocol (KIP-848). v10 topic ids.
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.broker.groups import require_group_id
from headrace.coordination.group.machine import Commit, GroupMachine
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.messages import offset_commit as messages
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.protocol.messages.offset_commit_value import OffsetCommitValue
from headrace.serving.api import Api, Call, Parked

FIRST_VERSION_WITH_IDS = 10
NONE = ErrorCode.NONE


def handle(
    broker: Broker, request: OffsetCommitRequest, call: Call
) -> OffsetCommitResponse | Parked:
    by_id = call.version >= FIRST_VERSION_WITH_IDS
    response = OffsetCommitResponse()
    commits: list[Commit] = []
    accepted: list[OffsetCommitResponsePartition] = []
    wall_ms = call.now.wall_ms
    longest = broker.groups.settings().offset_metadata_max_bytes
    expires_ms = -1 if request.retention_time_ms == -1 else wall_ms + request.retention_time_ms
    image = broker.image
    for wanted in request.topics:
        if by_id:
            topic = image.topics_by_id.get(wanted.topic_id)
        else:
            topic = image.topics.get(wanted.name)
        answers: list[OffsetCommitResponsePartition] = []
        for part in wanted.partitions:
            metadata = part.committed_metadata or ""
            if topic is None:
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else unknown
                answers.append(OffsetCommitResponsePartition(part.partition_index, code))
                continue
            answer = OffsetCommitResponsePartition(part.partition_index, NONE)
            answers.append(answer)
            accepted.append(answer)
            if len(metadata) > longest:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            value = OffsetCommitValue(
                part.committed_offset,
                part.committed_leader_epoch,
                metadata,
                wall_ms,
                expires_ms,
                topic.id,
            )
            commits.append((topic.name, part.partition_index, value))
        response.topics.append(OffsetCommitResponseTopic(wanted.name, wanted.topic_id, answers))
    if not accepted and request.topics:
        return response
    try:
        require_group_id(request.group_id)
        answered: OffsetCommitResponse | Parked = broker.groups.ask(
            request.group_id, call.now, GroupMachine.commit, request, commits, response, call.now
        )
    except KafkaError as refusal:
        for answer in accepted:
            answer.error_code = refusal.code
        return response
    return answered


API = Api(messages=messages, handle=handle, versions=range(2, 11))
