"""Questions about the cluster itself: brokers, disks, the quorum, replicas that lag or move."""

from __future__ import annotations

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
from headrace.operations.replicas import ReplicaFacts, replica_facts


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
        replica_facts(Topics(connection)),
        part(cluster.log_folders),
        part(cluster.quorum),
        part(lambda: Admin(connection).reassignments.all()),
    )


def checkup(connection: ClientSettings) -> list[Finding]:
    """Returns the findings of `headrace doctor`, without those about its own machine."""
    return [check_brokers(connection), *check_running_cluster(connection)]
