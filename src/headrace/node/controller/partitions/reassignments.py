"""Decisions about reassignments, which move a partition's replicas to other brokers (KIP-455).

A reassignment begins with a record that adds the new replicas to the old ones and names both
(`adding`, `removing`). It is completed when all remaining replicas are in sync: in the same record
if they already are, else by the change of the ISR after which they are (`partition_changes.py`). A
null list of replicas cancels it: added replicas are removed, and those to be removed stay. Each
partition has its own result. Does not move any data: brokers follow the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.node.controller.decision import Decision
from headrace.node.controller.partitions.partition_changes import (
    UNCLEAN_ELECTION,
    Election,
    Wanted,
    as_it_is,
    partition_change,
)
from headrace.node.controller.partitions.placement import require_manual_assignment
from headrace.node.metadata.configs import topic_values
from headrace.node.metadata.image import MetadataImage, PartitionImage, TopicImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from headrace.wire.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from headrace.wire.protocol.messages.partition_change_record import PartitionChangeRecord

# Replicas by partition index; None: cancel what is under way.
Targets = Mapping[int, Sequence[int] | None]


@dataclass(slots=True)
class Rules:
    """The start settings of the node that reassignments need."""

    min_in_sync_replicas: int = 1
    given: Mapping[str, str] = field(default_factory=dict, repr=False)


def alter_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, rules: Rules
) -> Decision[AlterPartitionReassignmentsResponse]:
    records: list[Any] = []
    responses: list[ReassignableTopicResponse] = []
    any_number = request.allow_replication_factor_change
    for name, targets in targets_of(request).items():
        answer = ReassignableTopicResponse(name=name)
        for index, target in targets.items():
            result = ReassignablePartitionResponse(index, ErrorCode.NONE, None)
            try:
                topic = _require_partition(image, name, index)
                if target is None:
                    record = _cancel(image, topic, index, rules)
                else:
                    _require_target(image, topic.partitions[index], target, any_number=any_number)
                    record = _reassign(image, topic, index, target, rules)
            except KafkaError as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
            else:
                if record is not None:
                    records.append(record)
            answer.partitions.append(result)
        responses.append(answer)
    response = AlterPartitionReassignmentsResponse(0, any_number, ErrorCode.NONE, None, responses)
    return Decision(records, response)


def targets_of(request: AlterPartitionReassignmentsRequest) -> dict[str, Targets]:
    """Returns the targets by topic; if a partition is named twice, the last one counts."""
    targets: dict[str, dict[int, Sequence[int] | None]] = {}
    for topic in request.topics:
        wanted = targets.setdefault(topic.name, {})
        for partition in topic.partitions:
            wanted[partition.partition_index] = partition.replicas
    return dict(targets)


def _require_partition(image: MetadataImage, name: str, index: int) -> TopicImage:
    topic = image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise KafkaError(unknown, unknown.description)
    return topic


def _require_target(
    image: MetadataImage, partition: PartitionImage, target: Sequence[int], *, any_number: bool
) -> None:
    require_manual_assignment(image.brokers, target, None)
    staying = {*partition.replicas, *partition.adding_replicas} - {*partition.removing_replicas}
    # KIP-860: a plan from before the topic got more replicas must not take them away.
    if not any_number and len(staying) != len(target):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The partition would have {len(target)} replicas instead of {len(staying)}.",
        )


def _reassign(
    image: MetadataImage, topic: TopicImage, index: int, target: Sequence[int], rules: Rules
) -> PartitionChangeRecord | None:
    partition = topic.partitions[index]
    removing = sorted(set(partition.replicas).difference(target))
    adding = sorted(set(target).difference(partition.replicas))
    wanted = as_it_is(partition)
    wanted.replicas = [*target, *removing]
    wanted.removing = removing or wanted.removing
    wanted.adding = adding or wanted.adding
    minimum = rules.min_in_sync_replicas
    return partition_change(image, topic, index, wanted, min_in_sync_replicas=minimum)


def _cancel(
    image: MetadataImage, topic: TopicImage, index: int, rules: Rules
) -> PartitionChangeRecord | None:
    partition = topic.partitions[index]
    if not is_reassigned(partition):
        none = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        raise KafkaError(none, none.description)
    wanted = as_it_was(partition)
    unclean = topic_values(rules.given, image.configs, topic.name)[UNCLEAN_ELECTION]
    if not set(wanted.isr) <= set(partition.isr) and not unclean:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "To cancel it would need an unclean election, which the topic does not allow.",
        )
    return partition_change(
        image,
        topic,
        index,
        wanted,
        min_in_sync_replicas=rules.min_in_sync_replicas,
        election=Election.UNCLEAN if unclean else Election.ONLINE,
    )


def as_it_was(partition: PartitionImage) -> Wanted:
    """Returns the state before the reassignment. If only new replicas are in sync, the first old
    one must lead."""
    wanted = as_it_is(partition)
    wanted.replicas = [r for r in partition.replicas if r not in partition.adding_replicas]
    wanted.isr = [r for r in partition.isr if r not in partition.adding_replicas]
    wanted.adding, wanted.removing = [], []
    if not wanted.replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "No replica was there before the reassignment."
        )
    if not wanted.isr:
        wanted.isr = wanted.replicas[:1]
    return wanted


def is_reassigned(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def list_reassignments(
    image: MetadataImage, topics: Sequence[ListPartitionReassignmentsTopics] | None
) -> list[OngoingTopicReassignment]:
    """Returns the ongoing reassignments of the named partitions, or of all."""
    found = []
    for topic, indexes in _listed(image, topics):
        ongoing = [
            OngoingPartitionReassignment(
                index,
                list(partition.replicas),
                list(partition.adding_replicas),
                list(partition.removing_replicas),
            )
            for index in indexes
            if 0 <= index < len(topic.partitions)
            and is_reassigned(partition := topic.partitions[index])
        ]
        if ongoing:
            found.append(OngoingTopicReassignment(topic.name, ongoing))
    return found


def _listed(
    image: MetadataImage, topics: Sequence[ListPartitionReassignmentsTopics] | None
) -> Iterator[tuple[TopicImage, Sequence[int]]]:
    if topics is None:
        for topic in image.topics.values():
            yield topic, range(len(topic.partitions))
        return
    named: dict[str, dict[int, None]] = {}
    for asked in topics:
        named.setdefault(asked.name, {}).update(dict.fromkeys(asked.partition_indexes))
    for name, indexes in named.items():
        if name in image.topics:
            yield image.topics[name], list(indexes)
