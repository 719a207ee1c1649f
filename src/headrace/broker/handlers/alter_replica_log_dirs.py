"""AlterReplicaLogDirs, v1-2: replicas move to another data folder of the same broker (KIP-113).

v2 flexible. A node has one data folder: to name it changes nothing, any other path is
LOG_DIR_NOT_FOUND. So no replica is ever on its way, and DescribeLogDirs shows no future one. Needs
ALTER on the cluster.
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.protocol.acls import Operation
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import alter_replica_log_dirs as messages
from headrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from headrace.serving.api import Api, Call, require_few_partitions
from headrace.serving.rights import may_on_cluster


def handle(
    broker: Broker, request: AlterReplicaLogDirsRequest, call: Call
) -> AlterReplicaLogDirsResponse:
    named = sum(len(topic.partitions) for folder in request.dirs for topic in folder.topics)
    require_few_partitions(messages.NAME, named)
    allowed = may_on_cluster(broker, call, Operation.ALTER)
    results: dict[str, dict[int, ErrorCode]] = {}  # a partition that is named twice: the last word
    for folder in request.dirs:
        for topic in folder.topics:
            answers = results.setdefault(topic.name, {})
            for index in topic.partitions:
                answers[index] = (
                    move(broker, folder.path, topic.name, index)
                    if allowed
                    else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                )
    return AlterReplicaLogDirsResponse(
        0,
        [
            AlterReplicaLogDirTopicResult(
                name,
                [AlterReplicaLogDirPartitionResult(index, code) for index, code in answers.items()],
            )
            for name, answers in results.items()
            if answers
        ],
    )


def move(broker: Broker, path: str, name: str, index: int) -> ErrorCode:
    if path != broker.partitions.folder:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = broker.image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.node_id not in topic.partitions[index].replicas:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE


API = Api(messages=messages, handle=handle, versions=range(1, 3))
