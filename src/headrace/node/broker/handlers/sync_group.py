"""SyncGroup, v0-5: a member asks for its part; the leader sends the assignment of all.

The answer waits for the leader's request, whose assignment is recorded before any member gets it.
v1 throttle time. v3 static members. v4 flexible. v5 protocol type and name (KIP-559).
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.groups import ask_group
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import sync_group as messages
from headrace.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_VERSION_WITH_PROTOCOL = 5


def handle(
    broker: Broker, request: SyncGroupRequest, call: Call
) -> SyncGroupResponse | WaitingRequest:
    named = request.protocol_type is not None and request.protocol_name is not None
    if call.version >= FIRST_VERSION_WITH_PROTOCOL and not named:
        # Seen before the rights are, as in Apache Kafka.
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    answer: SyncGroupResponse | WaitingRequest = ask_group(broker, call, GroupMachine.sync, request)
    return answer


API = Api(messages=messages, handle=handle, versions=range(0, 6))
