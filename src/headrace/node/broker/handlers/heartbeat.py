"""Heartbeat, v0-4: a member of a classic group is alive; it learns whether it must rejoin.

v1 throttle time. v3 static members (KIP-345). v4 flexible.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.groups import ask_group
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.wire.protocol.messages import heartbeat as messages
from headrace.wire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    broker: Broker, request: HeartbeatRequest, call: Call
) -> HeartbeatResponse | WaitingRequest:
    answer: HeartbeatResponse | WaitingRequest = ask_group(
        broker, call, GroupMachine.heartbeat, request
    )
    return answer


API = Api(messages=messages, handle=handle, versions=range(0, 5))
