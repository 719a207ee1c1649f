"""Admin requests of a program that runs a loop: those that it cannot wait for are `Pending`.

`Admin` and its parts wait for each answer and explain what fails. A service asks here: it keeps one
client for as long as it runs, goes on while an answer is under way, and acts on the `Fault`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from confluent_kafka import (
    ConsumerGroupState,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as NativePartition
from confluent_kafka.admin import (
    AclOperation,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headrace.client.admin.topics import id_text
from headrace.client.connection import ClientSettings
from headrace.client.errors import kafka_error
from headrace.client.faults import Fault, faults
from headrace.client.records import TopicPartition

T = TypeVar("T")

# librdkafka keeps the time limit of a request; this one only guards against a lost answer.
LOST_ANSWER_S = 60.0

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Pending(Generic[T]):
    """An answer that is under way. It cannot come any more once its `Requests` is gone."""

    __slots__ = ("_future", "_read")

    def __init__(self, future: Future[Any], read: Callable[[Any], T]) -> None:
        self._future, self._read = future, read

    @property
    def is_done(self) -> bool:
        return self._future.done()

    def result(self, timeout_s: float = LOST_ANSWER_S) -> T:
        """Waits for the answer. Raises Fault."""
        try:
            return self._read(self._future.result(timeout_s))
        except KafkaException as failure:
            raise Fault(kafka_error(failure)) from failure
        except TimeoutError as late:
            raise Fault(KafkaError(KafkaError._TIMED_OUT)) from late


@dataclass(slots=True)
class TopicIdentity:
    id: str
    partitions: int


class Requests:
    """One client of the cluster at `at`. Calls that return no `Pending` wait, and raise Fault."""

    def __init__(self, at: ClientSettings) -> None:
        self._native = at.admin()

    def partition_counts(self, timeout_s: float) -> dict[str, int]:
        """The number of partitions by topic; without topics for which the cluster cannot say it
        now."""
        with faults():
            found = self._native.list_topics(timeout=timeout_s).topics
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    # ---- topics

    def identities(
        self, topics: Iterable[str], timeout_s: float
    ) -> dict[str, Pending[TopicIdentity]]:
        """The topic ids by name. A topic that is deleted and created again gets another id."""
        names = TopicCollection(list(topics))
        asked = self._native.describe_topics(names, request_timeout=timeout_s)
        return {name: Pending(future, _identity) for name, future in asked.items()}

    def may_write(self, topic: str, timeout_s: float) -> bool:
        """Whether this user may write to the topic; True without an authorizer."""
        asked = self._native.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=timeout_s
        )
        rights = Pending(asked[topic], lambda found: found.authorized_operations).result()
        return rights is None or AclOperation.WRITE in rights

    def create(
        self, topic: str, partitions: int, settings: Mapping[str, str], timeout_s: float
    ) -> None:
        new = NewTopic(topic, partitions, config=dict(settings))
        Pending(self._native.create_topics([new])[topic], _nothing).result(timeout_s)

    def grow(self, topic: str, partitions: int, timeout_s: float) -> None:
        asked = self._native.create_partitions([NewPartitions(topic, partitions)])
        Pending(asked[topic], _nothing).result(timeout_s)

    def settings_of(self, topics: Iterable[str]) -> dict[str, Pending[dict[str, str]]]:
        """The value of each setting, by topic."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        asked = self._native.describe_configs(resources)
        return {resource.name: Pending(future, _values) for resource, future in asked.items()}

    # ---- offsets

    def first_offsets(
        self, places: Iterable[TopicPartition], timeout_s: float, *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        return self._offsets(places, _EARLIEST, timeout_s, committed)

    def end_offsets(
        self, places: Iterable[TopicPartition], timeout_s: float, *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The end offset of each partition, after open transactions; with `committed` the last
        stable offset."""
        return self._offsets(places, _LATEST, timeout_s, committed)

    def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, Pending[None]]:
        natives = [NativePartition(*place, offset) for place, offset in before.items()]
        asked = self._native.delete_records(natives, request_timeout=timeout_s)
        return {
            TopicPartition(each.topic, each.partition): Pending(future, _nothing)
            for each, future in asked.items()
        }

    def _offsets(
        self, places: Iterable[TopicPartition], which: OffsetSpec, timeout_s: float, committed: bool
    ) -> dict[TopicPartition, int]:
        wanted = {NativePartition(*place): which for place in places}
        if not wanted:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = self._native.list_offsets(wanted, isolation_level=level, request_timeout=timeout_s)
        return {
            TopicPartition(each.topic, each.partition): Pending(future, _offset).result()
            for each, future in asked.items()
        }

    # ---- groups

    def assignment(self, group: str, timeout_s: float) -> Pending[set[TopicPartition] | None]:
        """The partitions of each member; None while the group is not stable."""
        asked = self._native.describe_consumer_groups([group], request_timeout=timeout_s)
        return Pending(asked[group], _assigned)


def _identity(described: Any) -> TopicIdentity:
    return TopicIdentity(id_text(described.topic_id), len(described.partitions))


def _assigned(group: Any) -> set[TopicPartition] | None:
    if group.state != ConsumerGroupState.STABLE:
        return None
    return {
        TopicPartition(each.topic, each.partition)
        for member in group.members
        for each in member.assignment.topic_partitions
    }


def _values(entries: Any) -> dict[str, str]:
    return {name: "" if entry.value is None else entry.value for name, entry in entries.items()}


def _offset(found: Any) -> int:
    offset: int = found.offset
    return offset


def _nothing(found: Any) -> None:
    return None
