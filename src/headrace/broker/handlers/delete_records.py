"""DeleteRecords, v0-2: everything before an offset is gone for readers at once.

Offset -1 means the high watermark. Files go when a whole segment lies before the new start.
v1 is the same. v2 flexible. Needs DELETE on each topic. Not done: waiting for followers (there are
none).
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.metadata.topic_names import INTERNAL_TOPICS
from headrace.protocol.acls import Operation
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.messages import delete_records as messages
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from headrace.serving.api import Api, Call
from headrace.serving.rights import TOPIC, require

TO_HIGH_WATERMARK = -1


def handle(broker: Broker, request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        results = []
        for part in topic.partitions:
            try:
                require(broker, call, Operation.DELETE, TOPIC, topic.name)
                low = delete_before(broker, topic.name, part.partition_index, part.offset)
                result = DeleteRecordsPartitionResult(part.partition_index, low, ErrorCode.NONE)
            except KafkaError as refusal:
                result = DeleteRecordsPartitionResult(part.partition_index, -1, refusal.code)
            results.append(result)
        topics.append(DeleteRecordsTopicResult(topic.name, results))
    return DeleteRecordsResponse(0, topics)


def delete_before(broker: Broker, name: str, index: int, offset: int) -> int:
    """Returns the new first offset."""
    if name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    leader = broker.topics.leader(name, index)
    if "delete" not in leader.log.settings.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    target = leader.high_watermark if offset == TO_HIGH_WATERMARK else offset
    if target < 0 or target > leader.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    broker.partitions.delete_before(leader.log, target)
    broker.partition_changed(leader)
    return int(leader.log.start_offset)


API = Api(messages=messages, handle=handle, versions=range(0, 3))
