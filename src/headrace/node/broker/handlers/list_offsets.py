"""ListOffsets, v1-11: the first, last, or first-after-a-time offset of partitions.

Special times: -1 the end that readers see, -2 the start, -3 the record with the largest timestamp
(v7, KIP-734), -4 the start of the local log (v8), -5 the end of tiered storage (v9) and -6 what is
on its way there (v11): there is none, so no offset. v2 isolation level. v4 leader epoch. v6
flexible. v10 timeout. Needs DESCRIBE on each topic. A follower (CLUSTER_ACTION) gets the log end
offset; a client of a new leader that does not know the high watermark yet gets
OFFSET_NOT_AVAILABLE. Not done: tiered storage.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator

from headrace.node.broker.broker import Broker
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import TOPIC, may, may_on_cluster, refusal
from headrace.node.steps import at_once
from headrace.node.storage.segments.time_search import Budget
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from headrace.wire.protocol.messages import list_offsets as messages
from headrace.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

logger = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
READ_COMMITTED = 1
ALLOWED_FROM_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

Found = tuple[int, int, int]  # timestamp, offset, leader epoch
NOTHING: Found = (-1, -1, -1)


def handle(broker: Broker, request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    return at_once(handle_large(broker, request, call))


def handle_large(
    broker: Broker, request: ListOffsetsRequest, call: Call
) -> Generator[None, None, ListOffsetsResponse]:
    committed = request.isolation_level == READ_COMMITTED
    follows = request.replica_id >= 0 and may_on_cluster(broker, call, Operation.CLUSTER_ACTION)
    topics: list[ListOffsetsTopicResponse] = []
    budget = Budget()
    # Over the whole request: a search by time may read from the disk.
    times = Counter(
        (topic.name, part.partition_index) for topic in request.topics for part in topic.partitions
    )
    for topic in request.topics:
        yield
        wanted = {part.partition_index: part for part in topic.partitions}
        answers = []
        allowed = follows or may(broker, call, Operation.DESCRIBE, TOPIC, topic.name)
        for index, part in wanted.items():
            yield
            try:
                if not allowed:
                    raise refusal(TOPIC)
                if times[topic.name, index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                leader = broker.topics.leader(topic.name, index)
                if follows and part.timestamp == LATEST:
                    leader.require_epoch(part.current_leader_epoch)
                    found: Found = -1, leader.log.end_offset, leader.epoch
                else:
                    found = find(leader, part, budget, committed=committed, version=call.version)
            except KafkaError as fault:
                answers.append(ListOffsetsPartitionResponse(index, fault.code))
                continue
            answers.append(ListOffsetsPartitionResponse(index, ErrorCode.NONE, *found))
        topics.append(ListOffsetsTopicResponse(topic.name, answers))
    return ListOffsetsResponse(0, topics)


def find(
    leader: PartitionLeader,
    part: ListOffsetsPartition,
    budget: Budget,
    *,
    committed: bool,
    version: int,
) -> Found:
    time = part.timestamp
    if time < EARLIEST_PENDING_UPLOAD or version < ALLOWED_FROM_VERSION.get(time, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    leader.require_epoch(part.current_leader_epoch)
    log = leader.log
    log.write_pending()  # an offset in an answer must not be lost by a full disk
    if time == LATEST:
        return -1, leader.latest_offset(committed=committed), leader.epoch
    if time in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.start_offset, log.epochs.epoch_of(log.start_offset)
    if time in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    try:
        latest = time == MAX_TIMESTAMP
        found = log.offset_of_max_timestamp(budget) if latest else log.offset_for_time(time, budget)
    except MalformedMessage as damage:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
    except OSError as problem:  # the error of this partition; the others are answered
        logger.error("%s: a search by time failed: %s", log.folder, problem)
        log.unwritten.on_problem(log.folder, problem)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem)) from problem
    if found is None or found[1] >= leader.latest_offset(committed=committed):
        return NOTHING
    timestamp, offset, epoch = found
    return timestamp, offset, epoch


API = Api(messages=messages, handle=handle, versions=range(1, 12), handle_large=handle_large)
