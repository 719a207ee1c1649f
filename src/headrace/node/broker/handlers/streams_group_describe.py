"""StreamsGroupDescribe, v0: the topology of streams groups, their members, and the members' tasks.

Needs DESCRIBE on each group, and on every topic of its topology.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from headrace.node.broker.authorized_operations import on_group
from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.coordinator_waits import after_all, refused_alone
from headrace.node.broker.coordinators.groups import require_group_id
from headrace.node.coordination.group import views
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.coordination.group.streams.topology import all_names
from headrace.node.coordination.shard import Decision
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import GROUP, TOPIC, may, require
from headrace.node.steps import at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import streams_group_describe as messages
from headrace.wire.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

HIDDEN_TOPICS = "The described group uses topics that the client is not authorized to describe."


def handle(
    broker: Broker, request: StreamsGroupDescribeRequest, call: Call
) -> StreamsGroupDescribeResponse | WaitingRequest:
    return at_once(handle_large(broker, request, call))


def handle_large(
    broker: Broker, request: StreamsGroupDescribeRequest, call: Call
) -> Generator[None, None, StreamsGroupDescribeResponse | WaitingRequest]:
    waits: list[WaitingRequest] = []
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        yield
        already = len(waits)
        groups.append(describe(broker, group_id, call, waits))
        refused_alone(waits[already:], groups, partial(DescribedGroup, group_id=group_id))
    if request.include_authorized_operations:
        for group in groups:
            yield
            if not group.error_code:
                group.authorized_operations = on_group(broker, call, group.group_id)
    response: StreamsGroupDescribeResponse | WaitingRequest = after_all(
        waits, StreamsGroupDescribeResponse(groups=groups)
    )
    return response


def describe(
    broker: Broker, group_id: str, call: Call, waits: list[WaitingRequest]
) -> DescribedGroup:
    try:
        if not broker.streams_groups_served:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        require(broker, call, Operation.DESCRIBE, GROUP, group_id)
        require_group_id(group_id)
        found: DescribedGroup = broker.groups.look(group_id, call.now, look, waits)
        if broker.authorizer is not None and found.topology is not None:
            names = all_names(found.topology)
            if not all(may(broker, call, Operation.DESCRIBE, TOPIC, name) for name in names):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPICS)
        return found
    except KafkaError as refusal:
        return DescribedGroup(refusal.code, refusal.message, group_id)


def look(machine: GroupMachine, group_id: str) -> Decision:
    return Decision(response=views.describe_streams(machine, group_id))


API = Api(messages=messages, handle=handle, versions=range(0, 1), handle_large=handle_large)
