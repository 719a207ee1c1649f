"""ListPartitionReassignments, v0: partitions that are being moved to other brokers (KIP-455).

Null topics ask for all. Partitions that are not being reassigned, or do not exist, are left out.
Needs DESCRIBE on the cluster.
"""

from __future__ import annotations

from headrace.node.controller.controller import Controller
from headrace.node.controller.partitions.reassignments import list_reassignments
from headrace.node.serving.api import Api, Call, require_few_partitions
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.messages import list_partition_reassignments as messages
from headrace.wire.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(
    controller: Controller, request: ListPartitionReassignmentsRequest, call: Call
) -> ListPartitionReassignmentsResponse:
    named = sum(len(topic.partition_indexes) for topic in request.topics or ())
    require_few_partitions(messages.NAME, named)
    require_on_cluster(controller, call, Operation.DESCRIBE)
    found = list_reassignments(controller.committed_image, request.topics)
    return ListPartitionReassignmentsResponse(error_message=None, topics=found)


API = Api(messages=messages, handle=handle, versions=range(0, 1), owner="controller")
