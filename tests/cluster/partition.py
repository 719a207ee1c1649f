"""Partition 0 of the topic `orders` of a test's cluster: its replicas, and who leads it."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from headrace.client.admin.placement.reassignments import Reassignments
from headrace.client.connection import ClientSettings
from headrace.client.records import TopicPartition
from headrace.testing import Cluster
from tests.patience import until

PLACE = TopicPartition("orders", 0)


def create_led_by(cluster: Cluster, *replicas: int, **settings: str) -> None:
    """The first of these brokers leads, and all are in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic("orders", 1, replica_assignment=[list(replicas)], config=settings)
    for made in admin.create_topics([topic]).values():
        made.result(60)


def as_told_by(cluster: Cluster, node: int) -> PartitionMetadata:
    admin = AdminClient({"bootstrap.servers": cluster.address(node)})
    return admin.list_topics("orders", timeout=60).topics["orders"].partitions[0]


def leader(cluster: Cluster, asked: int) -> int:
    return int(as_told_by(cluster, asked).leader)


def in_sync(cluster: Cluster, asked: int) -> set[int]:
    return set(as_told_by(cluster, asked).isrs)


def lead_again(cluster: Cluster, first: int) -> None:
    """The first replica becomes the leader again, as once in five minutes by itself."""
    connection = ClientSettings({"bootstrap.servers": cluster.bootstrap})
    Reassignments(connection).elect_preferred_leaders([PLACE])
    until(lambda: leader(cluster, asked=first) == first)
