"""AlterReplicaLogDirs, v1-2: replicas move to another data folder of the same broker (KIP-113).

v2 flexible. The answer says that the move has begun (`folder_moves.py`); DescribeLogDirs shows how
far it is. Naming the folder that the replica is in ends a move. A replica that does not exist yet
will be made in the named folder, and is answered with REPLICA_NOT_AVAILABLE, as in Apache Kafka:
`kafka-reassign-partitions` counts on it. Needs ALTER on the cluster.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.serving.api import Api, Call, require_few_partitions
from headrace.node.serving.rights import may_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import alter_replica_log_dirs as messages
from headrace.wire.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(
    broker: Broker, request: AlterReplicaLogDirsRequest, call: Call
) -> AlterReplicaLogDirsResponse:
    named = sum(len(topic.partitions) for folder in request.dirs for topic in folder.topics)
    require_few_partitions(messages.NAME, named)
    allowed = may_on_cluster(broker, call, Operation.ALTER)
    results: dict[str, dict[int, ErrorCode]] = {}  # of a partition named twice, the last one counts
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
    folders = broker.partitions.folders
    if path not in folders.paths:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if path in folders.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    topic = broker.image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.partitions.is_offline(topic, index, broker.image):
        return ErrorCode.KAFKA_STORAGE_ERROR
    holder = folders.holder(name, index)
    if holder is None:
        folders.preferred[name, index] = path
        return ErrorCode.REPLICA_NOT_AVAILABLE
    here = broker.topics.by_name.get(name)
    replica = here.replicas[index] if here is not None and here.has(index) else None
    if replica is None:  # the broker is about to open it
        return ErrorCode.REPLICA_NOT_AVAILABLE
    try:
        if holder.path == path:
            broker.folder_moves.cancel((name, index))
        else:
            broker.folder_moves.begin(replica, folders.online[path])
    except OSError as problem:
        broker.partitions.failures.met(problem.filename or path, problem)
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE


API = Api(messages=messages, handle=handle, versions=range(1, 3))
