"""FindCoordinator, v0-6: which broker keeps a group (type 0) or a transactional id (type 1).

From v6 on also the state of a share partition (type 2, a key "group:topic id:partition"); only
brokers ask for that, so it needs CLUSTER_ACTION on the cluster.

The first request creates the coordinator's topic. All requests that come meanwhile wait until it
exists: not every client asks again often enough (librdkafka's admin client: twice). v1 types,
messages. v3 flexible. v4 many keys (KIP-699). v5, v6 new errors. Needs DESCRIBE on each group or
transactional id.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from headrace.node.broker.broker import Broker
from headrace.node.broker.cluster.brokers_at_hand import endpoint_of
from headrace.node.broker.coordinators.coordinators import Coordinator as CoordinatorOfTopic
from headrace.node.broker.coordinators.groups import GROUP_KEY
from headrace.node.broker.coordinators.share_states import SHARE_KEY
from headrace.node.broker.coordinators.transactions import TRANSACTION_KEY
from headrace.node.coordination.share.state_key import is_valid_text
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import (
    CLUSTER,
    GROUP,
    TRANSACTIONAL_ID,
    may,
    may_on_cluster,
    refusal,
)
from headrace.node.steps import Steps, at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.java_hash import partition_for_group
from headrace.wire.protocol.messages import find_coordinator as messages
from headrace.wire.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIRST_VERSION_WITH_MANY = 4
FIRST_VERSION_WITH_SHARE = 6
NO_SUCH_TYPE = "there is no coordinator of this type"
NO_SUCH_KEY = "the key of a share partition is group:topic id:partition"
NO_TYPE = -1  # INVALID_REQUEST, as of any type that does not exist
LONGEST_WAIT_MS = 5_000  # for the files of the coordinator's topic
RESOURCE_OF = {GROUP_KEY: GROUP, TRANSACTION_KEY: TRANSACTIONAL_ID}


def handle(
    broker: Broker, request: FindCoordinatorRequest, call: Call
) -> FindCoordinatorResponse | WaitingRequest:
    broker.require_current_image()
    many = call.version >= FIRST_VERSION_WITH_MANY
    if request.key_type == SHARE_KEY and call.version < FIRST_VERSION_WITH_SHARE:
        request.key_type = NO_TYPE
    keys = request.coordinator_keys if many else [request.key]

    def answer() -> FindCoordinatorResponse:
        found = at_once(find_all(broker, request, call, keys))
        return FindCoordinatorResponse(coordinators=found) if many else only(found[0])

    if lacks_topic(broker, request) and at_once(may_ask_one(broker, request, call, keys)):
        return with_topic(broker, request, call, answer)
    if lacks_files(broker, request):
        return with_files(broker, request, call, answer)
    return answer()


def handle_large(broker: Broker, request: FindCoordinatorRequest, call: Call) -> Steps:
    """Answers many keys in steps, also if the coordinator's topic has to be created first."""
    if call.version < FIRST_VERSION_WITH_MANY:
        return handle(broker, request, call)
    broker.require_current_image()
    keys = request.coordinator_keys

    def answer() -> Steps:
        found = yield from find_all(broker, request, call, keys)
        return FindCoordinatorResponse(coordinators=found)

    if lacks_topic(broker, request):
        may_make = yield from may_ask_one(broker, request, call, keys)
        if may_make:
            return with_topic(broker, request, call, answer)
    if lacks_files(broker, request):
        return with_files(broker, request, call, answer)
    return (yield from answer())


def lacks_topic(broker: Broker, request: FindCoordinatorRequest) -> bool:
    coordinator = broker.coordinators.get(request.key_type)
    return coordinator is not None and coordinator.topic not in broker.image.topics


def lacks_files(broker: Broker, request: FindCoordinatorRequest) -> bool:
    """Returns whether the topic is committed while its files here are still being created."""
    coordinator = broker.coordinators.get(request.key_type)
    if coordinator is None or coordinator.partitions:
        return False
    topic = broker.image.topics.get(coordinator.topic)
    return topic is not None and any(each.leader == broker.node_id for each in topic.partitions)


