"""DescribeLogDirs, v1-5: what lies where on disk, and how large it is.

A null list of topics asks for all. v2 flexible. v3 top-level error. v4 sizes of the volume.
v5 cordoned folders (none here). Needs DESCRIBE on the cluster; before v3 there is no place for the
refusal, only an empty list.
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.broker.topics import Topic
from headrace.protocol.acls import Operation
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import describe_log_dirs as messages
from headrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from headrace.serving.api import Api, Call
from headrace.serving.rights import require_on_cluster


def handle(broker: Broker, request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    require_on_cluster(broker, call, Operation.DESCRIBE)
    by_name = broker.topics.by_name
    if request.topics is None:
        topics = [describe(topic, range(len(topic.replicas))) for topic in by_name.values()]
    else:
        topics = [
            describe(by_name[wanted.topic], wanted.partitions)
            for wanted in request.topics
            if wanted.topic in by_name
        ]
        topics = [topic for topic in topics if topic.partitions]
    total_bytes, usable_bytes = broker.partitions.space()
    result = DescribeLogDirsResult(
        ErrorCode.NONE, broker.partitions.folder, topics, total_bytes, usable_bytes
    )
    return DescribeLogDirsResponse(0, ErrorCode.NONE, [result])


def describe(topic: Topic, indexes: range | list[int]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        topic.name,
        [
            DescribeLogDirsPartition(index, replica.log.size_bytes, 0, False)
            for index in indexes
            if 0 <= index < len(topic.replicas) and (replica := topic.replicas[index]) is not None
        ],
    )


API = Api(messages=messages, handle=handle, versions=range(1, 6))
