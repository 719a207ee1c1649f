"""DeleteAcls, v1-3: the entries that filters find are deleted, and listed in the answer.

Needs ALTER on the cluster; without an authorizer SECURITY_DISABLED. The answer leaves when the
entries are gone on this node. v2 flexible. v3 resources of type USER.
"""

from __future__ import annotations

from headrace.node.controller import acls
from headrace.node.controller.controller import Controller
from headrace.node.metadata.acls import Filter
from headrace.node.serving.api import Api, Call, ClosesConnection, WaitingRequest
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import delete_acls as messages
from headrace.wire.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle(
    controller: Controller, request: DeleteAclsRequest, call: Call
) -> DeleteAclsResponse | WaitingRequest:
    if any(Filter.of(wanted).has_unknown for wanted in request.filters):
        raise ClosesConnection("a DeleteAcls with an element of the type UNKNOWN")
    try:
        require_on_cluster(controller, call, Operation.ALTER)
        if controller.authorizer is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        decision = acls.delete_acls(controller.image, request.filters)
        response = DeleteAclsResponse(filter_results=decision.response)
        return controller.commit(decision.records, response, call.now, late=_late)
    except KafkaError as refusal:
        refused = DeleteAclsFilterResult(refusal.code, refusal.message)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


def _late(response: DeleteAclsResponse) -> DeleteAclsResponse:
    for result in response.filter_results:
        result.error_code = result.error_code or ErrorCode.REQUEST_TIMED_OUT
        result.matching_acls = []
    return response


API = Api(messages=messages, handle=handle, versions=range(1, 4), owner="controller")
