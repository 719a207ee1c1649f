"""Moves partitions between brokers (KIP-455), and elects their leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka import TopicPartition as NativePartition

from headrace.client.admin.cluster import Cluster, late_answer
from headrace.client.connection import ClientSettings
from headrace.client.errors import explain, kafka_error
from headrace.client.records import TopicPartition
from headrace.client.wire import require_no_error
from headrace.wire.protocol.messages import alter_partition_reassignments as altering
from headrace.wire.protocol.messages import list_partition_reassignments as listing


@dataclass(slots=True)
class Reassignment:
    """A partition that is being moved: its replicas now, those being added, those being removed."""

    place: TopicPartition
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class Reassignments:
    """Moves replicas between brokers: `admin.reassignments`."""

    def __init__(self, connection: ClientSettings) -> None:
        self.connection = connection
        self._cluster = Cluster(connection)
        self._admin = connection.admin()

    def all(self) -> list[Reassignment]:
        """The moves in progress."""
        request = listing.ListPartitionReassignmentsRequest(self._timeout_ms(), None)
        with self._cluster.anybody() as wire:
            answer = wire.ask(listing, request)
        require_no_error(answer.error_code, answer.error_message)
        return [
            Reassignment(
                TopicPartition(topic.name, p.partition_index),
                list(p.replicas),
                list(p.adding_replicas),
                list(p.removing_replicas),
            )
            for topic in answer.topics
            for p in topic.partitions
        ]

    def move(self, to: Mapping[TopicPartition, list[int] | None]) -> None:
        """Move partitions to these brokers, the preferred leader first; None cancels a move."""
        topics: dict[str, list[altering.ReassignablePartition]] = {}
        for place, replicas in to.items():
            partition = altering.ReassignablePartition(place.partition, replicas)
            topics.setdefault(place.topic, []).append(partition)
        request = altering.AlterPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms(),
            topics=[altering.ReassignableTopic(name, parts) for name, parts in topics.items()],
        )
        with self._cluster.anybody() as wire:
            answer = wire.ask(altering, request)
        require_no_error(answer.error_code, answer.error_message)
        for topic in answer.responses:
            for partition in topic.partitions:
                require_no_error(partition.error_code, partition.error_message)

    def elect_preferred_leaders(self, places: Iterable[TopicPartition] | None = None) -> None:
        """Make the first replica of each partition its leader.

        None means all partitions whose first replica is in sync; the others keep their leader.
        """
        wanted = None if places is None else [NativePartition(*place) for place in places]
        try:
            # No request_timeout: confluent-kafka 2.16 fails with any keyword here.
            asked = self._admin.elect_leaders(ElectionType.PREFERRED, wanted)
            refused = asked.result(timeout=self.connection.timeout_s + 5)
        except KafkaException as failure:
            raise explain(kafka_error(failure), self.connection.bootstrap) from failure
        except TimeoutError as late:  # there may be no controller to ask
            raise late_answer(self.connection) from late
        passed_over = {"ELECTION_NOT_NEEDED"}
        if places is None:
            passed_over.add("PREFERRED_LEADER_NOT_AVAILABLE")
        for place, error in refused.items():
            if error is not None and error.name() not in passed_over:
                raise explain(error, self.connection.bootstrap, topic=place.topic)

    def _timeout_ms(self) -> int:
        return int(self.connection.timeout_s * 1000)
