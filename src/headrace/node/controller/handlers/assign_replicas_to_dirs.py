"""AssignReplicasToDirs, v0: a broker with several data folders reports the folder of each replica.

KIP-858. Needs CLUSTER_ACTION; the consequences are in `replica_directories.py`.
"""

from __future__ import annotations

from headrace.node.controller.controller import Controller
from headrace.node.controller.partitions.replica_directories import assign_replicas
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import assign_replicas_to_dirs as messages
from headrace.wire.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)


def handle(
    controller: Controller, request: AssignReplicasToDirsRequest, call: Call
) -> AssignReplicasToDirsResponse | WaitingRequest:
    try:
        require_on_cluster(controller, call, Operation.CLUSTER_ACTION)
        minimum = controller.settings.min_in_sync_replicas
        decision = assign_replicas(controller.image, request, minimum)
        return controller.commit(decision.records, decision.response, call.now, late=_late)
    except KafkaError as refusal:
        return AssignReplicasToDirsResponse(error_code=refusal.code)


def _late(response: AssignReplicasToDirsResponse) -> AssignReplicasToDirsResponse:
    return AssignReplicasToDirsResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)


API = Api(messages=messages, handle=handle, versions=range(0, 1), owner="controller")
