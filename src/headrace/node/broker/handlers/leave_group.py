"""LeaveGroup, v0-5: members go, or an operator removes static ones; the others rebalance at once.

v1 throttle time. v3 many members at a time (KIP-345); before, the one member's error is the
answer's. v4 flexible. v5 reason (KIP-800).
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.groups import ask_group
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.serving.api import Api, Call, WaitingRequest, require_few
from headrace.node.serving.chain import chain
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import leave_group as messages
from headrace.wire.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

FIRST_VERSION_WITH_MANY = 3


def handle(
    broker: Broker, request: LeaveGroupRequest, call: Call
) -> LeaveGroupResponse | WaitingRequest:
    many = call.version >= FIRST_VERSION_WITH_MANY
    require_few(messages.NAME, len(request.members), "members")
    if not many:
        request.members = [MemberIdentity(request.member_id)]
    try:
        answer: LeaveGroupResponse | WaitingRequest = ask_group(
            broker, call, GroupMachine.leave, request
        )
    except KafkaError as refusal:
        if refusal.code != ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        answer = LeaveGroupResponse(members=all_unknown(request))
    if many:
        return answer
    flat: LeaveGroupResponse | WaitingRequest = chain(broker.purgatory, answer, flatten)
    return flat


def all_unknown(request: LeaveGroupRequest) -> list[MemberResponse]:
    return [
        MemberResponse(one.member_id, one.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
        for one in request.members
    ]


def flatten(answer: LeaveGroupResponse) -> LeaveGroupResponse:
    """Returns the answer in the form of versions before 3."""
    return LeaveGroupResponse(error_code=answer.members[0].error_code)


API = Api(messages=messages, handle=handle, versions=range(0, 6))
