"""DescribeGroups, v0-6: members of classic groups, with subscriptions and assignments.

A group that is not there is Dead; from v6 on that is an error as well (KIP-1043). One that is named
twice is answered once, so that a small request has no endless answer.
v1 throttle time. v3 authorized operations. v4 static members. v5 flexible. Needs DESCRIBE on each
group.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from headrace.node.broker.authorized_operations import on_group
from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.coordinator_waits import after_all, refused_alone
from headrace.node.coordination.group import views
from headrace.node.coordination.group.classic_group import ClassicGroupState
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.coordination.shard import Decision
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import GROUP, require
from headrace.node.steps import at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import describe_groups as messages
from headrace.wire.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

FIRST_VERSION_WITH_NOT_FOUND = 6


def handle(
    broker: Broker, request: DescribeGroupsRequest, call: Call
) -> DescribeGroupsResponse | WaitingRequest:
    return at_once(handle_large(broker, request, call))


def handle_large(
    broker: Broker, request: DescribeGroupsRequest, call: Call
) -> Generator[None, None, DescribeGroupsResponse | WaitingRequest]:
    waits: list[WaitingRequest] = []
    groups = []
    seen: set[str] = set()
    for group_id in request.groups:
        yield
        if group_id in seen:
            continue
        seen.add(group_id)
        already = len(waits)
        groups.append(describe(broker, group_id, call, waits))
        refused_alone(waits[already:], groups, partial(DescribedGroup, group_id=group_id))
    if request.include_authorized_operations:
        for group in groups:
            yield
            if not group.error_code:
                group.authorized_operations = on_group(broker, call, group.group_id)
    response: DescribeGroupsResponse | WaitingRequest = after_all(
        waits, DescribeGroupsResponse(groups=groups)
    )
    return response


def describe(
    broker: Broker, group_id: str, call: Call, waits: list[WaitingRequest]
) -> DescribedGroup:
    try:
        require(broker, call, Operation.DESCRIBE, GROUP, group_id)
        found: DescribedGroup = broker.groups.look(group_id, call.now, look, waits)
        return found
    except KafkaError as refusal:
        gone = refusal.code == ErrorCode.GROUP_ID_NOT_FOUND
        if gone and call.version < FIRST_VERSION_WITH_NOT_FOUND:
            return DescribedGroup(group_id=group_id, group_state=ClassicGroupState.DEAD.value)
        state = ClassicGroupState.DEAD.value if gone else ""
        return DescribedGroup(refusal.code, refusal.message, group_id, state)


def look(machine: GroupMachine, group_id: str) -> Decision:
    return Decision(response=views.describe_classic(machine, group_id))


API = Api(messages=messages, handle=handle, versions=range(0, 7), handle_large=handle_large)
