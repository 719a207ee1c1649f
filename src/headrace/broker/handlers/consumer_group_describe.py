"""ConsumerGroupDescribe, v0-1: members of consumer groups, what they have and what they shall have.

v1 the protocol that a member speaks. Authorized operations are all there are: there is no
authorizer yet.
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.broker.coordinators import after_all
from headrace.broker.groups import require_group_id
from headrace.broker.handlers.describe_groups import EVERYTHING
from headrace.coordination.group import views
from headrace.coordination.group.machine import GroupMachine
from headrace.coordination.shard import Decision
from headrace.protocol.errors import KafkaError
from headrace.protocol.messages import consumer_group_describe as messages
from headrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from headrace.serving.api import Api, Call, Parked


def handle(
    broker: Broker, request: ConsumerGroupDescribeRequest, call: Call
) -> ConsumerGroupDescribeResponse | Parked:
    waits: list[Parked] = []
    groups = [describe(broker, group_id, call, waits) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = EVERYTHING
    response: ConsumerGroupDescribeResponse | Parked = after_all(
        waits, ConsumerGroupDescribeResponse(groups=groups)
    )
    return response


def describe(broker: Broker, group_id: str, call: Call, waits: list[Parked]) -> DescribedGroup:
    try:
        require_group_id(group_id)
        found: DescribedGroup = broker.groups.look(group_id, call.now, look, waits)
        return found
    except KafkaError as refusal:
        return DescribedGroup(refusal.code, refusal.message, group_id)


def look(machine: GroupMachine, group_id: str) -> Decision:
    return Decision(response=views.describe_consumer(machine, group_id))


API = Api(messages=messages, handle=handle, versions=range(0, 2))
