"""Metadata, v0-13: which brokers there are, and who leads what.

A null list asks for all topics (in v0 an empty one), an empty list for none. Unknown names are
created if both the client and `auto.create.topics.enable` allow it.
v1 racks, controller. v4 allow_auto_topic_creation. v5 offline replicas. v7 leader epoch. v8
authorized operations. v9 flexible. v10 topic ids. v12 ids without names. v13 top-level error.
Topics that one may not DESCRIBE are left out of all topics; who asks for one by its name is refused
whether or not it exists, and who asks by its id is not told the name. To create one by asking needs
CREATE on it or on the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.broker.authorized_operations import NOT_ASKED_FOR, on_cluster, on_topic
from headrace.broker.broker import Broker
from headrace.broker.brokers_at_hand import BrokersAtHand, brokers_at_hand
from headrace.broker.topic_auto_creation import is_legal, missing_topics
from headrace.metadata.image import PartitionImage, TopicImage
from headrace.metadata.topic_names import INTERNAL_TOPICS
from headrace.protocol.acls import Operation
from headrace.protocol.errors import ErrorCode, KafkaError
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
from headrace.protocol.steps import Steps, in_steps
from headrace.serving.api import Api, Call, Parked
from headrace.serving.rights import TOPIC, may, may_on_cluster

NONE = ErrorCode.NONE
# An answer that is encoded once for everybody begins with it.
FIRST_WITH_THROTTLE_TIME = 3
# Before, a leader without the listener of the one who asks was said to be missing.
FIRST_THAT_TELLS_LISTENERS_APART = 6
# These versions carry topic ids that may not be used yet; Apache Kafka refuses them whole.
ONLY_NAMES_DESPITE_IDS = (10, 11)


def handle(
    broker: Broker, request: MetadataRequest, call: Call
) -> MetadataResponse | bytes | Parked:
    version, listener = call.version, call.session.listener
    if is_everybodys(broker, request, version):
        return everything(broker, version, listener)
    if request.topics:
        request.topics = each_once(request.topics)
    wanted = request.topics
    if wanted and version in ONLY_NAMES_DESPITE_IDS and any(map(names_an_id, wanted)):
        return refuse(wanted)
    operations = request.include_topic_authorized_operations
    refused = refused_topics(broker, request, call)

    def answer() -> MetadataResponse:
        if wanted is None or (not wanted and version == 0):
            topics = [
                describe(
                    broker,
                    topic,
                    on_topic(broker, call, topic.name) if operations else None,
                    version,
                    listener,
                )
                for topic in visible_topics(broker, call)
            ]
        else:
            topics = describe_all(broker, wanted, call, refused, operations=operations)
        response = respond(broker, listener, topics)
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = on_cluster(broker, call)
        return response

    missing = [name for name in missing_topics(broker, request) if name not in refused]
    if missing:
        # The answer waits until they are there, so that nobody has to ask twice.
        try:
            later: MetadataResponse | Parked = broker.controller.create_topics(
                missing, answer, call.now
            )
        except KafkaError:
            return answer()  # a full disk: they are not there yet, the others are
        return later
    return answer()


def handle_large(broker: Broker, request: MetadataRequest, call: Call) -> Steps:
    """Many names; those that have to be made first are described when that is done."""
    wanted = yield from in_steps(each_once)(request.topics or ())
    by_id = call.version in ONLY_NAMES_DESPITE_IDS and any(map(names_an_id, wanted))
    if by_id or not wanted or request.include_cluster_authorized_operations:
        return handle(broker, request, call)
    operations = request.include_topic_authorized_operations
    request.topics = wanted
    refused = refused_topics(broker, request, call)

    def answer() -> Steps:
        steps = in_steps(describe_all)
        topics = yield from steps(broker, wanted, call, refused, operations=operations)
        return respond(broker, call.session.listener, topics)

    missing = yield from in_steps(missing_topics)(broker, request)
    missing = [name for name in missing if name not in refused]
    if missing:
        try:
            made = yield from broker.controller.create_topics_in_slices(missing, answer, call.now)
        except KafkaError:
            pass  # a full disk, or more than one request may create: the others are answered
        else:
            return made if type(made) is Parked else (yield from made)
    return (yield from answer())


def each_once(topics: Iterable[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """A topic that is named again and again is looked for once."""
    named = {}
    for topic in topics:
        named[topic.name, topic.topic_id] = topic
    return list(named.values())


def describe_all(
    broker: Broker,
    wanted: list[MetadataRequestTopic],
    call: Call,
    refused: set[str],
    *,
    operations: bool,
) -> list[MetadataResponseTopic]:
    """Each topic once, also if it was named by its name and by its id."""
    described = {}
    for topic in wanted:
        found = describe_wanted(broker, topic, call, refused, operations=operations)
        described[found.name, found.topic_id] = found
    return list(described.values())


def is_everybodys(broker: Broker, request: MetadataRequest, version: int) -> bool:
    """All topics, and whoever asks gets the same answer."""
    return (
        request.topics is None
        and version >= FIRST_WITH_THROTTLE_TIME
        and broker.authorizer is None
        and not request.include_topic_authorized_operations
        and not request.include_cluster_authorized_operations
    )


def everything(broker: Broker, version: int, listener: str) -> bytes:
    """Encoded once per image: clients with a pattern ask for it again and again."""
    encoded = broker.encoded_metadata.get((version, listener))
    if encoded is None:
        topics = [
            describe(broker, topic, None, version, listener)
            for topic in broker.image.topics.values()
        ]
        pieces: list[Any] = []
        messages.ENCODE_RESPONSE[version](respond(broker, listener, topics), pieces.append)
        encoded = broker.encoded_metadata[version, listener] = b"".join(pieces)
    return encoded


def throttled(encoded: bytes, version: int, wait_ms: int) -> bytes:
    return wait_ms.to_bytes(4, "big") + encoded[4:]


def visible_topics(broker: Broker, call: Call) -> Iterable[TopicImage]:
    everything = broker.image.topics.values()
    if broker.authorizer is None:
        return everything
    return [
        topic
        for topic in everything
        if may(broker, call, Operation.DESCRIBE, TOPIC, topic.name, quietly=True)
    ]


def refused_topics(broker: Broker, request: MetadataRequest, call: Call) -> set[str]:
    """The names that the client may not see, or would create and may not."""
    if broker.authorizer is None:
        return set()
    asked = {one.name for one in request.topics or () if one.name is not None}
    asked |= {
        broker.image.topics_by_id[one.topic_id].name
        for one in request.topics or ()
        if names_an_id(one) and one.topic_id in broker.image.topics_by_id
    }
    refused = {name for name in asked if not may(broker, call, Operation.DESCRIBE, TOPIC, name)}
    creates = request.allow_auto_topic_creation and broker.values["auto.create.topics.enable"]
    new = asked - refused - broker.image.topics.keys()
    if creates and new and not may_on_cluster(broker, call, Operation.CREATE, quietly=True):
        refused |= {name for name in new if not may(broker, call, Operation.CREATE, TOPIC, name)}
    return refused


def names_an_id(wanted: MetadataRequestTopic) -> bool:
    return wanted.name is None or wanted.topic_id != ZERO_ID


def refuse(wanted: list[MetadataRequestTopic]) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id)
        for topic in wanted
    ]
    return MetadataResponse(topics=topics)


def respond(broker: Broker, listener: str, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    at_hand = brokers_at_hand(broker, listener)
    return MetadataResponse(
        0,
        [
            MetadataResponseBroker(each, *endpoint, broker.image.brokers[each].rack)
            for each, endpoint in at_hand.endpoints.items()
        ],
        broker.image.cluster_id,
        at_hand.controller_id,
        topics,
    )


def describe_wanted(
    broker: Broker,
    wanted: MetadataRequestTopic,
    call: Call,
    refused: set[str],
    *,
    operations: bool,
) -> MetadataResponseTopic:
    if names_an_id(wanted):
        found = broker.image.topics_by_id.get(wanted.topic_id)
        code = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        assert wanted.name is not None
        found = broker.image.topics.get(wanted.name)
        legal = is_legal(wanted.name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    name = wanted.name if found is None else found.name
    if name in refused:
        # By its name or by its id, as it was asked for: the other one is not for this client.
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if names_an_id(wanted):
            return MetadataResponseTopic(code, None, wanted.topic_id)
        return MetadataResponseTopic(code, wanted.name, ZERO_ID)
    rights = on_topic(broker, call, name or "") if operations else None
    if found is not None:
        return describe(broker, found, rights, call.version, call.session.listener)
    unknown = MetadataResponseTopic(code, wanted.name, wanted.topic_id)
    if rights is not None:
        unknown.topic_authorized_operations = rights
    return unknown


def describe(
    broker: Broker, topic: TopicImage, rights: int | None, version: int, listener: str
) -> MetadataResponseTopic:
    """Made once per image: clients ask again and again for what rarely changes."""
    operations = NOT_ASKED_FOR if rights is None else rights
    apart = version >= FIRST_THAT_TELLS_LISTENERS_APART
    key = (topic.name, operations, listener, apart)
    described = broker.described.get(key)
    if described is None:
        at_hand = brokers_at_hand(broker, listener)
        described = broker.described[key] = MetadataResponseTopic(
            NONE,
            topic.name,
            topic.id,
            topic.name in INTERNAL_TOPICS,
            [
                describe_partition(at_hand, index, partition, apart)
                for index, partition in enumerate(topic.partitions)
            ],
            operations,
        )
    return described


def describe_partition(
    at_hand: BrokersAtHand, index: int, partition: PartitionImage, apart: bool
) -> MetadataResponsePartition:
    code, leader = at_hand.leader_of(partition, tells_listeners_apart=apart)
    return MetadataResponsePartition(
        code,
        index,
        leader,
        partition.leader_epoch,
        list(partition.replicas),
        list(partition.isr),
        at_hand.offline(partition),
    )


API = Api(
    messages=messages,
    handle=handle,
    versions=range(0, 14),
    handle_large=handle_large,
    throttle_encoded=throttled,
)
