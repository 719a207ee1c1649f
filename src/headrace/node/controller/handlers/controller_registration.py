"""ControllerRegistration, v0: a controller that does not lead registers its listeners (KIP-919).

Needs CLUSTER_ACTION. The answer leaves when the registration is committed.
"""

from __future__ import annotations

from headrace.node.controller.controller import Controller
from headrace.node.controller.members.controller_registrations import register
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import controller_registration as messages
from headrace.wire.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)


def handle(
    controller: Controller, request: ControllerRegistrationRequest, call: Call
) -> ControllerRegistrationResponse | WaitingRequest:
    require_on_cluster(controller, call, Operation.CLUSTER_ACTION)
    records = register(controller.image, request)
    return controller.commit(records, ControllerRegistrationResponse(), call.now, late=_late)


def _late(response: ControllerRegistrationResponse) -> ControllerRegistrationResponse:
    return ControllerRegistrationResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)


API = Api(messages=messages, handle=handle, versions=range(0, 1), owner="controller")
