"""Administering a cluster: one object for topics, groups, brokers, transactions, moves and rights.

Calls wait until the cluster has answered and raise `ClientError` for a refusal. Requests that
librdkafka supports go through it; the rest (data folders, quorum, transactions, moves, rights,
limits) uses our own codecs with the same security settings. Parts connect when they are first used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as NativePartition
from confluent_kafka.admin import AdminClient

from headrace.client.admin.acls import Acls
from headrace.client.admin.cluster import Cluster
from headrace.client.admin.group_offsets import delete_offsets
from headrace.client.admin.groups import Groups
from headrace.client.admin.partition_producers import ActiveProducer, active_producers
from headrace.client.admin.placement.reassignments import Reassignments
from headrace.client.admin.quotas import Quotas
from headrace.client.admin.topics import Topics
from headrace.client.admin.transactional_ids import TransactionalIds
from headrace.client.admin.users import Users
from headrace.client.connection import ClientSettings, Setting, connected
from headrace.client.delay.delayed_topics import DelayedTopics
from headrace.client.errors import explain, kafka_error, unreachable
from headrace.client.records import TopicPartition


class Admin:
    """`admin.topics`, `.groups`, `.cluster`, `.delayed`, `.transactions`, `.reassignments`,
    `.acls`, `.quotas`, `.users`.
    """

    def __init__(
        self,
        bootstrap: str | ClientSettings | None = None,
        *,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        self.connection = connected(bootstrap, settings)

    @cached_property
    def _admin(self) -> AdminClient:
        return self.connection.admin()

    @property
    def topics(self) -> Topics:
        """A new object for each use, because it remembers which topics there are."""
        return Topics(self.connection)

    @property
    def groups(self) -> Groups:
        """A new object for each use, because it remembers which topics there are."""
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
        """A new object for each use, because it remembers the leaders of partitions."""
        return TransactionalIds(self.connection)

    @cached_property
    def reassignments(self) -> Reassignments:
        return Reassignments(self.connection)

    @property
    def acls(self) -> Acls:
        """ACLs; a new object for each use, because it stays with one broker."""
        return Acls(self.connection)

    @property
    def quotas(self) -> Quotas:
        """Limits of users, clients and addresses; a new object for each use, as above."""
        return Quotas(self.connection)

    @property
    def users(self) -> Users:
        """Users of SCRAM; a new object for each use, as above."""
        return Users(self.connection)

    def producers(self, place: TopicPartition) -> list[ActiveProducer]:
        """The recent producers of a partition, and the open transactions in it."""
        return active_producers(self.connection, place)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before these offsets; returns the new log start offset of each
        partition."""
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
                raise unreachable(
                    self.connection.bootstrap, command=self.connection.quiet
                ) from late
            starts[TopicPartition(place.topic, place.partition)] = answer.low_watermark
        return starts

    def delete_offsets(self, group: str, places: Iterable[TopicPartition]) -> None:
        """Delete a group's offsets in these partitions; the group must not subscribe to them."""
        delete_offsets(self.connection, group, places)

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close clients: only `delayed.cancel` keeps some open, from one call to the next."""
        if "delayed" in self.__dict__:
            self.delayed.close()
