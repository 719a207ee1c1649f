"""ListGroups, v0-5: the groups that this broker keeps.

v1 throttle time. v3 flexible. v4 states (KIP-518). v5 types (KIP-848).
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.broker.coordinators import after_all
from headrace.coordination.group import views
from headrace.protocol.messages import list_groups as messages
from headrace.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from headrace.serving.api import Api, Call, Parked


def handle(broker: Broker, request: ListGroupsRequest, call: Call) -> ListGroupsResponse | Parked:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    groups: list[ListedGroup] = []
    for machine in broker.groups.machines(call.now):
        for group in views.list_groups(machine):
            if states and group.group_state.lower() not in states:
                continue
            if types and group.group_type.lower() not in types:
                continue
            groups.append(group)
    response: ListGroupsResponse | Parked = after_all(
        broker.groups.uncommitted(), ListGroupsResponse(groups=groups)
    )
    return response


API = Api(messages=messages, handle=handle, versions=range(0, 6))
