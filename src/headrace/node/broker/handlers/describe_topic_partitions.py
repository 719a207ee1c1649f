"""DescribeTopicPartitions, v0: topics and partitions in pages (KIP-966).

Topics come sorted by name; an empty list asks for all. At most `response_partition_limit`
partitions a page (2,000 at most); the cursor says where the next page begins. Topics that one may
not DESCRIBE are left out, or refused if they were named, whether or not they exist.
"""

from __future__ import annotations

from headrace.node.broker.authorized_operations import on_topic
from headrace.node.broker.broker import Broker
from headrace.node.broker.cluster.brokers_at_hand import BrokersAtHand, brokers_at_hand
from headrace.node.broker.topic_auto_creation import is_legal
from headrace.node.metadata.image import PartitionImage
from headrace.node.metadata.topic_names import INTERNAL_TOPICS
from headrace.node.serving.api import Api, Call, require_few
from headrace.node.serving.rights import TOPIC, may
from headrace.node.steps import Steps, at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import describe_topic_partitions as messages
from headrace.wire.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from headrace.wire.protocol.primitives import ZERO_ID

MOST_PARTITIONS = 2_000  # max.request.partition.size.limit
# Topics and partitions: up to so many are answered at once; larger answers take so many of a topic
# in each step. A partition takes 6 us, and its answer half as long again.
AT_ONCE = 200


def handle(
    broker: Broker, request: DescribeTopicPartitionsRequest, call: Call
) -> DescribeTopicPartitionsResponse | Steps:
    steps = handle_large(broker, request, call)
    if is_long(broker, request):
        return steps
    response: DescribeTopicPartitionsResponse = at_once(steps)
    return response


def is_long(broker: Broker, request: DescribeTopicPartitionsRequest) -> bool:
    topics = broker.image.topics
    work = len(request.topics) or len(topics)
    for name in [topic.name for topic in request.topics] or topics:
        if work > AT_ONCE:
            break
        found = topics.get(name)
        work += 0 if found is None else min(len(found.partitions), request.response_partition_limit)
    return work > AT_ONCE


def handle_large(broker: Broker, request: DescribeTopicPartitionsRequest, call: Call) -> Steps:
    broker.require_current_image()
    require_few(messages.NAME, len(request.topics), "topics")
    asked = {topic.name for topic in request.topics}
    first_topic, first_partition = "", 0
    if request.cursor is not None:
        first_topic, first_partition = request.cursor.topic_name, request.cursor.partition_index
        if first_partition < 0 or (asked and first_topic not in asked):
            return refuse(ErrorCode.INVALID_REQUEST, sorted(asked))
    everything = [name for name in sorted(asked or broker.image.topics) if name >= first_topic]
    names = []
    for name in everything:
        if may(broker, call, Operation.DESCRIBE, TOPIC, name, quietly=not asked):
            names.append(name)
        yield
    response = yield from describe_page(broker, call, request, names, first_topic, first_partition)
    if asked and len(names) < len(everything):
        hidden = sorted({*everything} - {*names})
        response.topics += refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, hidden).topics
    return response


def describe_page(
    broker: Broker,
    call: Call,
    request: DescribeTopicPartitionsRequest,
    names: list[str],
    first_topic: str,
    first_partition: int,
) -> Steps:
    left = max(1, min(request.response_partition_limit, MOST_PARTITIONS))
    response = DescribeTopicPartitionsResponse()
    for number, name in enumerate(names):
        yield
        start = first_partition if name == first_topic else 0
        topic = yield from describe(broker, call, name, start, left)
        topic.topic_authorized_operations = on_topic(broker, call, name)
        response.topics.append(topic)
        left -= len(topic.partitions)
        end = start + len(topic.partitions)
        found = broker.image.topics.get(name)
        if found is not None and end < len(found.partitions):
            response.next_cursor = Cursor(name, end)
            break
        if left <= 0 and number + 1 < len(names):
            response.next_cursor = Cursor(names[number + 1], 0)
            break
    return response


def refuse(code: ErrorCode, names: list[str]) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(code, name, ZERO_ID) for name in names]
    )


def describe(broker: Broker, call: Call, name: str, start: int, limit: int) -> Steps:
    """Describes a topic as a DescribeTopicPartitionsResponseTopic."""
    found = broker.image.topics.get(name)
    if found is None:
        legal = is_legal(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        return DescribeTopicPartitionsResponseTopic(code, name, ZERO_ID)
    at_hand = brokers_at_hand(broker, call.session.listener)
    end = min(start + limit, len(found.partitions))
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    for first in range(start, end, AT_ONCE):
        yield
        partitions += [
            describe_partition(at_hand, index, found.partitions[index])
            for index in range(first, min(first + AT_ONCE, end))
        ]
    return DescribeTopicPartitionsResponseTopic(
        ErrorCode.NONE, name, found.id, name in INTERNAL_TOPICS, partitions
    )


def describe_partition(
    at_hand: BrokersAtHand, index: int, partition: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    code, leader = at_hand.leader_of(partition, tells_listeners_apart=True)
    return DescribeTopicPartitionsResponsePartition(
        code,
        index,
        leader,
        partition.leader_epoch,
        list(partition.replicas),
        list(partition.isr),
        list(partition.eligible_leader_replicas),
        list(partition.last_known_elr),
        at_hand.offline(partition),
    )


API = Api(messages=messages, handle=handle, versions=range(0, 1), handle_large=handle_large)
