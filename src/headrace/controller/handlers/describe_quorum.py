"""DescribeQuorum, v0-2: who votes on the metadata, who leads, and how far everybody is.

Only partition 0 of `__cluster_metadata` can be asked for. v1 adds times of the last fetch, v2 the
directories of the voters and where they listen (KIP-853). A quorum of one has no observers, and an
address in its records, which Apache Kafka needs; it is told only if somebody listens there. Needs
DESCRIBE on the cluster.
"""

from __future__ import annotations

from headrace.controller.controller import Controller
from headrace.metadata.topic_names import METADATA_TOPIC
from headrace.protocol.acls import Operation
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import describe_quorum as messages
from headrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from headrace.serving.api import Api, Call
from headrace.serving.rights import require_on_cluster


def handle(
    controller: Controller, request: DescribeQuorumRequest, call: Call
) -> DescribeQuorumResponse:
    require_on_cluster(controller, call, Operation.DESCRIBE)
    asked = [
        (topic.topic_name, p.partition_index) for topic in request.topics for p in topic.partitions
    ]
    if asked != [(METADATA_TOPIC, 0)]:
        return _unknown(request)
    quorum = controller.log
    replica = ReplicaState(
        replica_id=quorum.voter.id,
        replica_directory_id=quorum.voter.directory_id,
        log_end_offset=quorum.log.end_offset,
        last_fetch_timestamp=call.now.wall_ms,
        last_caught_up_timestamp=call.now.wall_ms,
    )
    partition = ResponsePartitionData(
        partition_index=0,
        error_message="",
        leader_id=quorum.voter.id,
        leader_epoch=quorum.epoch,
        high_watermark=controller.committed_image.offset + 1,
        current_voters=[replica],
        observers=[],
    )
    listeners = [
        Listener(name=point.listener, host=point.host, port=point.port)
        for point in quorum.voter.endpoints
        if point.listener in controller.settings.open_listeners
    ]
    return DescribeQuorumResponse(
        error_message="",
        topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=[Node(node_id=quorum.voter.id, listeners=listeners)],
    )


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_message="",
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    ResponsePartitionData(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.description,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


API = Api(messages=messages, handle=handle, versions=range(0, 3), owner="controller")
