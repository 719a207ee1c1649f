"""Chooses the leader of a partition after a broker came or went, or when an operator asks for an
election.

A leader is taken from the in-sync replicas, then from the eligible leader replicas (KIP-966: they
left while the partition was below min.insync.replicas, so they have everything that was
acknowledged), then from the last known leader if there is no other. Elections are unclean otherwise
only if an operator allows it. Returns PartitionChangeRecords; an unchanged partition has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.node.controller.decision import Decision
from headrace.node.controller.partitions.partition_changes import (
    RECOVERING,
    Election,
    Wanted,
    as_it_is,
    change,
    election_allowed,
    partition_change,
)
from headrace.node.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from headrace.wire.protocol.messages.partition_change_record import PartitionChangeRecord

# The kinds of elections that an operator may ask for, by their numbers in ElectLeaders.
ASKED_FOR = {0: Election.PREFERRED, 1: Election.UNCLEAN}


def broker_returns(image: MetadataImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """The broker is unfenced: it may lead partitions without a leader.

    A partition that it already leads (it was killed and never left) begins a new epoch, so that
    clients and followers compare their logs with one that may have lost its unflushed tail.
    """
    for topic, index, partition in partitions_of(image, broker_id):
        directory = partition.directories[partition.replicas.index(broker_id)]
        if not image.brokers[broker_id].has_directory(directory):
            continue
        if partition.leader == broker_id:
            yield change(topic, index, leader=broker_id)
        elif partition.leader == NO_LEADER:
            elected = _elect(partition, broker_id)
            if elected:
                yield change(topic, index, **elected)


def _elect(partition: PartitionImage, broker_id: int) -> dict[str, Any]:
    if broker_id in partition.isr:
        return {"leader": broker_id}
    elected: dict[str, Any] = {"leader": broker_id, "isr": [broker_id]}
    if broker_id in partition.eligible_leader_replicas:
        others = [r for r in partition.eligible_leader_replicas if r != broker_id]
        return elected | {"eligible_leader_replicas": others, "last_known_elr": []}
    nobody_else = not partition.isr and not partition.eligible_leader_replicas
    if nobody_else and partition.last_known_elr == (broker_id,):
        return elected | {"last_known_elr": [], "leader_recovery_state": RECOVERING}
    return {}


def broker_leaves(
    image: MetadataImage, broker_id: int, min_in_sync_replicas: int
) -> Iterator[PartitionChangeRecord]:
    """The broker stops or has failed: it leaves every ISR, and another in-sync replica leads.

    `min_in_sync_replicas` is the static default, for topics without a value of their own.
    """
    for topic, index, partition in partitions_of(image, broker_id):
        if broker_id not in partition.isr:
            continue
        wanted = as_it_is(partition)
        wanted.isr.remove(broker_id)
        yield from changed(image, topic, index, wanted, min_in_sync_replicas, without=(broker_id,))


def broker_is_distrusted(
    image: MetadataImage, broker_id: int, min_in_sync_replicas: int
) -> Iterator[PartitionChangeRecord]:
    """The broker starts after an unclean stop, so it may have lost records: it does not count as in
    sync or eligible before it has caught up again (KIP-966)."""
    for topic, index, partition in partitions_of(image, broker_id):
        wanted = as_it_is(partition)
        if broker_id not in (*wanted.isr, *wanted.eligible):
            continue
        wanted.isr = [replica for replica in wanted.isr if replica != broker_id]
        wanted.eligible = [replica for replica in wanted.eligible if replica != broker_id]
        yield from changed(
            image, topic, index, wanted, min_in_sync_replicas, distrusted=(broker_id,)
        )


def broker_may_lead(
    image: MetadataImage, broker_id: int, min_in_sync_replicas: int
) -> Iterator[PartitionChangeRecord]:
    """The broker is back, as `image` shows: partitions without a leader may get one."""
    for topic, index, partition in partitions_of(image, broker_id):
        if partition.leader != NO_LEADER:
            continue
        yield from changed(image, topic, index, as_it_is(partition), min_in_sync_replicas)


def changed(
    image: MetadataImage,
    topic: TopicImage,
    index: int,
    wanted: Wanted,
    min_in_sync_replicas: int,
    **how: Any,
) -> Iterator[PartitionChangeRecord]:
    """Yields the record of the change, with an election as the topic allows; none if it changes
    nothing."""
    found = partition_change(
        image,
        topic,
        index,
        wanted,
        min_in_sync_replicas=min_in_sync_replicas,
        election=election_allowed(image, topic.name),
        **how,
    )
    if found is not None:
        yield found


def partitions_of(
    image: MetadataImage, broker_id: int
) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if broker_id in partition.replicas:
                yield topic, index, partition


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, min_in_sync_replicas: int
) -> Decision[ElectLeadersResponse]:
    """Elects leaders of the named partitions, or of all; for all, the answer leaves out those that
    need no election."""
    election = ASKED_FOR.get(request.election_type)
    if election is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"There is no election of type {request.election_type}."
        )
    records: list[Any] = []
    results: list[ReplicaElectionResult] = []
    for name, indexes in _asked_about(image, request):
        result = ReplicaElectionResult(topic=name)
        for index in indexes:
            refusal = _elect_leader(image, name, index, election, min_in_sync_replicas, records)
            if request.topic_partitions is None and refusal is ErrorCode.ELECTION_NOT_NEEDED:
                continue
            message = refusal.description if refusal else None
            result.partition_result.append(PartitionResult(index, refusal, message))
        results.append(result)
    return Decision(records, ElectLeadersResponse(0, ErrorCode.NONE, results))


def _asked_about(
    image: MetadataImage, request: ElectLeadersRequest
) -> Iterator[tuple[str, Sequence[int]]]:
    if request.topic_partitions is None:
        for topic in image.topics.values():
            yield topic.name, range(len(topic.partitions))
        return
    named: dict[str, dict[int, None]] = {}  # each partition is answered once
    for asked in request.topic_partitions:
        named.setdefault(asked.topic, {}).update(dict.fromkeys(asked.partitions))
    for name, indexes in named.items():
        yield name, list(indexes)


def _elect_leader(
    image: MetadataImage,
    name: str,
    index: int,
    election: Election,
    min_in_sync_replicas: int,
    records: list[Any],
) -> ErrorCode:
    topic = image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = topic.partitions[index]
    leads_well = (
        partition.leader == partition.replicas[0]
        if election is Election.PREFERRED
        else partition.leader != NO_LEADER
    )
    if leads_well:
        return ErrorCode.ELECTION_NOT_NEEDED
    record = partition_change(
        image,
        topic,
        index,
        as_it_is(partition),
        min_in_sync_replicas=min_in_sync_replicas,
        election=election,
    )
    if record is None:
        if election is Election.PREFERRED:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    records.append(record)
    return ErrorCode.NONE
