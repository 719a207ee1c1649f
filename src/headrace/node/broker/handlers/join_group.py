"""JoinGroup, v0-9: become a member of a classic group, or go through a rebalance as one.

The answer waits until all members have joined or their time is up; the leader's has the metadata
of all. v1 rebalance timeout. v2 throttle time. v4 a member id is required (KIP-394). v5 static
members (KIP-345). v6 flexible. v7 protocol type (KIP-559). v8 reason (KIP-800). v9 skip the
assignment (KIP-814). Needs READ on the group.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.groups import ask_group, long_trials_of, sight_of
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.coordination.group.subscriptions import Sight
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.chain import chain
from headrace.node.steps import Steps
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import join_group as messages
from headrace.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

FIRST_VERSION_WITH_NULL = 7
# Refusals that were not decided by the group: they carry no member id.
WITHOUT_MEMBER = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


def handle(
    broker: Broker, request: JoinGroupRequest, call: Call
) -> JoinGroupResponse | WaitingRequest | Steps:
    sight = sight_of(broker, call)
    try:
        trials = long_trials_of(broker, request.group_id, None, sight) if request.group_id else {}
    except KafkaError:  # the group is not coordinated here: refused below
        trials = {}
    if trials:  # members of the other protocol have patterns
        return join_after(trials, broker, request, call, sight)
    return join(broker, request, call, sight)


def join_after(
    trials: dict[str, Collection[str]],
    broker: Broker,
    request: JoinGroupRequest,
    call: Call,
    sight: Sight,
) -> Steps:
    sight = yield from sight.try_ahead(trials)
    return join(broker, request, call, sight)


def join(
    broker: Broker, request: JoinGroupRequest, call: Call, sight: Sight
) -> JoinGroupResponse | WaitingRequest:
    def finish(answer: JoinGroupResponse) -> JoinGroupResponse:
        if call.version >= FIRST_VERSION_WITH_NULL:
            answer.protocol_name = answer.protocol_name or None
        return answer

    try:
        decided = ask_group(broker, call, GroupMachine.join, request, sight)
    except KafkaError as refusal:
        member_id = "" if refusal.code in WITHOUT_MEMBER else request.member_id
        return finish(JoinGroupResponse(error_code=refusal.code, member_id=member_id))
    answer: JoinGroupResponse | WaitingRequest = chain(broker.purgatory, decided, finish)
    return answer


API = Api(messages=messages, handle=handle, versions=range(0, 10))
