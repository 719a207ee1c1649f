"""DeleteRecords, v0-2: everything before an offset is gone for readers at once.

Offset -1 means the high watermark. Files are removed when a whole segment is before the new start.
With durability `disk` the answer waits until the new start is on the disk; else a power cut within
`log.flush.offset.checkpoint.interval.ms` may bring records back, as in Apache Kafka. The answer
waits until every replica on a live broker begins at the offset too; followers learn it with their
next fetch. v1 is the same. v2 flexible. Needs DELETE on each topic.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from headrace.node.broker.broker import Broker
from headrace.node.broker.replicas.start_offsets import StartOffsets
from headrace.node.metadata.topic_names import INTERNAL_TOPICS
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import TOPIC, require
from headrace.node.steps import Steps, at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import delete_records as messages
from headrace.wire.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

TO_HIGH_WATERMARK = -1


class Deletion(NamedTuple):
    """One partition's part of a request that was granted."""

    leader: PartitionLeader
    offset: int  # records before it are deleted, on every replica
    result: DeleteRecordsPartitionResult


def handle(
    broker: Broker, request: DeleteRecordsRequest, call: Call
) -> DeleteRecordsResponse | WaitingRequest:
    deletions: list[Deletion] = []
    topics = at_once(delete_all(broker, request, call, deletions))
    return answer(broker, request, call, topics, deletions)


def handle_large(broker: Broker, request: DeleteRecordsRequest, call: Call) -> Steps:
    """Partitions are independent of one another: other requests run between two of them."""
    deletions: list[Deletion] = []
    topics = yield from delete_all(broker, request, call, deletions)
    return answer(broker, request, call, topics, deletions)


def delete_all(
    broker: Broker, request: DeleteRecordsRequest, call: Call, deletions: list[Deletion]
) -> Generator[None, None, list[DeleteRecordsTopicResult]]:
    topics = []
    for topic in request.topics:
        yield
        results = []
        for part in topic.partitions:
            yield
            index = part.partition_index
            try:
                require(broker, call, Operation.DELETE, TOPIC, topic.name)
                leader, offset = delete_before(broker, topic.name, index, part.offset)
                low = int(leader.log.start_offset)
                result = DeleteRecordsPartitionResult(index, low, ErrorCode.NONE)
                deletions.append(Deletion(leader, offset, result))
            except KafkaError as refusal:
                result = DeleteRecordsPartitionResult(index, -1, refusal.code)
            results.append(result)
        topics.append(DeleteRecordsTopicResult(topic.name, results))
    return topics


def answer(
    broker: Broker,
    request: DeleteRecordsRequest,
    call: Call,
    topics: list[DeleteRecordsTopicResult],
    deletions: list[Deletion],
) -> DeleteRecordsResponse | WaitingRequest:
    """Returns the answer, now or when the records are gone from every replica and the new start
    offsets are on disk."""
    response = DeleteRecordsResponse(0, topics)
    shared = [each for each in deletions if each.leader.leading is not None]
    if not deletions or not (broker.durable or shared):
        return response
    number = 0
    if broker.durable:
        number = broker.start_offsets.ask([each.leader.log for each in deletions])
    deadline_ms = call.now.monotonic_ms + request.timeout_ms
    waiting = _when_done(broker.start_offsets, number, response, deletions, deadline_ms)
    # All logs may begin there already: then no event would wake the request.
    answer = waiting.attempt(False)
    return waiting if answer is None else answer


def _when_done(
    starts: StartOffsets,
    number: int,
    response: DeleteRecordsResponse,
    deletions: list[Deletion],
    deadline_ms: int,
) -> WaitingRequest:
    """The records are gone for readers of this broker. An error means that other brokers may still
    serve them, or that a power cut may bring them back."""

    def attempt(expired: bool) -> DeleteRecordsResponse | None:
        late = starts.written < number
        if not expired and (late or any(_is_open(each) for each in deletions)):
            return None
        for deletion in deletions:
            code = ErrorCode.NONE
            if not deletion.leader.leads:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif late or _is_open(deletion):
                code = ErrorCode.REQUEST_TIMED_OUT
            elif number and starts.refused >= number:
                code = ErrorCode.KAFKA_STORAGE_ERROR
            if code != ErrorCode.NONE:
                deletion.result.low_watermark, deletion.result.error_code = -1, code
            elif deletion.leader.leading is not None:
                deletion.result.low_watermark = deletion.leader.low_watermark()
        return response

    leaders = [deletion.leader for deletion in deletions]
    return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[starts, *leaders])


def _is_open(deletion: Deletion) -> bool:
    """Returns whether a replica still has records that are to be deleted."""
    leader = deletion.leader
    return leader.leads and leader.low_watermark() < deletion.offset


def delete_before(
    broker: Broker, name: str, index: int, offset: int
) -> tuple[PartitionLeader, int]:
    """Returns the leader, whose log begins there now, and the offset."""
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
    return leader, target


API = Api(messages=messages, handle=handle, versions=range(0, 3), handle_large=handle_large)
