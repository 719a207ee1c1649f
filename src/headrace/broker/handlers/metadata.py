"""Metadata, v0-13: which brokers there are, and who leads what.

A null list asks for all topics (in v0 an empty one), an empty list for none. Unknown names are
created if both the client and `auto.create.topics.enable` allow it.
v1 racks, controller. v4 allow_auto_topic_creation. v5 offline replicas. v7 leader epoch. v8
authorized operations. v9 flexible. v10 topic ids. v12 ids without names. v13 top-level error.
Not done: an authorizer; everybody may do everything.
"""

from __future__ import annotations

from headrace.broker.authorized_operations import NOT_ASKED_FOR, ON_A_TOPIC, ON_THE_CLUSTER
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
# These versions carry topic ids that may not be used yet; Apache Kafka refuses them whole.
ONLY_NAMES_DESPITE_IDS = (10, 11)


def handle(broker: Broker, request: MetadataRequest, call: Call) -> MetadataResponse | Parked:
    wanted, version, listener = request.topics, call.version, call.session.listener
    if wanted and version in ONLY_NAMES_DESPITE_IDS and any(map(names_an_id, wanted)):
        return refuse(wanted)
    operations = ON_A_TOPIC if request.include_topic_authorized_operations else NOT_ASKED_FOR
    on_cluster = ON_THE_CLUSTER if request.include_cluster_authorized_operations else NOT_ASKED_FOR

    def answer() -> MetadataResponse:
        if wanted is None or (not wanted and version == 0):
            topics = [describe(broker, topic, operations) for topic in broker.image.topics.values()]
        else:
            described = [describe_wanted(broker, topic, operations) for topic in wanted]
            topics = list({(topic.name, topic.topic_id): topic for topic in described}.values())
        response = respond(broker, listener, topics)
        response.cluster_authorized_operations = on_cluster
        return response

    missing = missing_topics(broker, request)
    if missing:
        # The answer waits until they are there, so that nobody has to ask twice.
        later: MetadataResponse | Parked = broker.controller.create_topics(
            missing, answer, call.now
        )
        return later
    return answer()


def names_an_id(wanted: MetadataRequestTopic) -> bool:
    return wanted.name is None or wanted.topic_id != ZERO_ID


def refuse(wanted: list[MetadataRequestTopic]) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id)
        for topic in wanted
    ]
    return MetadataResponse(topics=topics)


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
    broker: Broker, wanted: MetadataRequestTopic, operations: int
) -> MetadataResponseTopic:
    if names_an_id(wanted):
        found = broker.image.topics_by_id.get(wanted.topic_id)
        code = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        assert wanted.name is not None
        found = broker.image.topics.get(wanted.name)
        legal = is_legal(wanted.name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    if found is not None:
        return describe(broker, found, operations)
    unknown = MetadataResponseTopic(code, wanted.name, wanted.topic_id)
    unknown.topic_authorized_operations = operations
    return unknown


def describe(broker: Broker, topic: TopicImage, operations: int) -> MetadataResponseTopic:
    """Made once per image: clients ask again and again for what rarely changes."""
    key = (topic.name, operations)
    described = broker.described.get(key)
    if described is None:
        described = broker.described[key] = MetadataResponseTopic(
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
            operations,
        )
    return described


API = Api(messages=messages, handle=handle, versions=range(0, 14))
