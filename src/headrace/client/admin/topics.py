"""Topics of a cluster: list, describe, create, alter, delete, and their settings.

Calls wait until the cluster has answered; what it refuses is raised as `ClientError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import (
    AclOperation,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headrace.client.connection import ClientSettings, reach
from headrace.client.errors import NOT_LED_YET, ClientError, NoSuchTopic, explain, kafka_error
from headrace.wire.contract.delay_topics import companions_of

BROKER_DECIDES = -1  # partitions or replication left to the cluster's own default


@dataclass(slots=True)
class TopicSummary:
    name: str
    partitions: int
    replication: int
    internal: bool


@dataclass(slots=True)
class PartitionDescription:
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    start_offset: int | None = None  # None: the leader did not answer
    end_offset: int | None = None


@dataclass(slots=True)
class TopicDescription:
    name: str
    id: str
    internal: bool
    partitions: list[PartitionDescription]
    settings: dict[str, Setting] = field(default_factory=dict)

    @property
    def replication(self) -> int:
        return max((len(p.replicas) for p in self.partitions), default=0)

    def setting(self, name: str, default: str) -> str:
        """A setting's value; `default` if the cluster did not return it."""
        found = self.settings.get(name)
        return default if found is None else found.value

    def own_settings(self) -> dict[str, str]:
        """The settings made for this topic alone."""
        return {name: s.value for name, s in self.settings.items() if s.source == "topic"}


@dataclass(slots=True)
class Setting:
    value: str
    source: str  # "topic", "broker" or "default"


def _source(given: ConfigSource | int) -> str:
    """The source of a value; confluent-kafka hands out plain numbers where it declares an enum."""
    match ConfigSource(given):
        case ConfigSource.DYNAMIC_TOPIC_CONFIG:
            return "topic"
        case ConfigSource.DEFAULT_CONFIG:
            return "default"
    return "broker"


_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


MAY_READ = frozenset({AclOperation.READ, AclOperation.ALL})
MAY_SEE_SETTINGS = frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALL})


