"""AlterPartition: a leader proposes an ISR, and the controller accepts it or not (KIP-497).

A proposal counts only if it comes from the current start of the broker that leads, in the current
leader epoch, and about the present partition epoch: a delayed proposal must not undo later
decisions. A replica does not join if its broker is fenced, is stopping, or has restarted since it
fetched (KIP-903). A change may complete a reassignment, and then another broker may lead. The order
of checks and the codes are Apache's, with one exception (decision 35): a leader that proposes the
ISR without itself gives up its leadership, and another in-sync replica is elected.
"""

from __future__ import annotations

from typing import Any

from headrace.node.controller.decision import Decision
from headrace.node.controller.partitions.partition_changes import (
    RECOVERING,
    Election,
    as_it_is,
    election_allowed,
    leadership,
    partition_change,
)
from headrace.node.controller.producer_ids import require_current_broker
from headrace.node.metadata.image import (
    UNASSIGNED_DIRECTORY,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from headrace.node.metadata.replay import LEADER_UNCHANGED, changed_partition
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

NOT_CHECKED = -1  # a broker epoch that is not compared
FIRST_VERSION_WITH_EPOCHS = 3


def alter_partition(
    image: MetadataImage,
    request: AlterPartitionRequest,
    version: int,
    min_in_sync_replicas: int,
) -> Decision[AlterPartitionResponse]:
    records: list[Any] = []
    response = AlterPartitionResponse()
    if not request.topics:  # an empty request gets an empty answer, as from Apache's controller
        return Decision(records, response)
    require_current_broker(image, request.broker_id, request.broker_epoch)
    for asked in request.topics:
        topic = image.topics_by_id.get(asked.topic_id)
        answers = ResponseTopicData(topic_id=asked.topic_id)
        response.topics.append(answers)
        for wanted in asked.partitions:
            if topic is None:
                answer = _refused(wanted, ErrorCode.UNKNOWN_TOPIC_ID)
            else:
                answer = _alter_one(
                    image, request.broker_id, topic, wanted, version, min_in_sync_replicas, records
                )
            answers.partitions.append(answer)
    return Decision(records, response)


def _alter_one(
    image: MetadataImage,
    broker_id: int,
    topic: TopicImage,
    asked: RequestPartitionData,
    version: int,
    min_in_sync_replicas: int,
    records: list[Any],
) -> ResponsePartitionData:
    index = asked.partition_index
    if not 0 <= index < len(topic.partitions):
        return _refused(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[index]
    members = _members(asked, version)
    refusal = find_fault(image, broker_id, partition, asked, members)
    if refusal is not None:
        return _refused(asked, refusal)
    wanted = as_it_is(partition)
    wanted.isr = [member.broker_id for member in members]
    gives_up = broker_id not in wanted.isr
    wanted.recovery_state = asked.leader_recovery_state
    record = partition_change(
        image,
        topic,
        index,
        wanted,
        min_in_sync_replicas=min_in_sync_replicas,
        # A leader that gives up never causes an unclean election: another replica is in sync.
        election=Election.ONLINE if gives_up else election_allowed(image, topic.name),
        without=(broker_id,) if gives_up else (),
    )
    if record is not None:
        records.append(record)
        if record.leader not in (LEADER_UNCHANGED, broker_id):
            return _refused(asked, ErrorCode.NEW_LEADER_ELECTED)
        partition = changed_partition(partition, record)
    return ResponsePartitionData(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _members(asked: RequestPartitionData, version: int) -> list[BrokerState]:
    if version >= FIRST_VERSION_WITH_EPOCHS:
        return list(asked.new_isr_with_epochs)
    return [BrokerState(replica, NOT_CHECKED) for replica in asked.new_isr]


def find_fault(
    image: MetadataImage,
    broker_id: int,
    partition: PartitionImage,
    asked: RequestPartitionData,
    members: list[BrokerState],
) -> ErrorCode | None:
    """Returns why a proposal is refused; None if it is accepted."""
    epochs = asked.leader_epoch, asked.partition_epoch
    known = partition.leader_epoch, partition.partition_epoch
    if epochs[0] > known[0] or epochs[1] > known[1]:
        return ErrorCode.NOT_CONTROLLER  # it has a newer epoch: another node is active
    if epochs[0] < known[0]:
        return ErrorCode.FENCED_LEADER_EPOCH
    if partition.leader != broker_id:
        return ErrorCode.INVALID_REQUEST
    if epochs[1] < known[1]:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [member.broker_id for member in members]
    if not isr or len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if broker_id not in isr and set(isr) != set(partition.isr) - {broker_id}:
        return ErrorCode.INVALID_REQUEST
    if asked.leader_recovery_state == RECOVERING and (
        len(isr) > 1 or partition.leader_recovery_state != RECOVERING
    ):
        return ErrorCode.INVALID_REQUEST
    if not all(is_eligible(image, partition, member) for member in members):
        return ErrorCode.INELIGIBLE_REPLICA
    if broker_id not in isr and not any(map(leadership(image, partition), isr)):
        return ErrorCode.INELIGIBLE_REPLICA
    return None


def is_eligible(image: MetadataImage, partition: PartitionImage, member: BrokerState) -> bool:
    broker = image.brokers.get(member.broker_id)
    if broker is None or not broker.alive:
        return False
    if member.broker_id not in partition.isr:
        directories = dict(zip(partition.replicas, partition.directories, strict=False))
        if not broker.has_directory(directories.get(broker.id, UNASSIGNED_DIRECTORY)):
            return False  # its data folder has failed
    return member.broker_epoch in (NOT_CHECKED, broker.epoch)


def _refused(asked: RequestPartitionData, code: ErrorCode) -> ResponsePartitionData:
    return ResponsePartitionData(partition_index=asked.partition_index, error_code=code)
