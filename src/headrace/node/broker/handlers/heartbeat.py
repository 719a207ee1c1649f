"""Heartbeat, v0-4: a member of a classic group is alive; it learns whether to join anew.

v1 throttle time. v3 static members (KIP-345). v4 flexible.
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.broker.coordinators.groups import ask_group
from headrace.coordination.group.machine import GroupMachine
from headrace.protocol.messages import heartbeat as messages
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.serving.api import Api, Call, WaitingRequest


def handle(
    broker: Broker, request: HeartbeatRequest, call: Call
) -> HeartbeatResponse | WaitingRequest:
    answer: HeartbeatResponse | WaitingRequest = ask_group(
        broker, call, GroupMachine.heartbeat, request
    )
    return answer


API = Api(messages=messages, handle=handle, versions=range(0, 5))
