"""The data folder of each replica on its broker, and the changes after a folder is lost.

A broker with several folders reports the folder of each replica (AssignReplicasToDirs, KIP-858),
and in its heartbeats the folders that have failed: replicas there leave the ISR, and others lead.
The broker itself continues with its other folders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from headrace.node.controller.decision import Decision
from headrace.node.controller.partitions.partition_changes import (
    as_it_is,
    election_allowed,
    partition_change,
)
from headrace.node.controller.partitions.partition_elections import changed, partitions_of
from headrace.node.controller.producer_ids import require_current_broker
from headrace.node.metadata.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    MetadataImage,
    TopicImage,
)
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)
from headrace.wire.protocol.messages.broker_registration_change_record import (
    BrokerRegistrationChangeRecord,
)
from headrace.wire.protocol.messages.partition_change_record import PartitionChangeRecord

RESERVED_DIRECTORIES = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY)


def assign_replicas(
    image: MetadataImage, request: AssignReplicasToDirsRequest, min_in_sync_replicas: int
) -> Decision[AssignReplicasToDirsResponse]:
    require_current_broker(image, request.broker_id, request.broker_epoch)
    broker = image.brokers[request.broker_id]
    records: list[Any] = []
    response = AssignReplicasToDirsResponse()
    for directory in request.directories:
        answer = ResponseDirectoryData(id=directory.id)
        response.directories.append(answer)
        for asked in directory.topics:
            topic = image.topics_by_id.get(asked.topic_id)
            answers = ResponseTopicData(topic_id=asked.topic_id)
            answer.topics.append(answers)
            for partition in asked.partitions:
                index = partition.partition_index
                code = _assign(
                    image, broker, topic, index, directory.id, min_in_sync_replicas, records
                )
                answers.partitions.append(ResponsePartitionData(index, code))
    return Decision(records, response)


def _assign(
    image: MetadataImage,
    broker: BrokerImage,
    topic: TopicImage | None,
    index: int,
    directory: bytes,
    min_in_sync_replicas: int,
    records: list[Any],
) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = topic.partitions[index]
    if broker.id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    wanted = as_it_is(partition)
    wanted.directories[broker.id] = directory
    before = partition.directories[partition.replicas.index(broker.id)]
    distrusted: tuple[int, ...] = ()
    is_lost = directory not in broker.log_dirs
    if before not in (*RESERVED_DIRECTORIES, *broker.log_dirs) and not is_lost:
        wanted.emptied.add(broker.id)  # that folder is gone, and the replica begins empty
        if partition.leader == NO_LEADER or broker.id not in wanted.isr:  # not filled again yet
            distrusted = (broker.id,)
            wanted.isr = [replica for replica in wanted.isr if replica != broker.id]
    if is_lost and broker.id in wanted.isr:
        wanted.isr.remove(broker.id)
    record = partition_change(
        image,
        topic,
        index,
        wanted,
        min_in_sync_replicas=min_in_sync_replicas,
        election=election_allowed(image, topic.name),
        without=(broker.id,) if is_lost else (),
        distrusted=distrusted,
    )
    if record is not None:
        records.append(record)
    return ErrorCode.NONE


def directories_failed(
    image: MetadataImage,
    broker: BrokerImage,
    failed: Collection[bytes],
    min_in_sync_replicas: int,
) -> Iterator[Any]:
    """Yields nothing if all of them are known to have failed already."""
    lost = set(failed).intersection(broker.log_dirs)
    if not lost:
        return
    yield from _replicas_lost(image, broker, lost.__contains__, min_in_sync_replicas)
    yield BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        log_dirs=[directory for directory in broker.log_dirs if directory not in lost],
    )


def directories_are_missing(
    image: MetadataImage, broker: BrokerImage, min_in_sync_replicas: int
) -> Iterator[Any]:
    """Yields the changes for replicas in directories with which the broker did not register: it
    started without them."""

    def is_missing(directory: bytes) -> bool:
        return directory not in RESERVED_DIRECTORIES and directory not in broker.log_dirs

    yield from _replicas_lost(image, broker, is_missing, min_in_sync_replicas)


def _replicas_lost(
    image: MetadataImage,
    broker: BrokerImage,
    is_lost: Callable[[bytes], bool],
    min_in_sync_replicas: int,
) -> Iterator[PartitionChangeRecord]:
    for topic, index, partition in partitions_of(image, broker.id):
        directory = partition.directories[partition.replicas.index(broker.id)]
        if broker.id not in (*partition.isr, partition.leader) or not is_lost(directory):
            continue
        wanted = as_it_is(partition)
        wanted.isr = [replica for replica in wanted.isr if replica != broker.id]
        yield from changed(image, topic, index, wanted, min_in_sync_replicas, without=(broker.id,))