class Topics:
    """Creates, describes, changes and deletes topics: `admin.topics`."""

    def __init__(self, connection: ClientSettings) -> None:
        self.connection = connection
        self._admin = connection.admin()
        self.cluster = reach(self._admin, connection)
        self._is_fresh = True  # the metadata was not used yet

    def all(self) -> list[TopicSummary]:
        if not self._is_fresh:
            self.cluster = reach(self._admin, self.connection)
        self._is_fresh = False
        return [
            TopicSummary(
                name,
                len(topic.partitions),
                max((len(p.replicas) for p in topic.partitions.values()), default=0),
                name.startswith("__"),
            )
            for name, topic in sorted(self.cluster.topics.items())
        ]

    def broker_addresses(self) -> list[tuple[str, int]]:
        return [(str(broker.host), broker.port) for broker in self.cluster.brokers.values()]

    def describe(self, names: Iterable[str]) -> list[TopicDescription]:
        described = self.layouts(names)
        for topic in described:
            topic.settings = self.settings_of(topic.name)
            self._fill_in_offsets(topic)
        return described

    def layouts(self, names: Iterable[str]) -> list[TopicDescription]:
        """The topics and where their partitions lie, without settings and offsets. Partitions that
        have no leader yet need not answer for this."""
        names = list(names)
        asked = self._admin.describe_topics(
            TopicCollection(names), request_timeout=self.connection.timeout_s
        )
        described = []
        for name in names:
            found = self._answer(asked[name], name)
            partitions = [
                PartitionDescription(
                    p.id,
                    p.leader.id if p.leader and p.leader.id >= 0 else None,
                    [node.id for node in p.replicas],
                    [node.id for node in p.isr],
                )
                for p in found.partitions
            ]
            described.append(
                TopicDescription(name, id_text(found.topic_id), found.is_internal, partitions)
            )
        return described

    def _fill_in_offsets(self, topic: TopicDescription) -> None:
        led = [p for p in topic.partitions if p.leader is not None]
        for name, which in (
            ("start_offset", _EARLIEST),
            ("end_offset", _LATEST),
        ):
            if not led:
                continue
            asked = self._admin.list_offsets(
                {TopicPartition(topic.name, p.partition): which for p in led},
                request_timeout=self.connection.timeout_s,
            )
            offsets = {
                place.partition: self._offset(future, topic.name) for place, future in asked.items()
            }
            for partition in led:
                setattr(partition, name, offsets[partition.partition])

    def _offset(self, future: Future[Any], topic: str) -> int | None:
        """The offset; None while a partition has no leader that knows of it: a new topic, or a
        move."""
        failure = future.exception(timeout=self.connection.timeout_s + 5)
        if isinstance(failure, KafkaException) and kafka_error(failure).code() in NOT_LED_YET:
            return None
        offset: int = self._answer(future, topic).offset
        return offset

    def spans(self, names: Iterable[str]) -> dict[str, dict[int, tuple[int, int]]]:
        """First and end offset of each partition, by topic, in two requests for all of them; a
        partition whose leader does not answer is left out."""
        places = self._led(names)
        firsts, ends = self._offsets(places, _EARLIEST), self._offsets(places, _LATEST)
        spans: dict[str, dict[int, tuple[int, int]]] = {}
        for place, end in ends.items():
            if place in firsts:
                spans.setdefault(place.topic, {})[place.partition] = (firsts[place], end)
        return spans

    def written(self, names: Iterable[str]) -> dict[str, int]:
        """The sum of the end offsets of each topic's partitions: the difference of two samples was
        written in between."""
        summed = dict.fromkeys(names, 0)
        for place, end in self._offsets(self._led(summed), _LATEST).items():
            summed[place.topic] += end
        return summed

    def _led(self, names: Iterable[str]) -> list[TopicPartition]:
        """Partitions that have a leader, according to the metadata that we have."""
        known = self.cluster.topics
        return [
            TopicPartition(name, index)
            for name in names
            for index, found in (known[name].partitions if name in known else {}).items()
            if found.leader in self.cluster.brokers
        ]

    def _offsets(
        self, places: list[TopicPartition], which: OffsetSpec
    ) -> dict[TopicPartition, int]:
        if not places:
            return {}
        asked = self._admin.list_offsets(
            dict.fromkeys(places, which), request_timeout=self.connection.timeout_s
        )
        found = {place: self._offset(asked[place], place.topic) for place in places}
        return {place: offset for place, offset in found.items() if offset is not None}

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """The topic ids by name. A topic that is deleted and created again gets another id."""
        if not (names := list(names)):
            return {}
        asked = self._admin.describe_topics(
            TopicCollection(names), request_timeout=self.connection.timeout_s
        )
        return {name: id_text(self._answer(asked[name], name).topic_id) for name in names}

    def readable(self, names: Iterable[str]) -> set[str]:
        """The topics that this user may read; all of them without an authorizer."""
        return self._allowing(MAY_READ, names)

    def may_see_settings(self, name: str) -> bool:
        """Whether this user may see them. Asks for the user's rights, so that a missing one leaves
        no refusal in an audit log."""
        return bool(self._allowing(MAY_SEE_SETTINGS, [name]))

    def _allowing(self, operations: frozenset[AclOperation], names: Iterable[str]) -> set[str]:
        """The topics on which this user may do one of `operations`."""
        if not (names := list(dict.fromkeys(names))):
            return set()
        asked = self._admin.describe_topics(
            TopicCollection(names),
            include_authorized_operations=True,
            request_timeout=self.connection.timeout_s,
        )
        found = set()
        for name in names:
            with suppress(ClientError):
                allowed = self._answer(asked[name], name).authorized_operations
                if allowed is None or not operations.isdisjoint(allowed):
                    found.add(name)
        return found

    def settings_of(self, name: str) -> dict[str, Setting]:
        entries = self._configs(ConfigResource(ResourceType.TOPIC, name))
        return {
            entry.name: Setting(
                "" if entry.value is None else entry.value,
                _source(entry.source),
            )
            for entry in sorted(entries.values(), key=lambda e: e.name)
        }

    def broker_setting(self, key: str) -> str | None:
        """A setting of the first broker; None if the cluster knows no such setting."""
        broker = min(self.cluster.brokers)
        entries = self._configs(ConfigResource(ResourceType.BROKER, str(broker)))
        return entries[key].value if key in entries else None

    def _configs(self, resource: ConfigResource) -> Mapping[str, ConfigEntry]:
        asked = self._admin.describe_configs([resource], request_timeout=self.connection.timeout_s)
        entries: Mapping[str, ConfigEntry] = self._answer(asked[resource], resource.name)
        return entries

    def create(
        self,
        name: str,
        *,
        partitions: int = BROKER_DECIDES,
        replication: int = BROKER_DECIDES,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        new = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=replication,
            config=dict(settings or {}),
        )
        self._is_fresh = False
        asked = self._admin.create_topics([new], request_timeout=self.connection.timeout_s)
        self._answer(asked[name], name)

    def ensure(self, name: str, *, partitions: int, settings: Mapping[str, str]) -> None:
        """Create a topic if it is missing; several programs may do it at once."""
        try:
            if name not in self.cluster.topics:
                self.create(name, partitions=partitions, settings=settings)
        except ClientError as failure:
            if failure.code != "TOPIC_ALREADY_EXISTS":
                raise

    def grow(self, name: str, *, partitions: int) -> None:
        """Give a topic more partitions; Kafka never takes any away."""
        self._is_fresh = False
        asked = self._admin.create_partitions(
            [NewPartitions(name, partitions)], request_timeout=self.connection.timeout_s
        )
        self._answer(asked[name], name)

    def change_settings(
        self, name: str, *, to: Mapping[str, str], remove: Iterable[str] = ()
    ) -> None:
        changes = [_change(key, value, AlterConfigOpType.SET) for key, value in to.items()]
        changes += [_change(key, None, AlterConfigOpType.DELETE) for key in remove]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
        asked = self._admin.incremental_alter_configs(
            [resource], request_timeout=self.connection.timeout_s
        )
        self._answer(asked[resource], name)

    def delete(self, name: str) -> list[str]:
        """Delete a topic. Returns its companions that are left: they keep its delayed messages."""
        left = [each for each in companions_of(name) if each in self.cluster.topics]
        self._is_fresh = False
        asked = self._admin.delete_topics([name], request_timeout=self.connection.timeout_s)
        self._answer(asked[name], name)
        return left

    def empty(self, name: str) -> int:
        """Delete all records that are there now, and return how many offsets that were. All or
        nothing: it raises before anything is deleted if a partition has no leader."""
        known = self.cluster.topics.get(name)
        if known is None:
            raise NoSuchTopic(f"There is no topic {name}.")
        spans = self.spans([name]).get(name, {})
        if unled := sorted(set(known.partitions) - set(spans)):
            raise ClientError(
                f"No leader answers for partition {unled[0]} of {name}. Nothing was deleted."
            )
        ends = [TopicPartition(name, p, end) for p, (first, end) in spans.items() if end > first]
        timeout_s = self.connection.timeout_s
        asked = self._admin.delete_records(ends, request_timeout=timeout_s) if ends else {}
        for future in asked.values():
            self._answer(future, name)
        return sum(end - first for first, end in spans.values())

    def _answer(self, future: Future[Any], topic: str) -> Any:
        try:
            # librdkafka keeps the time limit; this one only guards against a lost answer.
            return future.result(timeout=self.connection.timeout_s + 5)
        except KafkaException as failure:
            raise explain(kafka_error(failure), self.connection.bootstrap, topic=topic) from failure
        except TimeoutError as late:
            raise ClientError(
                f"The cluster did not answer within {self.connection.timeout_s:g} seconds."
            ) from late


def id_text(given: Uuid) -> str:
    """A topic id as Kafka's own tools print it: base64 with the letters of URLs."""
    return str(given).replace("+", "-").replace("/", "_")


def _change(name: str, value: str | None, operation: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(
        name, value, source=ConfigSource.UNKNOWN_CONFIG, incremental_operation=operation
    )
