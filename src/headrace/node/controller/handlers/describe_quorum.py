"""DescribeQuorum, v0-2: the voters, the leader, and the log end offset of every replica.

Only partition 0 of `__cluster_metadata` can be asked for. v1 adds times of the last fetch, v2 the
directories of the voters and where they listen (KIP-853). Only the leader knows it; others answer
NOT_LEADER_OR_FOLLOWER. A cluster of one has an address in its records, which Apache Kafka needs;
the answer has it only if a listener is open there. Needs DESCRIBE on the cluster.
"""

from __future__ import annotations

from collections.abc import Generator

from headrace.node.consensus.quorum.quorum_status import ReplicaStatus, status_of
from headrace.node.controller.controller import Controller
from headrace.node.metadata.topic_names import METADATA_TOPIC
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import require_on_cluster
from headrace.node.steps import Steps, at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import describe_quorum as messages
from headrace.wire.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)


def handle(
    controller: Controller, request: DescribeQuorumRequest, call: Call
) -> DescribeQuorumResponse:
    require_on_cluster(controller, call, Operation.DESCRIBE)
    asked = [
        (topic.topic_name, p.partition_index) for topic in request.topics for p in topic.partitions
    ]
    if asked != [(METADATA_TOPIC, 0)]:
        return at_once(_refused(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    found = status_of(controller.log.host.quorum, call.now)
    if found is None:
        return at_once(_refused(request, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    partition = ResponsePartitionData(
        partition_index=0,
        error_message="",
        leader_id=found.leader_id,
        leader_epoch=found.epoch,
        high_watermark=found.high_watermark,
        current_voters=[_replica(voter) for voter in found.voters],
        observers=[_replica(observer) for observer in found.observers],
    )
    return DescribeQuorumResponse(
        error_message="",
        topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=[_node(controller, voter) for voter in found.voters],
    )


def handle_large(controller: Controller, request: DescribeQuorumRequest, call: Call) -> Steps:
    """Refuses a request with many names in steps: only one of them can be described."""
    if [len(topic.partitions) for topic in request.topics] == [1]:
        return handle(controller, request, call)
    require_on_cluster(controller, call, Operation.DESCRIBE)
    return (yield from _refused(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def _replica(status: ReplicaStatus) -> ReplicaState:
    return ReplicaState(
        replica_id=status.key.id,
        replica_directory_id=status.key.directory_id,
        log_end_offset=status.end_offset,
        last_fetch_timestamp=status.last_fetch_wall_ms,
        last_caught_up_timestamp=status.last_caught_up_wall_ms,
    )


def _node(controller: Controller, voter: ReplicaStatus) -> Node:
    own, opened = controller.log.voter.id, controller.settings.open_listeners
    return Node(
        node_id=voter.key.id,
        listeners=[
            Listener(name=point.listener, host=point.host, port=point.port)
            for point in voter.endpoints
            if voter.key.id != own or point.listener in opened
        ],
    )


def _refused(
    request: DescribeQuorumRequest, code: ErrorCode
) -> Generator[None, None, DescribeQuorumResponse]:
    response = DescribeQuorumResponse(error_message="")
    for topic in request.topics:
        yield
        refused = ResponseTopicData(topic_name=topic.topic_name)
        response.topics.append(refused)
        for partition in topic.partitions:
            yield
            refused.partitions.append(
                ResponsePartitionData(
                    partition_index=partition.partition_index,
                    error_code=code,
                    error_message=code.description,
                )
            )
    return response


API = Api(
    messages=messages,
    handle=handle,
    versions=range(0, 3),
    owner="controller",
    handle_large=handle_large,
)
