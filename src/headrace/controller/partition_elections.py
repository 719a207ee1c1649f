"""Who leads a partition after a broker came or went.

A leader is taken from the in-sync replicas, then from the eligible leader replicas (KIP-966: they
left while the partition was below min.insync.replicas, so they have everything that was
acknowledged), then from the last known leader if nobody else is left. Never unclean otherwise.
Returns PartitionChangeRecords; a partition that stays as it is has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from headrace.metadata.image import (
    BROKER_RESOURCE,
    NO_LEADER,
    TOPIC_RESOURCE,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from headrace.protocol.messages.partition_change_record import PartitionChangeRecord

RECOVERING = 1
MIN_IN_SYNC_REPLICAS = "min.insync.replicas"


def broker_returns(image: MetadataImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """The broker is unfenced: it may lead what has no leader.

    A partition it already leads (it was killed and never left) begins a new epoch, so that clients
    and followers compare their logs with one that may have lost its unflushed tail.
    """
    for topic, index, partition in partitions_of(image, broker_id):
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
    """The broker stops or is gone: it leaves every ISR, and another in-sync replica leads.

    `min_in_sync_replicas` is the static default, for topics that say nothing themselves.
    """
    elr_enabled = image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0
    for topic, index, partition in partitions_of(image, broker_id):
        if broker_id not in partition.isr:
            continue
        isr = [replica for replica in partition.isr if replica != broker_id]
        changes: dict[str, Any] = {}
        if isr or elr_enabled:
            changes["isr"] = isr  # without eligible leaders the last in-sync replica must stay
        if partition.leader == broker_id:
            changes["leader"] = _first_alive(image, isr, partition.replicas)
        if elr_enabled:
            enough = min(
                required_in_sync(image, topic.name, min_in_sync_replicas), len(partition.replicas)
            )
            changes |= _eligible_after(partition, isr, enough)
        if changes:
            yield change(topic, index, **changes)


def _first_alive(image: MetadataImage, isr: list[int], replicas: Sequence[int]) -> int:
    for replica in replicas:
        if replica in isr and image.brokers[replica].alive:
            return replica
    return NO_LEADER


def _eligible_after(partition: PartitionImage, isr: list[int], enough: int) -> dict[str, Any]:
    """Who may lead besides the ISR; and, once nobody is in it, who led last."""
    if len(isr) >= enough:
        return {}
    candidates = set(partition.isr) | set(partition.eligible_leader_replicas)
    eligible = sorted(candidates - set(isr))
    changes: dict[str, Any] = {}
    if tuple(eligible) != partition.eligible_leader_replicas:
        changes["eligible_leader_replicas"] = eligible
    if not isr and partition.last_known_elr != (partition.leader,):
        changes["last_known_elr"] = [partition.leader]
    return changes


def required_in_sync(image: MetadataImage, topic: str, default: int) -> int:
    for resource in ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, "")):
        value = image.config(*resource).get(MIN_IN_SYNC_REPLICAS)
        if value is not None:
            return int(value)
    return default


def partitions_of(
    image: MetadataImage, broker_id: int
) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if broker_id in partition.replicas:
                yield topic, index, partition


def change(topic: TopicImage, index: int, **changes: Any) -> PartitionChangeRecord:
    """A record that says only what changes; its other fields mean "as it was"."""
    record = PartitionChangeRecord()
    record.partition_id = index
    record.topic_id = topic.id
    for name, value in changes.items():
        setattr(record, name, value)
    return record
