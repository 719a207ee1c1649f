"""DescribeLogDirs, v1-5: the replicas in each data folder, and their sizes.

A null list of topics asks for all. A failed data folder is answered with KAFKA_STORAGE_ERROR and
without partitions. A folder whose disk refuses appends has no usable bytes. The lag of a follower
is counted to the last high watermark that its leader sent, which its own log may not have reached.
A partition that is named twice is answered once. v2 flexible. v3 top-level error. v4 sizes of the
volume. v5 cordoned folders (KIP-1066). Needs DESCRIBE on the cluster; before v3 there is no place
for the refusal, only an empty list. A question about very many partitions is answered in slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from headrace.node.broker.broker import Broker
from headrace.node.broker.replicas.topics import Topic
from headrace.node.replication.replica import PartitionReplica
from headrace.node.serving.api import Api, Call, require_few_partitions
from headrace.node.serving.rights import require_on_cluster
from headrace.node.steps import Steps, at_once
from headrace.node.storage.log_folder import LogFolder
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import describe_log_dirs as messages
from headrace.wire.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

UNKNOWN = -1  # the size of a volume that cannot be determined
# A partition takes about 5 us; more than these are described in several turns, so many in each.
MANY_PARTITIONS = 2_000
PARTITIONS_PER_STEP = 250

Asked = list[tuple[Topic, Iterable[int]]]


def handle(
    broker: Broker, request: DescribeLogDirsRequest, call: Call
) -> DescribeLogDirsResponse | Steps:
    require_on_cluster(broker, call, Operation.DESCRIBE)
    by_name = broker.topics.by_name
    asked: Asked
    if request.topics is None:
        asked = [(topic, range(len(topic.replicas))) for topic in by_name.values()]
        count = sum(len(topic.replicas) for topic in by_name.values())
    else:
        count = sum(len(each.partitions) for each in request.topics)
        require_few_partitions(messages.NAME, count)
        named: dict[str, dict[int, None]] = {}
        for each in request.topics:
            named.setdefault(each.topic, {}).update(dict.fromkeys(each.partitions))
        asked = [(by_name[name], indexes) for name, indexes in named.items() if name in by_name]
    steps = describe(broker, asked)
    if count > MANY_PARTITIONS:
        return steps
    response: DescribeLogDirsResponse = at_once(steps)
    return response


def describe(broker: Broker, asked: Asked) -> Steps:
    """Describes the folders in steps; one that fails between two steps keeps its earlier
    description."""
    folders = broker.partitions.folders
    results = []
    for path, folder in list(folders.online.items()):
        topics = []
        for topic, indexes in asked:
            found = partitions_in(folder, topic, indexes)
            partitions: list[DescribeLogDirsPartition] = []
            while some := list(islice(found, PARTITIONS_PER_STEP)):
                partitions += some
                yield
            if partitions:
                topics.append(DescribeLogDirsTopic(topic.name, partitions))
        described = DescribeLogDirsResult(ErrorCode.NONE, path, topics, *space_of(broker, path))
        described.is_cordoned = path in folders.cordoned
        results.append(described)
    results += [
        DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, path, [], UNKNOWN, UNKNOWN)
        for path in folders.offline
        if not any(each.log_dir == path for each in results)
    ]
    return DescribeLogDirsResponse(0, ErrorCode.NONE, results)


def space_of(broker: Broker, path: str) -> tuple[int, int]:
    try:
        total, usable = broker.partitions.space(path)
        return total, 0 if path in broker.this.refusing else usable
    except OSError as problem:
        broker.partitions.failures.met(path, problem)
        return UNKNOWN, UNKNOWN


def partitions_in(
    folder: LogFolder, topic: Topic, indexes: Iterable[int]
) -> Iterator[DescribeLogDirsPartition]:
    for index in indexes:
        replica = topic.replicas[index] if 0 <= index < len(topic.replicas) else None
        if replica is None:
            continue
        key = topic.name, index
        if folder.logs.get(key) is replica.log:
            yield DescribeLogDirsPartition(index, replica.log.size_bytes, lag_of(replica), False)
        if (copy := folder.futures.get(key)) is not None:
            lag = max(replica.log.end_offset - copy.end_offset, 0)
            yield DescribeLogDirsPartition(index, copy.size_bytes, lag, True)


def lag_of(replica: PartitionReplica) -> int:
    """Returns how many offsets a follower is behind the last high watermark that its leader
    sent."""
    following = replica.following
    if following is None:
        return 0
    return max(following.leader_high_watermark - replica.log.end_offset, 0)


API = Api(messages=messages, handle=handle, versions=range(1, 6))
