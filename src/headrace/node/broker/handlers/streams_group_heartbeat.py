"""StreamsGroupHeartbeat, v0: join, stay in and leave a group of a streams application (KIP-1071).

The server assigns the tasks, and creates the internal topics that the topology needs: the answer
that names missing ones comes when they exist or could not be created. Needs READ on the group,
DESCRIBE on each topic of the topology, and CREATE on missing topics, or on the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.groups import ask_group
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.coordination.group.streams.internal_topics import (
    InternalTopic,
    StatusCode,
    summary,
)
from headrace.node.coordination.group.streams.streams import Beat
from headrace.node.coordination.group.streams.topology import all_names, invalid, require_small
from headrace.node.metadata.topic_names import INTERNAL_TOPICS, require_legal
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.chain import chain
from headrace.node.serving.rights import GROUP, TOPIC, may, may_on_cluster, require
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import streams_group_heartbeat as messages
from headrace.wire.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from headrace.wire.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)

MOST_REASONS_SHOWN = 3
# A heartbeat creates so many of the missing topics; the next heartbeat comes after a second.
MOST_TOPICS_AT_ONCE = 100
MOST_PARTITIONS_AT_ONCE = 2_000


def handle(
    broker: Broker, request: StreamsGroupHeartbeatRequest, call: Call
) -> StreamsGroupHeartbeatResponse | WaitingRequest:
    if not broker.streams_groups_served:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    require(broker, call, Operation.READ, GROUP, request.group_id)
    if request.topology is not None:
        require_usable(broker, request.topology, call)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")

    def finish(beat: Beat) -> StreamsGroupHeartbeatResponse | WaitingRequest:
        return with_topics(broker, beat, call)

    answer: StreamsGroupHeartbeatResponse | WaitingRequest = chain(
        broker.purgatory,
        ask_group(broker, call, GroupMachine.streams_heartbeat, request),
        finish,
    )
    return answer


def require_usable(broker: Broker, topology: Topology, call: Call) -> None:
    require_small(topology)
    names = all_names(topology)
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        raise invalid(
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is "
            "prohibited."
        )
    bad = [name for name in names if not is_legal(name)]
    if bad:
        raise invalid(f"Topic names {summary(bad)} are not valid topic names.")
    for name in names:
        require(broker, call, Operation.DESCRIBE, TOPIC, name)


def is_legal(name: str) -> bool:
    try:
        require_legal(name)
    except KafkaError:
        return False
    return True


def with_topics(
    broker: Broker, beat: Beat, call: Call
) -> StreamsGroupHeartbeatResponse | WaitingRequest:
    """Creates the missing internal topics; the answer says which could not be created, and why."""
    if not beat.missing:
        return beat.response
    if not may_on_cluster(broker, call, Operation.CREATE, quietly=True):
        names = [topic.name for topic in beat.missing]
        denied = [name for name in names if not may(broker, call, Operation.CREATE, TOPIC, name)]
        if denied:
            return explained(beat, f"Unauthorized to CREATE on topics {summary(denied)}.")

    def answer(refused: Mapping[str, str]) -> StreamsGroupHeartbeatResponse:
        if not refused:
            return beat.response
        reasons = [f"{name} ({why})" for name, why in sorted(refused.items())]
        shown = ", ".join(reasons[:MOST_REASONS_SHOWN])
        more = len(reasons) - MOST_REASONS_SHOWN
        return explained(
            beat, f"Creation failed: {shown}{f' and {more} more' if more > 0 else ''}."
        )

    try:
        made: StreamsGroupHeartbeatResponse | WaitingRequest = (
            broker.controller.create_described_topics(
                [as_topic(topic) for topic in first_of(beat.missing)], answer, call.now
            )
        )
    except KafkaError as refusal:
        return explained(beat, f"Creation failed: {refusal.message or refusal.code.description}")
    return made


def first_of(missing: tuple[InternalTopic, ...]) -> list[InternalTopic]:
    """Returns the topics to create now, at least one."""
    first = list(missing[:MOST_TOPICS_AT_ONCE])
    while len(first) > 1 and sum(topic.partitions for topic in first) > MOST_PARTITIONS_AT_ONCE:
        first.pop()
    return first


def explained(beat: Beat, why: str) -> StreamsGroupHeartbeatResponse:
    for status in beat.response.status or ():
        if status.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {why}"
    return beat.response


def as_topic(topic: InternalTopic) -> CreatableTopic:
    configs = [CreatableTopicConfig(name, value) for name, value in topic.settings.items()]
    return CreatableTopic(topic.name, topic.partitions, topic.replicas, configs=configs)


API = Api(messages=messages, handle=handle, versions=range(0, 1))
