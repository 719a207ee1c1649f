"""OffsetForLeaderEpoch, v2-4: where an epoch ended, so that a reader can find where logs part.

v3 replica id (-2: not a replica). v4 flexible. KIP-320. Needs CLUSTER_ACTION, as brokers have, or
DESCRIBE on each topic, as consumers have.
"""

from __future__ import annotations

from collections.abc import Generator

from headrace.node.broker.broker import Broker
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import TOPIC, may, may_on_cluster, refusal
from headrace.node.steps import at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import offset_for_leader_epoch as messages
from headrace.wire.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


def handle(
    broker: Broker, request: OffsetForLeaderEpochRequest, call: Call
) -> OffsetForLeaderEpochResponse:
    return at_once(handle_large(broker, request, call))


def handle_large(
    broker: Broker, request: OffsetForLeaderEpochRequest, call: Call
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    topics = []
    trusted = may_on_cluster(broker, call, Operation.CLUSTER_ACTION, quietly=True)
    for topic in request.topics:
        yield
        answers = []
        allowed = trusted or may(broker, call, Operation.DESCRIBE, TOPIC, topic.topic)
        for part in topic.partitions:
            yield
            try:
                if not allowed:
                    raise refusal(TOPIC)
                leader = broker.topics.leader(topic.topic, part.partition)
                leader.require_epoch(part.current_leader_epoch)
                epoch, end_offset = leader.log.offset_for_epoch(part.leader_epoch)
            except KafkaError as fault:
                answers.append(EpochEndOffset(fault.code, part.partition))
                continue
            answers.append(EpochEndOffset(ErrorCode.NONE, part.partition, epoch, end_offset))
        topics.append(OffsetForLeaderTopicResult(topic.topic, answers))
    return OffsetForLeaderEpochResponse(0, topics)


API = Api(messages=messages, handle=handle, versions=range(2, 5), handle_large=handle_large)
