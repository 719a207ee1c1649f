"""ShareGroupHeartbeat, v1: join, stay in and leave a share group (KIP-932).

The server shares the partitions out; a member may share one with others. Needs READ on the group
and DESCRIBE on each topic that is named.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.groups import ask_group
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.serving.api import Api, Call, WaitingRequest, require_few
from headrace.node.serving.rights import GROUP, TOPIC, require
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import share_group_heartbeat as messages
from headrace.wire.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


def handle(
    broker: Broker, request: ShareGroupHeartbeatRequest, call: Call
) -> ShareGroupHeartbeatResponse | WaitingRequest:
    if not broker.share_groups_served:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    require(broker, call, Operation.READ, GROUP, request.group_id)
    require_few(messages.NAME, len(request.subscribed_topic_names or ()), "topics")
    for topic in request.subscribed_topic_names or ():
        require(broker, call, Operation.DESCRIBE, TOPIC, topic)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    answer: ShareGroupHeartbeatResponse | WaitingRequest = ask_group(
        broker, call, GroupMachine.share_heartbeat, request
    )
    return answer


API = Api(messages=messages, handle=handle, versions=range(1, 2))
