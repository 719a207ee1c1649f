"""Questions about the cluster itself: brokers, disks, the quorum, replicas that lag or move."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from headrace.client.admin.admin import Admin
from headrace.client.admin.cluster import Cluster, ClusterDescription, LogFolder, Quorum
from headrace.client.admin.placement.reassignments import Reassignment
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.console.access.parts import Part, part
from headrace.operations.checkup.cluster import check_brokers
from headrace.operations.checkup.finding import Finding
from headrace.operations.checkup.whole_cluster import check_running_cluster

MOST_TROUBLED = 100


@dataclass(slots=True)
class Troubled:
    """A partition with fewer replicas in sync than it has, or without a leader."""

    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]


@dataclass(slots=True)
class ReplicaFacts:
    leads: Counter[int]  # partitions, by broker
    holds: Counter[int]
    troubled: list[Troubled]
    troubled_left_out: int


@dataclass(slots=True)
class ClusterFacts:
    cluster: ClusterDescription
    replicas: ReplicaFacts
    folders: Part[list[LogFolder]]
    quorum: Part[Quorum]
    moves: Part[list[Reassignment]]


def cluster_facts(connection: ClientSettings) -> ClusterFacts:
    cluster = Cluster(connection)
    return ClusterFacts(
        cluster.describe(),
        _replicas(Topics(connection)),
        part(cluster.log_folders),
        part(cluster.quorum),
        part(lambda: Admin(connection).reassignments.all()),
    )


def checkup(connection: ClientSettings) -> list[Finding]:
    """As `headrace doctor` has them, without those about its own machine."""
    return [check_brokers(connection), *check_running_cluster(connection)]


def _replicas(topics: Topics) -> ReplicaFacts:
    known = topics.cluster
    leads: Counter[int] = Counter()
    holds: Counter[int] = Counter()
    troubled = []
    for name, topic in sorted(known.topics.items()):
        for index, found in sorted(topic.partitions.items()):
            leader = found.leader if found.leader in known.brokers else None
            if leader is not None:
                leads[leader] += 1
            holds.update(found.replicas)
            if leader is None or len(found.isrs) < len(found.replicas):
                troubled.append(
                    Troubled(name, index, leader, list(found.replicas), list(found.isrs))
                )
    left_out = max(len(troubled) - MOST_TROUBLED, 0)
    return ReplicaFacts(leads, holds, troubled[:MOST_TROUBLED], left_out)
