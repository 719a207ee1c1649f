"""ListGroups, v0-5: the groups that this broker keeps.

v1 throttle time. v3 flexible. v4 states (KIP-518). v5 types (KIP-848). All groups with DESCRIBE on
the cluster, else those that the client may DESCRIBE.
"""

from __future__ import annotations

from typing import Any

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.coordinator_waits import after_all
from headrace.node.coordination.group import views
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import GROUP, may, may_on_cluster
from headrace.node.steps import Steps, at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.messages import list_groups as messages
from headrace.wire.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

DESCRIBE = Operation.DESCRIBE
GROUPS_PER_STEP = 200  # a group takes 2 to 5 us


def handle(broker: Broker, request: ListGroupsRequest, call: Call) -> Any:
    """Answers at once for few groups, else in steps; the steps are the same."""
    machines = list(broker.groups.machines(call.now))
    count = sum(len(one.groups) + len(one.offsets.by_group) for one in machines)
    steps = list_steps(broker, request, call, machines)
    return steps if count > GROUPS_PER_STEP else at_once(steps)


def list_steps(
    broker: Broker, request: ListGroupsRequest, call: Call, machines: list[GroupMachine]
) -> Steps:
    everything = may_on_cluster(broker, call, DESCRIBE, quietly=True)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    groups: list[ListedGroup] = []
    for machine in machines:
        names = machine.group_ids()
        for at in range(0, len(names), GROUPS_PER_STEP):
            yield
            for group in views.list_groups(machine, names[at : at + GROUPS_PER_STEP]):
                if states and group.group_state.lower() not in states:
                    continue
                if types and group.group_type.lower() not in types:
                    continue
                if everything or may(broker, call, DESCRIBE, GROUP, group.group_id, quietly=True):
                    groups.append(group)
    return after_all(broker.groups.uncommitted(call.now), ListGroupsResponse(groups=groups))


API = Api(messages=messages, handle=handle, versions=range(0, 6))
