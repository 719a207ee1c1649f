"""UnregisterBroker, v0: an operator gives up a broker that will not come back.

Needs ALTER on the cluster. The broker leaves the in-sync replicas of all its partitions; one that
is alive after all registers again. Unlike in Apache Kafka, the broker in the controller's own
process cannot be unregistered: it is alive.
"""

from __future__ import annotations

from headrace.node.controller.controller import Controller
from headrace.node.controller.members.broker_registrations import unregister
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import unregister_broker as messages
from headrace.wire.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


def handle(
    controller: Controller, request: UnregisterBrokerRequest, call: Call
) -> UnregisterBrokerResponse | WaitingRequest:
    require_on_cluster(controller, call, Operation.ALTER)
    own = controller.settings.node_id
    if request.broker_id == own:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Broker {own} runs beside the controller: it is alive."
        )
    minimum = controller.settings.min_in_sync_replicas
    records = unregister(controller.image, request.broker_id, minimum)
    return controller.commit(records, UnregisterBrokerResponse(), call.now, late=_late)


def _late(response: UnregisterBrokerResponse) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)


API = Api(messages=messages, handle=handle, versions=range(0, 1), owner="controller")
