"""ConsumerGroupHeartbeat, v0-1: join, stay in and leave a group of the consumer protocol (KIP-848).

The server assigns the partitions; each heartbeat may bring the member one step further. v1 the
client makes its member id up (KIP-1082), patterns of topics in RE2's syntax. Needs READ on the
group and DESCRIBE on each topic that is named; patterns match only topics that one may DESCRIBE.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.groups import ask_group, long_trials_of, sight_of
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.coordination.group.subscriptions import Sight
from headrace.node.serving.api import Api, Call, WaitingRequest, require_few
from headrace.node.serving.rights import GROUP, TOPIC, require
from headrace.node.steps import Steps
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import consumer_group_heartbeat as messages
from headrace.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, call: Call
) -> ConsumerGroupHeartbeatResponse | WaitingRequest | Steps:
    if "consumer" not in broker.groups.settings().protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    require(broker, call, Operation.READ, GROUP, request.group_id)
    require_few(messages.NAME, len(request.subscribed_topic_names or ()), "topics")
    for topic in request.subscribed_topic_names or ():
        require(broker, call, Operation.DESCRIBE, TOPIC, topic)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    sight = sight_of(broker, call)
    trials = long_trials_of(broker, request.group_id, request.subscribed_topic_regex, sight)
    if trials:
        return handle_after(trials, broker, request, call, sight)
    answer: ConsumerGroupHeartbeatResponse | WaitingRequest = ask_group(
        broker, call, GroupMachine.consumer_heartbeat, request, sight
    )
    return answer


def handle_after(
    trials: dict[str, Collection[str]],
    broker: Broker,
    request: ConsumerGroupHeartbeatRequest,
    call: Call,
    sight: Sight,
) -> Steps:
    """Patterns are matched against many topics first, between other requests."""
    sight = yield from sight.try_ahead(trials)
    return ask_group(broker, call, GroupMachine.consumer_heartbeat, request, sight)


API = Api(messages=messages, handle=handle, versions=range(0, 2))
