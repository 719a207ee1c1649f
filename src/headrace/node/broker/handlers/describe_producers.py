"""DescribeProducers, v0: idempotent and transactional producers that have written (KIP-664).

Needs READ on each topic.
"""

from __future__ import annotations

from collections.abc import Generator

from headrace.node.broker.broker import Broker
from headrace.node.metadata.topic_names import require_legal
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import TOPIC, require
from headrace.node.steps import at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import describe_producers as messages
from headrace.wire.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(
    broker: Broker, request: DescribeProducersRequest, call: Call
) -> DescribeProducersResponse:
    return at_once(handle_large(broker, request, call))


def handle_large(
    broker: Broker, request: DescribeProducersRequest, call: Call
) -> Generator[None, None, DescribeProducersResponse]:
    topics = []
    told: set[tuple[str, int]] = set()  # named twice, answered once: this bounds the answer
    for topic in request.topics:
        yield
        answers = []
        for index in topic.partition_indexes:
            yield
            if (topic.name, index) in told:
                continue
            told.add((topic.name, index))
            try:
                require_legal(topic.name)
                require(broker, call, Operation.READ, TOPIC, topic.name)
                leader = broker.topics.leader(topic.name, index)
                answer = PartitionResponse(index, ErrorCode.NONE, None, active_producers(leader))
            except KafkaError as refusal:
                answer = PartitionResponse(
                    index, refusal.code, refusal.message or refusal.code.description
                )
            answers.append(answer)
        topics.append(TopicResponse(topic.name, answers))
    return DescribeProducersResponse(0, topics)


def active_producers(leader: PartitionLeader) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id,
            producer.epoch,
            producer.last_sequence,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.transaction_first_offset,
        )
        for producer_id, producer in leader.log.producers.producers.items()
    ]


API = Api(messages=messages, handle=handle, versions=range(0, 1), handle_large=handle_large)
