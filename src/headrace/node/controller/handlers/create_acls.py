"""CreateAcls, v1-3: new access control entries, each with its own result.

Needs ALTER on the cluster; without an authorizer SECURITY_DISABLED. The answer leaves when the
entries are committed and hold on this node. v2 flexible. v3 resources of type USER.
"""

from __future__ import annotations

from headrace.node.controller import acls
from headrace.node.controller.controller import Controller
from headrace.node.serving.api import Api, Call, ClosesConnection, WaitingRequest
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import create_acls as messages
from headrace.wire.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def handle(
    controller: Controller, request: CreateAclsRequest, call: Call
) -> CreateAclsResponse | WaitingRequest:
    if any(map(_has_unknown, request.creations)):
        raise ClosesConnection("a CreateAcls with an element of the type UNKNOWN")
    try:
        require_on_cluster(controller, call, Operation.ALTER)
        if controller.authorizer is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        decision = acls.create_acls(controller.image, request.creations, controller.new_id)
        response = CreateAclsResponse(results=decision.response)
        return controller.commit(decision.records, response, call.now, late=_late)
    except KafkaError as refusal:
        refused = AclCreationResult(refusal.code, refusal.message)
        return CreateAclsResponse(results=[refused] * len(request.creations))


def _has_unknown(wanted: AclCreation) -> bool:
    """The number for "unknown": Apache Kafka closes the connection of a client that sends it."""
    return 0 in (
        wanted.resource_type,
        wanted.resource_pattern_type,
        wanted.operation,
        wanted.permission_type,
    )


def _late(response: CreateAclsResponse) -> CreateAclsResponse:
    for result in response.results:
        result.error_code = result.error_code or ErrorCode.REQUEST_TIMED_OUT
    return response


API = Api(messages=messages, handle=handle, versions=range(1, 4), owner="controller")
