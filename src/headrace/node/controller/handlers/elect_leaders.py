"""ElectLeaders, v0-2: the first replica leads again, or any that is alive (KIP-183, KIP-460).

Null partitions ask for all. v0 knows only the election of the first replica. v1 has the kind of
election and an error of the whole request. v2 flexible. Needs ALTER on the cluster. A cluster of
one has nothing to elect: ELECTION_NOT_NEEDED for each partition that is named.
"""

from __future__ import annotations

from headrace.node.controller.controller import Controller
from headrace.node.controller.partitions.partition_elections import elect_leaders
from headrace.node.serving.api import Api, Call, WaitingRequest, require_few_partitions
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import elect_leaders as messages
from headrace.wire.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


def handle(
    controller: Controller, request: ElectLeadersRequest, call: Call
) -> ElectLeadersResponse | WaitingRequest:
    named = sum(len(topic.partitions) for topic in request.topic_partitions or ())
    require_few_partitions(messages.NAME, named)
    try:
        require_on_cluster(controller, call, Operation.ALTER)
        if request.topic_partitions == []:
            return ElectLeadersResponse()
        if request.timeout_ms <= 0:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT.description)
        minimum = controller.settings.min_in_sync_replicas
        decision = elect_leaders(controller.image, request, minimum)
        return controller.commit(
            decision.records,
            decision.response,
            call.now,
            timeout_ms=request.timeout_ms,
            late=lambda _: refused(request, KafkaError(ErrorCode.REQUEST_TIMED_OUT)),
        )
    except KafkaError as refusal:
        return refused(request, refusal)


def refused(request: ElectLeadersRequest, refusal: KafkaError) -> ElectLeadersResponse:
    """Returns the refusal once for the whole request and once for each partition: v0 has only the
    latter."""
    results = [
        ReplicaElectionResult(
            topic.topic,
            [PartitionResult(index, refusal.code, refusal.message) for index in topic.partitions],
        )
        for topic in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(0, refusal.code, results)


API = Api(messages=messages, handle=handle, versions=range(0, 3), owner="controller")
