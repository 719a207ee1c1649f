"""AllocateProducerIds, v0: a broker takes a block of producer ids for itself.

Only a registered broker in its current epoch may, with CLUSTER_ACTION; the answer leaves when the
block is committed, so that no other broker gets it after a crash.
"""

from __future__ import annotations

from headrace.node.controller.controller import Controller
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import allocate_producer_ids as messages
from headrace.wire.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


def handle(
    controller: Controller, request: AllocateProducerIdsRequest, call: Call
) -> AllocateProducerIdsResponse | WaitingRequest:
    require_on_cluster(controller, call, Operation.CLUSTER_ACTION)
    block = controller.allocate_producer_ids(request.broker_id, request.broker_epoch, call.now)
    response = AllocateProducerIdsResponse(
        producer_id_start=block.first, producer_id_len=block.size
    )
    return controller.answer(response, call.now, late=_late)


def _late(response: AllocateProducerIdsResponse) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)


API = Api(messages=messages, handle=handle, versions=range(0, 1), owner="controller")
