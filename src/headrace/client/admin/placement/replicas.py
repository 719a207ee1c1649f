"""Where the replicas of partitions are, which are in sync, and which may lead when none is.

Asks DescribeTopicPartitions page by page; a cluster that does not know it (before Apache Kafka 3.7)
is asked for its metadata, which lacks the eligible leader replicas (ELR, KIP-966).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.client.admin.cluster import Cluster
from headrace.client.connection import ClientSettings, reach
from headrace.client.errors import ClientError
from headrace.client.records import TopicPartition
from headrace.client.wire import Wire, require_no_error
from headrace.wire.protocol.messages import describe_topic_partitions as describing

PARTITIONS_PER_PAGE = 2_000


@dataclass(slots=True)
class PartitionReplicas:
    place: TopicPartition
    leader: int | None
    replicas: list[int]  # the first one is the preferred leader
    isr: list[int]
    eligible: list[int] = field(default_factory=list)  # ELR: not in sync, yet they lack nothing
    last_known_eligible: list[int] = field(default_factory=list)
    offline: list[int] = field(default_factory=list)  # their broker or data folder is down

    @property
    def missing(self) -> list[int]:
        """Replicas that are not in sync."""
        return [broker for broker in self.replicas if broker not in self.isr]


class Replicas:
    def __init__(self, connection: ClientSettings) -> None:
        self.connection = connection

    def of(self, topics: Iterable[str]) -> list[PartitionReplicas]:
        """The replicas by topic and partition; raises if a topic does not exist."""
        wanted = sorted(topics)
        return self._described(wanted) if wanted else []

    def all(self) -> list[PartitionReplicas]:
        """The replicas of all topics, internal ones too."""
        return self._described(None)

    def _described(self, topics: Sequence[str] | None) -> list[PartitionReplicas]:
        with Cluster(self.connection).anybody() as wire:
            try:
                wire.version_of(describing)
            except ClientError:
                return self._from_metadata(topics)
            return self._pages(wire, topics)

    def _pages(self, wire: Wire, topics: Sequence[str] | None) -> list[PartitionReplicas]:
        found: list[PartitionReplicas] = []
        # Without names Apache Kafka describes all topics, in the order of their names.
        asked = [describing.TopicRequest(name) for name in topics or ()]
        cursor: describing.Cursor | None = None
        while True:
            request = describing.DescribeTopicPartitionsRequest(asked, PARTITIONS_PER_PAGE, cursor)
            answer = wire.ask(describing, request)
            for topic in answer.topics:
                require_no_error(topic.error_code)
                found += [_partition(topic.name, partition) for partition in topic.partitions]
            following = answer.next_cursor
            if following is None:
                return sorted(found, key=lambda each: each.place)
            cursor = describing.Cursor(following.topic_name, following.partition_index)

    def _from_metadata(self, topics: Sequence[str] | None) -> list[PartitionReplicas]:
        metadata = reach(self.connection.admin(), self.connection)
        wanted = metadata.topics if topics is None else topics
        return [
            PartitionReplicas(
                TopicPartition(name, index),
                found.leader if found.leader >= 0 else None,
                list(found.replicas),
                list(found.isrs),
            )
            for name in sorted(wanted)
            if name in metadata.topics
            for index, found in sorted(metadata.topics[name].partitions.items())
        ]


def _partition(
    topic: str, found: describing.DescribeTopicPartitionsResponsePartition
) -> PartitionReplicas:
    return PartitionReplicas(
        TopicPartition(topic, found.partition_index),
        found.leader_id if found.leader_id >= 0 else None,
        list(found.replica_nodes),
        list(found.isr_nodes),
        list(found.eligible_leader_replicas or ()),
        list(found.last_known_elr or ()),
        list(found.offline_replicas or ()),
    )
