"""The operations that a client may do, as the bits of an answer.

Only operations that the type of resource has are included: those that the authorizer allows, or all
of them without an authorizer.
"""

from __future__ import annotations

from headrace.node.serving.api import Call
from headrace.node.serving.rights import CLUSTER, GROUP, TOPIC, Guarded, may_on_cluster, rights
from headrace.wire.protocol.acls import CLUSTER_NAME, OPERATIONS_ON, Operation

NOT_ASKED_FOR = -(2**31)

BITS_OF = {
    resource_type: sum(1 << operation for operation in operations)
    for resource_type, operations in OPERATIONS_ON.items()
}


def on_topic(owner: Guarded, call: Call, name: str) -> int:
    return rights(owner, call, TOPIC, name) & BITS_OF[TOPIC]


def on_group(owner: Guarded, call: Call, group_id: str) -> int:
    return rights(owner, call, GROUP, group_id) & BITS_OF[GROUP]


def on_cluster(owner: Guarded, call: Call) -> int:
    """Returns 0 for a client that may not describe the cluster."""
    if not may_on_cluster(owner, call, Operation.DESCRIBE):
        return 0
    return rights(owner, call, CLUSTER, CLUSTER_NAME) & BITS_OF[CLUSTER]
