"""Metadata, v0-13: the brokers, and the leader of each partition.

A null list asks for all topics (in v0 an empty one), an empty list for none. Unknown names are
created if both the client and `auto.create.topics.enable` allow it.
v1 racks, controller. v4 allow_auto_topic_creation. v5 offline replicas. v7 leader epoch. v8
authorized operations. v9 flexible. v10 topic ids. v12 ids without names. v13 top-level error.
Topics without DESCRIBE are left out of all topics; a request for one by its name is refused whether
or not it exists, and a request by id does not get the name. To create one by asking needs CREATE on
it or on the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

from headrace.node.broker.authorized_operations import NOT_ASKED_FOR, on_cluster, on_topic
from headrace.node.broker.broker import Broker
from headrace.node.broker.cluster.brokers_at_hand import BrokersAtHand, brokers_at_hand
from headrace.node.broker.topic_auto_creation import is_legal, missing_topics
from headrace.node.metadata.image import PartitionImage, TopicImage
from headrace.node.metadata.topic_names import INTERNAL_TOPICS
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import TOPIC, may, may_on_cluster
from headrace.node.steps import Steps, at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import load_sliced
from headrace.wire.protocol.messages import metadata as messages
from headrace.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.protocol.primitives import ZERO_ID

NONE = ErrorCode.NONE
# An answer that is encoded once for all clients begins with the throttle time.
FIRST_WITH_THROTTLE_TIME = 3
# Before this version, a leader that lacks the client's listener was reported as missing.
FIRST_THAT_TELLS_LISTENERS_APART = 6
# These versions carry topic ids that may not be used yet; Apache Kafka refuses them whole.
ONLY_NAMES_DESPITE_IDS = (10, 11)
# Up to so many partitions are described in one turn: 2,000 take about 10 ms.
MANY_PARTITIONS = 2_000


def handle(
    broker: Broker, request: MetadataRequest, call: Call
) -> MetadataResponse | bytes | WaitingRequest | Steps:
    broker.require_current_image()
    version, listener = call.version, call.session.listener
    if is_everybodys(broker, request, version):
        known = broker.encoded_metadata.get((version, listener))
        return known or in_a_turn_or_more(broker, everything, version, listener)
    if request.topics is None or (not request.topics and version == 0):
        return in_a_turn_or_more(broker, visible, request, call)
    if len(request.topics) > 1:
        request.topics = at_once(each_once(request.topics))
    wanted = request.topics
    if wanted and version in ONLY_NAMES_DESPITE_IDS and any(map(names_an_id, wanted)):
        return refuse(wanted)
    operations = request.include_topic_authorized_operations
    refused: set[str] = set()
    if broker.authorizer is not None:
        refused = at_once(refused_topics(broker, request, call))

    def answer() -> MetadataResponse:
        steps = describe_all(broker, wanted, call, refused, operations=operations)
        topics = at_once(steps)
        response = respond(broker, listener, topics)
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = on_cluster(broker, call)
        return response

    missing = [name for name in at_once(missing_topics(broker, request)) if name not in refused]
    if missing:
        # The answer waits until the topics exist, so that clients need not ask twice.
        try:
            later: MetadataResponse | WaitingRequest = broker.controller.create_topics(
                missing, answer, call.now
            )
        except KafkaError:
            return answer()  # a full disk: they do not exist yet, the others do
        return later
    return answer()


def handle_large(broker: Broker, request: MetadataRequest, call: Call) -> Steps:
    """Answers a request with many names; topics that have to be created are described
    afterwards."""
    broker.require_current_image()
    wanted = yield from each_once(request.topics or ())
    by_id = call.version in ONLY_NAMES_DESPITE_IDS and any(map(names_an_id, wanted))
    if by_id or not wanted:
        return handle(broker, request, call)
    operations = request.include_topic_authorized_operations
    request.topics = wanted
    refused: set[str] = set()
    if broker.authorizer is not None:
        refused = yield from refused_topics(broker, request, call)

    def answer() -> Steps:
        steps = describe_all(broker, wanted, call, refused, operations=operations)
        topics = yield from steps
        response = respond(broker, call.session.listener, topics)
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = on_cluster(broker, call)
        return response

    missing = yield from missing_topics(broker, request)
    missing = [name for name in missing if name not in refused]
    if missing:
        try:
            made = yield from broker.controller.create_topics_in_slices(missing, answer, call.now)
        except KafkaError:
            pass  # a full disk, or more than one request may create: the others are answered
        else:
            return made if type(made) is WaitingRequest else (yield from made)
    return (yield from answer())


def each_once(
    topics: Iterable[MetadataRequestTopic],
) -> Generator[None, None, list[MetadataRequestTopic]]:
    """Looks for a repeated topic only once."""
    named = {}
    for topic in topics:
        yield
        named[topic.name, topic.topic_id] = topic
    return list(named.values())


def describe_all(
    broker: Broker,
    wanted: list[MetadataRequestTopic],
    call: Call,
    refused: set[str],
    *,
    operations: bool,
) -> Generator[None, None, list[MetadataResponseTopic]]:
    """Describes each topic once, also if it was named by its name and by its id."""
    described = {}
    for topic in wanted:
        yield
        found = describe_wanted(broker, topic, call, refused, operations=operations)
        described[found.name, found.topic_id] = found
    return list(described.values())


def is_everybodys(broker: Broker, request: MetadataRequest, version: int) -> bool:
    """Returns whether the request asks for all topics and every client gets the same answer."""
    return (
        request.topics is None
        and version >= FIRST_WITH_THROTTLE_TIME
        and broker.authorizer is None
        and not request.include_topic_authorized_operations
        and not request.include_cluster_authorized_operations
    )


def in_a_turn_or_more(
    broker: Broker, answer: Callable[..., Steps], *arguments: Any
) -> MetadataResponse | bytes | Steps:
    """Returns the answer, or its steps if it describes very many partitions."""
    steps = answer(broker, *arguments)
    if are_many(broker):
        return steps
    told: MetadataResponse | bytes = at_once(steps)
    return told


def are_many(broker: Broker) -> bool:
    topics = broker.image.topics.values()
    return sum(len(topic.partitions) for topic in topics) > MANY_PARTITIONS


def everything(broker: Broker, version: int, listener: str) -> Steps:
    """Encoded once per image: clients with a pattern ask for it again and again."""
    image, known = broker.image, broker.encoded_metadata  # the broker gets another with each image
    topics = []
    for topic in image.topics.values():
        topics.append(describe(broker, topic, None, version, listener))
        yield
    pieces: list[Any] = []
    response = respond(broker, listener, topics)
    if are_many(broker):
        yield from load_sliced("metadata").ENCODE_RESPONSE[version](response, pieces.append)
    else:
        messages.ENCODE_RESPONSE[version](response, pieces.append)
    encoded = known[version, listener] = b"".join(pieces)
    return encoded


def visible(broker: Broker, request: MetadataRequest, call: Call) -> Steps:
    """Describes all topics that this client may see."""
    topics = []
    for topic in broker.image.topics.values():
        if may(broker, call, Operation.DESCRIBE, TOPIC, topic.name, quietly=True):
            asked = request.include_topic_authorized_operations
            rights = on_topic(broker, call, topic.name) if asked else None
            topics.append(describe(broker, topic, rights, call.version, call.session.listener))
        yield
    response = respond(broker, call.session.listener, topics)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = on_cluster(broker, call)
    return response


def throttled(encoded: bytes, version: int, wait_ms: int) -> bytes:
    return wait_ms.to_bytes(4, "big") + encoded[4:]


def refused_topics(
    broker: Broker, request: MetadataRequest, call: Call
) -> Generator[None, None, set[str]]:
    """Returns the names that the client may not see, and those that it may not create."""
    creates = request.allow_auto_topic_creation and broker.values["auto.create.topics.enable"]
    if creates:
        creates = not may_on_cluster(broker, call, Operation.CREATE, quietly=True)
    refused: set[str] = set()
    for one in request.topics or ():
        yield
        known = broker.image.topics_by_id.get(one.topic_id) if names_an_id(one) else None
        name = one.name if known is None else known.name
        if name is None or name in refused:
            continue
        is_new = creates and name not in broker.image.topics
        if not may(broker, call, Operation.DESCRIBE, TOPIC, name) or (
            is_new and not may(broker, call, Operation.CREATE, TOPIC, name)
        ):
            refused.add(name)
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
        # Named by name or by id, as in the request: the other one is not shown to this client.
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
    """Descriptions are cached per topic and set of brokers: clients ask often for what rarely
    changes. An answer in slices may have a topic of an earlier image, so the topic is compared."""
    operations = NOT_ASKED_FOR if rights is None else rights
    apart = version >= FIRST_THAT_TELLS_LISTENERS_APART
    key = (topic.name, operations, listener, apart)
    known, described = broker.described.get(key, (None, None))
    if known is not topic or described is None:
        at_hand = brokers_at_hand(broker, listener)
        described = MetadataResponseTopic(
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
        broker.described[key] = topic, described
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
