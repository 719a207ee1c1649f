"""DescribeLogDirs, v1-5: what lies where on disk, and how large it is.

A null list of topics asks for all. A failed data folder is answered with KAFKA_STORAGE_ERROR and
without partitions. A partition that is named twice is answered once. v2 flexible. v3 top-level
error. v4 sizes of the volume. v5 cordoned folders (none here). Needs DESCRIBE on the cluster;
before v3 there is no place for the refusal, only an empty list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.broker.broker import Broker
from headrace.broker.replicas.topics import Topic
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
from headrace.serving.api import Api, Call, require_few_partitions
from headrace.serving.rights import require_on_cluster
from headrace.storage.log_folder import LogFolder

UNKNOWN = -1  # the size of a volume that cannot be asked


def handle(broker: Broker, request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    require_on_cluster(broker, call, Operation.DESCRIBE)
    folders = broker.partitions.folders
    by_name = broker.topics.by_name
    asked: list[tuple[Topic, Iterable[int]]]
    if request.topics is None:
        asked = [(topic, range(len(topic.replicas))) for topic in by_name.values()]
    else:
        require_few_partitions(messages.NAME, sum(len(each.partitions) for each in request.topics))
        named: dict[str, dict[int, None]] = {}
        for each in request.topics:
            named.setdefault(each.topic, {}).update(dict.fromkeys(each.partitions))
        asked = [(by_name[name], indexes) for name, indexes in named.items() if name in by_name]
    results = [
        DescribeLogDirsResult(
            ErrorCode.NONE, path, described(folder, asked), *space_of(broker, path)
        )
        for path, folder in folders.online.items()
    ]
    results += [
        DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, path, [], UNKNOWN, UNKNOWN)
        for path in folders.offline
    ]
    return DescribeLogDirsResponse(0, ErrorCode.NONE, results)


def space_of(broker: Broker, path: str) -> tuple[int, int]:
    try:
        return broker.partitions.space(path)
    except OSError as problem:
        broker.partitions.failures.met(path, problem)
        return UNKNOWN, UNKNOWN


def described(
    folder: LogFolder, asked: Iterable[tuple[Topic, Iterable[int]]]
) -> list[DescribeLogDirsTopic]:
    """Of the partitions that are asked about, those that lie in this folder."""
    topics = (
        DescribeLogDirsTopic(topic.name, [*partitions_in(folder, topic, indexes)])
        for topic, indexes in asked
    )
    return [topic for topic in topics if topic.partitions]


def partitions_in(
    folder: LogFolder, topic: Topic, indexes: Iterable[int]
) -> Iterator[DescribeLogDirsPartition]:
    for index in indexes:
        replica = topic.replicas[index] if 0 <= index < len(topic.replicas) else None
        if replica is None:
            continue
        key = topic.name, index
        if folder.logs.get(key) is replica.log:
            yield DescribeLogDirsPartition(index, replica.log.size_bytes, 0, False)
        if (copy := folder.futures.get(key)) is not None:
            lag = max(replica.log.end_offset - copy.end_offset, 0)
            yield DescribeLogDirsPartition(index, copy.size_bytes, lag, True)


API = Api(messages=messages, handle=handle, versions=range(1, 6))
