"""ListGroups, v0-5: the groups that this broker keeps.

v1 throttle time. v3 flexible. v4 states (KIP-518). v5 types (KIP-848). All groups with DESCRIBE on
the cluster, else those that the client may DESCRIBE.
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.broker.coordinators.coordinator_waits import after_all
from headrace.coordination.group import views
from headrace.protocol.acls import Operation
from headrace.protocol.messages import list_groups as messages
from headrace.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from headrace.serving.api import Api, Call, WaitingRequest
from headrace.serving.rights import GROUP, may, may_on_cluster

DESCRIBE = Operation.DESCRIBE


def handle(
    broker: Broker, request: ListGroupsRequest, call: Call
) -> ListGroupsResponse | WaitingRequest:
    everything = may_on_cluster(broker, call, DESCRIBE, quietly=True)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    groups: list[ListedGroup] = []
    for machine in broker.groups.machines(call.now):
        for group in views.list_groups(machine):
            if states and group.group_state.lower() not in states:
                continue
            if types and group.group_type.lower() not in types:
                continue
            if everything or may(broker, call, DESCRIBE, GROUP, group.group_id, quietly=True):
                groups.append(group)
    response: ListGroupsResponse | WaitingRequest = after_all(
        broker.groups.uncommitted(call.now), ListGroupsResponse(groups=groups)
    )
    return response


API = Api(messages=messages, handle=handle, versions=range(0, 6))
