"""AlterPartitionReassignments, v0-1: other brokers for a partition's replicas (KIP-455).

Null replicas cancel the reassignment under way. v1 may require that the number of replicas stays
(KIP-860). Needs ALTER on the cluster. In a cluster of one only the broker itself can be named,
which changes nothing.
"""

from __future__ import annotations

from headrace.node.controller.controller import Controller
from headrace.node.controller.partitions.reassignments import Rules, alter_reassignments
from headrace.node.serving.api import Api, Call, WaitingRequest, require_few_partitions
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import alter_partition_reassignments as messages
from headrace.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(
    controller: Controller, request: AlterPartitionReassignmentsRequest, call: Call
) -> AlterPartitionReassignmentsResponse | WaitingRequest:
    named = sum(len(topic.partitions) for topic in request.topics)
    require_few_partitions(messages.NAME, named)
    try:
        require_on_cluster(controller, call, Operation.ALTER)
        if not request.topics:
            return AlterPartitionReassignmentsResponse()
        if request.timeout_ms <= 0:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT.description)
        settings = controller.settings
        rules = Rules(settings.min_in_sync_replicas, settings.given)
        decision = alter_reassignments(controller.image, request, rules)
        return controller.commit(
            decision.records,
            decision.response,
            call.now,
            timeout_ms=request.timeout_ms,
            late=lambda _: refused(request, KafkaError(ErrorCode.REQUEST_TIMED_OUT)),
        )
    except KafkaError as refusal:
        return refused(request, refusal)


def refused(
    request: AlterPartitionReassignmentsRequest, refusal: KafkaError
) -> AlterPartitionReassignmentsResponse:
    responses = [
        ReassignableTopicResponse(
            topic.name,
            [
                ReassignablePartitionResponse(p.partition_index, refusal.code, refusal.message)
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    any_number = request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        0, any_number, refusal.code, refusal.message, responses
    )


API = Api(messages=messages, handle=handle, versions=range(0, 2), owner="controller")
