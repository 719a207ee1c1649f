"""BrokerRegistration, v0-4: a broker joins the cluster, fenced until a heartbeat unfences it.

v1 ZooKeeper migration, refused. v2 data folders. v3 the broker epoch of the last clean stop
(KIP-966). v4 unchanged. Needs CLUSTER_ACTION. The answer leaves when the registration is committed;
the epoch in it is the broker's from then on.
"""

from __future__ import annotations

from headrace.environment import Now
from headrace.node.controller.controller import Controller
from headrace.node.controller.members.broker_registrations import register
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import broker_registration as messages
from headrace.wire.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)


def handle(
    controller: Controller, request: BrokerRegistrationRequest, call: Call
) -> BrokerRegistrationResponse | WaitingRequest:
    try:
        require_on_cluster(controller, call, Operation.CLUSTER_ACTION)
        known = controller.image.brokers.get(request.broker_id)
        # The broker in this process is alive: no other may register with its id.
        is_alive = request.broker_id == controller.settings.node_id or (
            controller.sessions.is_alive(known, call.now.monotonic_ms)
        )
        return register_broker(controller, request, call.version, call.now, has_session=is_alive)
    except KafkaError as refusal:
        return BrokerRegistrationResponse(error_code=refusal.code)


def register_broker(
    controller: Controller,
    request: BrokerRegistrationRequest,
    version: int,
    now: Now,
    *,
    has_session: bool,
) -> BrokerRegistrationResponse | WaitingRequest:
    """`has_session`: a broker of this id was heard from recently. Raises KafkaError."""
    decision = register(
        controller.image,
        request,
        version,
        epoch=controller.image.offset + 1,
        has_session=has_session,
        min_in_sync_replicas=controller.settings.min_in_sync_replicas,
    )
    answer = controller.commit(decision.records, decision.response, now, late=_late)
    epoch = decision.response.broker_epoch
    controller.sessions.registered(request.broker_id, epoch, now.monotonic_ms)
    return answer


def _late(response: BrokerRegistrationResponse) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)


API = Api(messages=messages, handle=handle, versions=range(0, 5), owner="controller")
