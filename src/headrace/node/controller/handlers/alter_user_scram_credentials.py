"""AlterUserScramCredentials, v0: set and delete the stored credentials of users (KIP-554).

Needs ALTER on the cluster.
"""

from __future__ import annotations

from headrace.node.controller.controller import Controller
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import CLUSTER, REFUSAL_OF, may_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import alter_user_scram_credentials as messages
from headrace.wire.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


def handle(
    controller: Controller, request: AlterUserScramCredentialsRequest, call: Call
) -> AlterUserScramCredentialsResponse | WaitingRequest:
    if not may_on_cluster(controller, call, Operation.ALTER):
        return _refused(request)
    from headrace.node.controller import scram  # a node without users starts sooner without it

    decision = scram.alter(controller.image, request)
    try:
        return controller.commit(decision.records, decision.response, call.now, late=_late)
    except KafkaError as refusal:
        return _failed(decision.response, refusal.code)


def _refused(request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    code = REFUSAL_OF[CLUSTER]
    changed = [gone.name for gone in request.deletions] + [new.name for new in request.upsertions]
    users = dict.fromkeys(changed)
    return AlterUserScramCredentialsResponse(
        0, [AlterUserScramCredentialsResult(user, code, code.description) for user in users]
    )


def _late(response: AlterUserScramCredentialsResponse) -> AlterUserScramCredentialsResponse:
    return _failed(response, ErrorCode.REQUEST_TIMED_OUT)


def _failed(
    response: AlterUserScramCredentialsResponse, code: ErrorCode
) -> AlterUserScramCredentialsResponse:
    for result in response.results:
        if not result.error_code:
            result.error_code = code
            result.error_message = code.description
    return response


API = Api(messages=messages, handle=handle, versions=range(0, 1), owner="controller")
