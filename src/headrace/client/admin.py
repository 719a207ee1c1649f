"""Administering a cluster: one door to topics, groups, brokers, transactions and moves.

Calls wait until the cluster has answered and raise `ClientError` for what it refuses. What
librdkafka can do goes through it; the rest (data folders, quorum, transactions, moves) is spoken
with our own codecs over the same security settings. Parts connect when they are first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as NativePartition
from confluent_kafka.admin import AdminClient

from headrace.client.cluster import Cluster
from headrace.client.connection import Connection, Setting, connected
from headrace.client.delayed_topics import DelayedTopics
from headrace.client.errors import explain, kafka_error, unreachable
from headrace.client.groups import Groups
from headrace.client.partition_producers import ActiveProducer, active_producers
from headrace.client.reassignments import Reassignments
from headrace.client.records import TopicPartition
from headrace.client.topics import Topics
from headrace.client.transactional_ids import TransactionalIds


class Admin:
    """`admin.topics`, `.groups`, `.cluster`, `.delayed`, `.transactions`, `.reassignments`."""

    def __init__(
        self,
        bootstrap: str | Connection | None = None,
        *,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        self.connection = connected(bootstrap, settings)

    @cached_property
    def _admin(self) -> AdminClient:
        return self.connection.admin()

    @property
    def topics(self) -> Topics:
        """Made anew for each use, because it remembers which topics there are."""
        return Topics(self.connection)

    @property
    def groups(self) -> Groups:
        """Made anew for each use, because it remembers which topics there are."""
        return Groups(self.connection)

    @cached_property
    def cluster(self) -> Cluster:
        return Cluster(self.connection)

    @cached_property
    def delayed(self) -> DelayedTopics:
        """Which topics take delayed messages."""
        return DelayedTopics(self.connection)

    @property
    def transactions(self) -> TransactionalIds:
        """Made anew for each use, because it remembers who leads what."""
        return TransactionalIds(self.connection)

    @cached_property
    def reassignments(self) -> Reassignments:
        return Reassignments(self.connection)

    def producers(self, place: TopicPartition) -> list[ActiveProducer]:
        """Who has written to a partition lately, and whose transaction is open in it."""
        return active_producers(self.connection, place)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Forget the records before these offsets; where each partition begins afterwards."""
        asked = self._admin.delete_records(
            [NativePartition(*place, offset) for place, offset in before.items()],
            request_timeout=self.connection.timeout_s,
        )
        starts = {}
        for place, future in asked.items():
            try:
                answer = future.result(timeout=self.connection.timeout_s + 5)
            except KafkaException as failure:
                raise explain(
                    kafka_error(failure), self.connection.bootstrap, topic=place.topic
                ) from failure
            except TimeoutError as late:
                raise unreachable(self.connection.bootstrap) from late
            starts[TopicPartition(place.topic, place.partition)] = answer.low_watermark
        return starts

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is held open; `with` is allowed for symmetry with the other clients."""
