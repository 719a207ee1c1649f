"""Metadata, v0-13: which brokers there are, and who leads what.

A null list asks for all topics (in v0 an empty one), an empty list for none. Unknown names are
created if both the client and `auto.create.topics.enable` allow it.
v1 racks, controller. v4 allow_auto_topic_creation. v5 offline replicas. v7 leader epoch. v8
authorized operations. v9 flexible. v10 topic ids. v12 ids without names. v13 top-level error.
Not done: authorized operations (no authorizer yet).
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.broker.topic_auto_creation import is_legal, missing_topics
from headrace.metadata.image import TopicImage
from headrace.metadata.topic_names import INTERNAL_TOPICS
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import metadata as messages
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.protocol.primitives import ZERO_ID
from headrace.serving.api import Api, Call, Parked

NONE = ErrorCode.NONE


def handle(broker: Broker, request: MetadataRequest, call: Call) -> MetadataResponse | Parked:
    wanted, version, listener = request.topics, call.version, call.session.listener

    def answer() -> MetadataResponse:
        if wanted is None or (not wanted and version == 0):
            topics = [describe(broker, topic) for topic in broker.image.topics.values()]
        else:
            topics = [describe_wanted(broker, topic, version) for topic in wanted]
        return respond(broker, listener, topics)

    missing = missing_topics(broker, request)
    if missing:
        # The answer waits until they are there, so that nobody has to ask twice.
        later: MetadataResponse | Parked = broker.controller.create_topics(
            missing, answer, call.now
        )
        return later
    return answer()


def respond(broker: Broker, listener: str, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    endpoint = broker.endpoints[listener]
    return MetadataResponse(
        0,
        [
            MetadataResponseBroker(node_id, endpoint.host, endpoint.port, found.rack)
            for node_id, found in broker.image.brokers.items()
        ],
        broker.image.cluster_id,
        broker.node_id,
        topics,
    )


def describe_wanted(
    broker: Broker, wanted: MetadataRequestTopic, version: int
) -> MetadataResponseTopic:
    if wanted.name is None or (version >= 10 and wanted.topic_id != ZERO_ID):
        found = broker.image.topics_by_id.get(wanted.topic_id)
        if found is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
        return describe(broker, found)
    found = broker.image.topics.get(wanted.name)
    if found is None:
        legal = is_legal(wanted.name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        return MetadataResponseTopic(code, wanted.name, ZERO_ID)
    return describe(broker, found)


def describe(broker: Broker, topic: TopicImage) -> MetadataResponseTopic:
    """Made once per image: clients ask again and again for what rarely changes."""
    described = broker.described.get(topic.name)
    if described is None:
        described = broker.described[topic.name] = MetadataResponseTopic(
            NONE,
            topic.name,
            topic.id,
            topic.name in INTERNAL_TOPICS,
            [
                MetadataResponsePartition(
                    NONE,
                    index,
                    partition.leader,
                    partition.leader_epoch,
                    list(partition.replicas),
                    list(partition.isr),
                )
                for index, partition in enumerate(topic.partitions)
            ],
        )
    return described


API = Api(messages=messages, handle=handle, versions=range(0, 14))
