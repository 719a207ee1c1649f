"""DeleteRecords, v0-2: everything before an offset is gone for readers at once.

Offset -1 means the high watermark. Files go when a whole segment lies before the new start. With
durability `disk` the answer waits until the new start is on the disk; else a power cut within
`log.flush.offset.checkpoint.interval.ms` may bring records back, as in Apache Kafka.
v1 is the same. v2 flexible. Needs DELETE on each topic. Not done: waiting for followers (there are
none).
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.broker.start_offsets import StartOffsets
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
from headrace.serving.api import Api, Call, Parked
from headrace.serving.rights import TOPIC, require
from headrace.storage.partition_log import PartitionLog

TO_HIGH_WATERMARK = -1


def handle(
    broker: Broker, request: DeleteRecordsRequest, call: Call
) -> DeleteRecordsResponse | Parked:
    topics, deleted, moved = [], [], []
    for topic in request.topics:
        results = []
        for part in topic.partitions:
            try:
                require(broker, call, Operation.DELETE, TOPIC, topic.name)
                found = delete_before(broker, topic.name, part.partition_index, part.offset)
                low = int(found.start_offset)
                result = DeleteRecordsPartitionResult(part.partition_index, low, ErrorCode.NONE)
                deleted.append(result)
                moved.append(found)
            except KafkaError as refusal:
                result = DeleteRecordsPartitionResult(part.partition_index, -1, refusal.code)
            results.append(result)
        topics.append(DeleteRecordsTopicResult(topic.name, results))
    response = DeleteRecordsResponse(0, topics)
    if not broker.durable or not deleted:
        return response
    number = broker.start_offsets.ask(moved)
    deadline_ms = call.now.monotonic_ms + request.timeout_ms
    return _when_written(broker.start_offsets, number, response, deleted, deadline_ms)


def _when_written(
    starts: StartOffsets,
    number: int,
    response: DeleteRecordsResponse,
    deleted: list[DeleteRecordsPartitionResult],
    deadline_ms: int,
) -> Parked:
    """The records are gone for readers; an error says that a power cut may bring them back."""

    def attempt(expired: bool) -> DeleteRecordsResponse | None:
        if starts.written < number:
            if not expired:
                return None
            _refuse(deleted, ErrorCode.REQUEST_TIMED_OUT)
        elif starts.refused >= number:
            _refuse(deleted, ErrorCode.KAFKA_STORAGE_ERROR)
        return response

    return Parked(attempt, deadline_ms=deadline_ms, hangs_on=[starts])


def _refuse(deleted: list[DeleteRecordsPartitionResult], code: ErrorCode) -> None:
    for result in deleted:
        result.low_watermark, result.error_code = -1, code


def delete_before(broker: Broker, name: str, index: int, offset: int) -> PartitionLog:
    """The log, which begins there now."""
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
    return leader.log


API = Api(messages=messages, handle=handle, versions=range(0, 3))