def may_ask_one(
    broker: Broker, request: FindCoordinatorRequest, call: Call, keys: list[str]
) -> Generator[None, None, bool]:
    """A client that lacks the right to all keys creates no topic."""
    for key in keys:
        yield
        if may_ask(broker, request.key_type, key, call):
            return True
    return False


def with_topic(
    broker: Broker, request: FindCoordinatorRequest, call: Call, answer: Callable[[], Any]
) -> Any | WaitingRequest:
    """Returns the result of `answer` when the coordinator's topic has been created."""
    coordinator = broker.coordinators[request.key_type]
    partitions, replicas, settings = coordinator.topic_rules()
    # A broker that is away gets its replicas when it is back, as in Apache Kafka.
    registered = len(broker.image.brokers)
    if replicas > max(registered, 1):
        coordinator.say_why_not(replicas, registered, call.now)
        return answer()
    try:
        later: Any | WaitingRequest = broker.controller.create_internal_topic(
            coordinator.topic, partitions, replicas, settings, answer, call.now
        )
    except KafkaError:
        return answer()  # a full disk: not available yet
    return later


def with_files(
    broker: Broker, request: FindCoordinatorRequest, call: Call, answer: Callable[[], Any]
) -> WaitingRequest:
    coordinator = broker.coordinators[request.key_type]

    def attempt(expired: bool) -> Any | None:
        return answer() if expired or coordinator.partitions else None

    deadline_ms = call.now.monotonic_ms + LONGEST_WAIT_MS
    return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[coordinator])


def find_all(
    broker: Broker, request: FindCoordinatorRequest, call: Call, keys: list[str]
) -> Generator[None, None, list[Coordinator]]:
    """Looks up each key once, also if it is repeated."""
    coordinator = broker.coordinators.get(request.key_type)
    found: dict[str, Coordinator] = {}
    for key in keys:
        yield
        if key in found:
            continue
        if request.key_type == SHARE_KEY and not is_valid_text(key):
            found[key] = Coordinator(key, -1, "", -1, ErrorCode.INVALID_REQUEST, NO_SUCH_KEY)
        elif may_ask(broker, request.key_type, key, call):
            found[key] = find(broker, coordinator, key, call.session.listener)
        else:
            found[key] = refuse(key, request.key_type)
    return list(found.values())


def may_ask(broker: Broker, key_type: int, key: str, call: Call) -> bool:
    if key_type == SHARE_KEY:
        return may_on_cluster(broker, call, Operation.CLUSTER_ACTION)
    resource = RESOURCE_OF.get(key_type)
    return resource is None or may(broker, call, Operation.DESCRIBE, resource, key)


def refuse(key: str, key_type: int) -> Coordinator:
    if key_type == SHARE_KEY:
        refused = refusal(CLUSTER, Operation.CLUSTER_ACTION)
    else:
        refused = refusal(RESOURCE_OF[key_type], Operation.DESCRIBE, key)
    return Coordinator(key, -1, "", -1, refused.code, refused.message)


def find(
    broker: Broker, coordinator: CoordinatorOfTopic | None, key: str, listener: str
) -> Coordinator:
    if coordinator is None:
        return Coordinator(key, -1, "", -1, ErrorCode.INVALID_REQUEST, NO_SUCH_TYPE)
    topic = broker.image.topics.get(coordinator.topic)
    if topic is None:
        return Coordinator(key, -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    leader = topic.partitions[partition_for_group(key, len(topic.partitions))].leader
    endpoint = endpoint_of(broker, leader, listener)
    if endpoint is None or (leader == broker.node_id and not coordinator.partitions):
        # No shards: the topic is decided, and its files are still being made. A client that was
        # sent here now would get NOT_COORDINATOR, which not every client retries.
        return Coordinator(key, -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    return Coordinator(key, leader, endpoint.host, endpoint.port, ErrorCode.NONE, "")


def only(found: Coordinator) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or "NONE",  # Apache's text up to version 3
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


API = Api(messages=messages, handle=handle, versions=range(0, 7), handle_large=handle_large)
