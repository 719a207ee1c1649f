"""How far groups of the newer protocol (KIP-848) are, and heartbeats in the place of their members.

A broker that takes a group over looks at its topics when one of its members is heard for the first
time, so a test need not wait until they speak by themselves.
"""

from __future__ import annotations

import time
from typing import Any

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import consumer_group_describe, consumer_group_heartbeat
from headrace.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.conformance.wire import Connection, encode_body, encode_header
from tests.interop.brokers import Node

WITHIN_S = 400.0
NOT_THERE_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
# Of each group: its epoch, its assignment's, and of each member the name of its client and its own.
Epochs = dict[str, tuple[int, int, dict[str, tuple[str, int]]]]


def epochs(node: Node, *groups: str) -> Epochs:
    connection = Connection(node.port)
    request = ConsumerGroupDescribeRequest(list(groups))
    answer: Any = connection.ask(consumer_group_describe, 1, request)
    connection.close()
    return {
        group.group_id: (
            group.group_epoch,
            group.assignment_epoch,
            {one.member_id: (one.client_id, one.member_epoch) for one in group.members},
        )
        for group in answer.groups
    }


def after_heartbeats(node: Node, before: Epochs) -> Epochs:
    """The epochs when every member has been heard, with nothing new to say."""
    for group, (_, _, members) in before.items():
        for member_id, (client_id, epoch) in members.items():
            request = ConsumerGroupHeartbeatRequest(group, member_id, epoch)
            deadline = time.monotonic() + WITHIN_S
            while _code(node, client_id, request) in NOT_THERE_YET:
                assert time.monotonic() < deadline, f"nobody coordinates {group}"
                time.sleep(0.1)
    return epochs(node, *before)


def _code(node: Node, client_id: str, request: ConsumerGroupHeartbeatRequest) -> int:
    api, version = consumer_group_heartbeat, 1
    header = encode_header(api.API_KEY, version, 7, flexible=True, client_id=client_id)
    connection = Connection(node.port)
    connection.send_frame(header + encode_body(api, version, request))
    answer: Any = connection.answer(api, version)
    connection.close()
    return int(answer.error_code)
