"""BrokerHeartbeat, v0-2: a broker is alive, and wants to be fenced, unfenced or to stop.

v1 data folders that have failed (KIP-858). v2 folders that take no new replicas (KIP-1066). Needs
CLUSTER_ACTION. The answer leaves when its consequences are committed.
"""

from __future__ import annotations

from headrace.environment import Now
from headrace.node.controller.controller import Controller
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import broker_heartbeat as messages
from headrace.wire.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)


def handle(
    controller: Controller, request: BrokerHeartbeatRequest, call: Call
) -> BrokerHeartbeatResponse | WaitingRequest:
    try:
        require_on_cluster(controller, call, Operation.CLUSTER_ACTION)
        answer = heartbeat(controller, request, call.now)
        if not request.want_fence:  # another start may request that for it
            controller.sessions.heard_over(request.broker_id, call.session)
        return answer
    except KafkaError as refusal:
        return BrokerHeartbeatResponse(error_code=refusal.code)


def heartbeat(
    controller: Controller, request: BrokerHeartbeatRequest, now: Now
) -> BrokerHeartbeatResponse | WaitingRequest:
    """Decides a heartbeat of any broker, including the one in this process; raises KafkaError."""
    minimum = controller.settings.min_in_sync_replicas
    decision = controller.sessions.heartbeat(
        controller.image,
        request,
        end_offset=controller.image.offset + 1,
        min_in_sync_replicas=minimum,
        now_ms=now.monotonic_ms,
    )
    controller.append(decision.records, now)
    controller.directories_failed(request.broker_id, request.offline_log_dirs, now)
    return controller.answer(decision.response, now, late=_late)


def _late(response: BrokerHeartbeatResponse) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)


API = Api(messages=messages, handle=handle, versions=range(0, 3), owner="controller")
