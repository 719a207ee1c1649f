"""Replicas of all partitions, from the metadata that any broker returns: one request.

`headrace cluster status` shows more (`client/admin/cluster_status.py`): min ISR, fenced brokers,
offline folders and why a replica is out of sync. It needs several requests for that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.admin.topics import Topics


@dataclass(slots=True)
class TroubledPartition:
    """A partition with fewer replicas in sync than it has, or without a leader."""

    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]


@dataclass(slots=True)
class ReplicaFacts:
    leads: Counter[int] = field(default_factory=Counter)  # partitions, by broker
    holds: Counter[int] = field(default_factory=Counter)
    partitions: int = 0
    troubled: list[TroubledPartition] = field(default_factory=list)

    @property
    def under_replicated(self) -> int:
        return sum(len(each.in_sync) < len(each.replicas) for each in self.troubled)

    @property
    def without_leader(self) -> int:
        return sum(each.leader is None for each in self.troubled)


def replica_facts(topics: Topics) -> ReplicaFacts:
    known = topics.cluster
    facts = ReplicaFacts()
    for name, topic in sorted(known.topics.items()):
        for index, found in sorted(topic.partitions.items()):
            facts.partitions += 1
            leader = found.leader if found.leader in known.brokers else None
            if leader is not None:
                facts.leads[leader] += 1
            facts.holds.update(found.replicas)
            if leader is None or len(found.isrs) < len(found.replicas):
                facts.troubled.append(
                    TroubledPartition(name, index, leader, list(found.replicas), list(found.isrs))
                )
    return facts
