"""OffsetForLeaderEpoch, v2-4: where an epoch ended, so that a reader can find where logs part.

v3 replica id (-2: not a replica). v4 flexible. KIP-320.
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.messages import offset_for_leader_epoch as messages
from headrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from headrace.serving.api import Api, Call


def handle(
    broker: Broker, request: OffsetForLeaderEpochRequest, call: Call
) -> OffsetForLeaderEpochResponse:
    topics = []
    for topic in request.topics:
        answers = []
        for part in topic.partitions:
            try:
                leader = broker.topics.leader(topic.topic, part.partition)
                leader.require_epoch(part.current_leader_epoch)
                epoch, end_offset = leader.log.offset_for_epoch(part.leader_epoch)
            except KafkaError as refusal:
                answers.append(EpochEndOffset(refusal.code, part.partition))
                continue
            answers.append(EpochEndOffset(ErrorCode.NONE, part.partition, epoch, end_offset))
        topics.append(OffsetForLeaderTopicResult(topic.topic, answers))
    return OffsetForLeaderEpochResponse(0, topics)


API = Api(messages=messages, handle=handle, versions=range(2, 5))
