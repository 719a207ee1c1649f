"""DeleteGroups, v0-2: forget groups without members, and all their offsets (KIP-229).

A share group goes after the states of its partitions.
v1 throttle time. v2 flexible. Needs DELETE on each group.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.coordinator_waits import after_all, refused_alone
from headrace.node.broker.coordinators.groups import count_of_offsets, is_share_group
from headrace.node.broker.coordinators.share_group_states import delete_share_group
from headrace.node.coordination.group import offset_rules
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import GROUP, require
from headrace.node.steps import Steps, at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import KafkaError
from headrace.wire.protocol.messages import delete_groups as messages
from headrace.wire.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

OFFSETS_AT_ONCE = 500  # more are deleted between other requests, group by group


def handle(
    broker: Broker, request: DeleteGroupsRequest, call: Call
) -> DeleteGroupsResponse | WaitingRequest | Steps:
    offsets = sum(count_of_offsets(broker, group_id) for group_id in set(request.groups_names))
    if offsets > OFFSETS_AT_ONCE:
        return handle_large(broker, request, call)
    return at_once(handle_large(broker, request, call))


def handle_large(
    broker: Broker, request: DeleteGroupsRequest, call: Call
) -> Generator[None, None, DeleteGroupsResponse | WaitingRequest]:
    response = DeleteGroupsResponse()
    waits: list[WaitingRequest] = []
    seen: set[str] = set()
    for group_id in request.groups_names:
        yield
        if group_id in seen:
            continue
        seen.add(group_id)
        result = DeletableGroupResult(group_id)
        response.results.append(result)
        try:
            require(broker, call, Operation.DELETE, GROUP, group_id)
            if is_share_group(broker, group_id):
                answer = delete_share_group(broker, group_id)
            else:
                answer = broker.groups.ask(group_id, call.now, offset_rules.delete_group, group_id)
        except KafkaError as refusal:
            result.error_code = refusal.code
            continue
        if isinstance(answer, WaitingRequest):
            waits.append(answer)
            refused = partial(DeletableGroupResult, group_id)
            refused_alone([answer], response.results, refused)
    return after_all(waits, response)


API = Api(messages=messages, handle=handle, versions=range(0, 3), handle_large=handle_large)
