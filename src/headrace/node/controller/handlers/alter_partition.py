"""AlterPartition, v2-3: a leader proposes the in-sync replicas of its partitions.

v3 names the broker epoch of each (KIP-903). Needs CLUSTER_ACTION. The rules are in
`in_sync_changes.py`; the answer leaves when the change is committed.
"""

from __future__ import annotations

from headrace.node.controller.controller import Controller
from headrace.node.controller.partitions.in_sync_changes import alter_partition
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import alter_partition as messages
from headrace.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)


def handle(
    controller: Controller, request: AlterPartitionRequest, call: Call
) -> AlterPartitionResponse | WaitingRequest:
    try:
        require_on_cluster(controller, call, Operation.CLUSTER_ACTION)
        minimum = controller.settings.min_in_sync_replicas
        decision = alter_partition(controller.image, request, call.version, minimum)
        return controller.commit(decision.records, decision.response, call.now, late=_late)
    except KafkaError as refusal:
        return AlterPartitionResponse(error_code=refusal.code)


def _late(response: AlterPartitionResponse) -> AlterPartitionResponse:
    """It is not known yet whether it will be committed: the leader retries."""
    return AlterPartitionResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)


API = Api(messages=messages, handle=handle, versions=range(2, 4), owner="controller")
