"""AlterClientQuotas, v0-1: set and remove limits of users, clients and addresses (KIP-546).

Each entity is answered with its own code. `validate_only` writes nothing. The limits hold when the
answer leaves. Needs ALTER_CONFIGS on the cluster. v1 flexible.
"""

from __future__ import annotations

from headrace.node.controller.controller import Controller
from headrace.node.controller.quotas import alter_client_quotas
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import alter_client_quotas as messages
from headrace.wire.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ResponseEntryData,
)


def handle(
    controller: Controller, request: AlterClientQuotasRequest, call: Call
) -> AlterClientQuotasResponse | WaitingRequest:
    try:
        require_on_cluster(controller, call, Operation.ALTER_CONFIGS)
        decision = alter_client_quotas(controller.image, request)
        controller.append(decision.records, call.now)
    except KafkaError as refusal:
        return refuse_all(request, refusal)
    return controller.answer(
        decision.response,
        call.now,
        late=lambda _: refuse_all(request, KafkaError(ErrorCode.REQUEST_TIMED_OUT)),
    )


def refuse_all(request: AlterClientQuotasRequest, refusal: KafkaError) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        0,
        [
            ResponseEntryData(refusal.code, refusal.message, entry.entity)
            for entry in request.entries
        ],
    )


API = Api(messages=messages, handle=handle, versions=range(0, 2), owner="controller")
