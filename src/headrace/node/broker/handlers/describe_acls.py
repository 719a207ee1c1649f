"""DescribeAcls, v1-3: the access control entries that a filter finds, grouped by pattern.

Needs DESCRIBE on the cluster; without an authorizer SECURITY_DISABLED. v2 flexible. v3 resources of
type USER.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.metadata.acls import Filter, found_by
from headrace.node.serving.api import Api, Call, ClosesConnection
from headrace.node.serving.rights import require_on_cluster
from headrace.node.steps import Steps, at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import describe_acls as messages
from headrace.wire.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from headrace.wire.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

ENTRIES_PER_STEP = 200  # an entry takes 3 us, and its answer as long again


def handle(
    broker: Broker, request: DescribeAclsRequest, call: Call
) -> DescribeAclsResponse | Steps:
    wanted = Filter.of(request)
    if wanted.has_unknown:
        raise ClosesConnection("a DescribeAcls with an element of the type UNKNOWN")
    require_on_cluster(broker, call, Operation.DESCRIBE)
    if broker.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    entries = broker.image.acls  # each change makes a new object
    steps = describe_in_steps(wanted, list(entries.values()))
    if len(entries) > ENTRIES_PER_STEP:
        return steps
    response: DescribeAclsResponse = at_once(steps)
    return response


def describe_in_steps(wanted: Filter, entries: list[AccessControlEntryRecord]) -> Steps:
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for at in range(0, len(entries), ENTRIES_PER_STEP):
        yield
        for entry in found_by(wanted, entries[at : at + ENTRIES_PER_STEP]):
            pattern = (entry.resource_type, entry.resource_name, entry.pattern_type)
            resource = resources.get(pattern)
            if resource is None:
                resource = resources[pattern] = DescribeAclsResource(*pattern)
            resource.acls.append(
                AclDescription(entry.principal, entry.host, entry.operation, entry.permission_type)
            )
    return DescribeAclsResponse(resources=list(resources.values()))


API = Api(messages=messages, handle=handle, versions=range(1, 4))
