"""Consumer groups of a cluster: who is in them, how far they are, and putting them elsewhere.

Calls wait until the cluster has answered; what it refuses is raised as `ClientError`. A reset is
first planned (`plan`), which changes nothing, and then carried out (`move`), which the cluster
refuses while the group has members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from headrace.client.connection import Connection, reach
from headrace.client.errors import ClientError, NoSuchTopic, explain, kafka_error

Place = tuple[str, int]  # topic, partition

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class NoSuchGroup(ClientError):
    """The cluster has no group of this name."""


class GroupIsActive(ClientError):
    """The group has members, so its place cannot be changed from outside."""


@dataclass(slots=True)
class GroupSummary:
    group: str
    state: str
    type: str


@dataclass(slots=True)
class Member:
    id: str
    client_id: str
    host: str
    instance_id: str | None
    assigned: list[Place]


@dataclass(slots=True)
class Progress:
    """One partition of a group; `lag` is None where it has committed nothing."""

    topic: str
    partition: int
    committed: int | None
    end_offset: int | None
    member: str | None = None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return max(self.end_offset - self.committed, 0)


@dataclass(slots=True)
class GroupDescription:
    group: str
    state: str
    protocol: str
    coordinator: int | None
    members: list[Member] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)

    @property
    def lag(self) -> int:
        return sum(one.lag or 0 for one in self.progress)


@dataclass(slots=True)
class Move:
    """From where to where a group goes in one partition."""

    topic: str
    partition: int
    current: int | None
    target: int


class Groups:
    """The groups of the cluster at `connection`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._admin = connection.admin()
        self.cluster = reach(self._admin, connection)

    def all(self) -> list[GroupSummary]:
        asked = self._admin.list_consumer_groups(request_timeout=self.connection.timeout_s)
        found = self._answer(asked)
        return sorted(
            (
                GroupSummary(group.group_id, _state(group.state), _type(group))
                for group in found.valid
            ),
            key=lambda group: group.group,
        )

    def describe(self, names: Iterable[str]) -> list[GroupDescription]:
        known = {group.group for group in self.all()}
        return [self._describe(name) for name in _all_known(names, known)]

    def _describe(self, name: str) -> GroupDescription:
        asked = self._admin.describe_consumer_groups(
            [name], request_timeout=self.connection.timeout_s
        )
        found = self._answer(asked[name], group=name)
        members = [
            Member(
                member.member_id,
                member.client_id,
                member.host,
                member.group_instance_id,
                [(one.topic, one.partition) for one in member.assignment.topic_partitions],
            )
            for member in found.members
        ]
        coordinator = None if found.coordinator is None else found.coordinator.id
        return GroupDescription(
            name,
            _state(found.state),
            found.partition_assignor or "",
            coordinator,
            members,
            self._progress(name, members),
        )

    def _progress(self, name: str, members: list[Member]) -> list[Progress]:
        committed = self.committed(name)
        owner = {place: member.id for member in members for place in member.assigned}
        places = sorted({*committed, *owner})
        ends = self.offsets(places, _LATEST)
        return [
            Progress(*place, committed.get(place), ends.get(place), owner.get(place))
            for place in places
        ]

    def committed(self, name: str) -> dict[Place, int]:
        asked = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=self.connection.timeout_s
        )
        found = self._answer(asked[name], group=name)
        return {
            (one.topic, one.partition): one.offset
            for one in found.topic_partitions
            if one.offset >= 0
        }

    def partitions_of(self, topic: str) -> list[Place]:
        found = self.cluster.topics.get(topic)
        if found is None:
            raise NoSuchTopic(f"There is no topic {topic}.")
        return [(topic, index) for index in sorted(found.partitions)]

    def offsets(self, places: Iterable[Place], which: OffsetSpec) -> dict[Place, int]:
        """-1 where there is no such offset; places that are gone are left out."""
        wanted = {TopicPartition(*place): which for place in places if self._is_there(place)}
        if not wanted:
            return {}
        asked = self._admin.list_offsets(wanted, request_timeout=self.connection.timeout_s)
        return {
            (place.topic, place.partition): self._answer(future, topic=place.topic).offset
            for place, future in asked.items()
        }

    def _is_there(self, place: Place) -> bool:
        topic = self.cluster.topics.get(place[0])
        return topic is not None and place[1] in topic.partitions

    # --- putting a group elsewhere

    def beginnings(self, places: Iterable[Place]) -> dict[Place, int]:
        return self.offsets(places, _EARLIEST)

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        return self.offsets(places, _LATEST)

    def at_time(self, places: Iterable[Place], time_ms: int) -> dict[Place, int]:
        """The first record of that time or later; the end where there is none."""
        places = list(places)
        spec: OffsetSpec = OffsetSpec.for_timestamp(time_ms)
        found, ends = self.offsets(places, spec), self.ends(places)
        return {place: ends[place] if offset < 0 else offset for place, offset in found.items()}

    def plan(self, name: str, targets: Mapping[Place, int]) -> list[Move]:
        """Within what the partitions hold: an offset before or behind is moved to the edge."""
        first, last = self.beginnings(targets), self.ends(targets)
        missing = sorted(place for place in targets if place not in last)
        if missing:
            topic, partition = missing[0]
            raise ClientError(f"There is no partition {partition} of topic {topic}.")
        committed = self.committed(name)
        return [
            Move(*place, committed.get(place), min(max(target, first[place]), last[place]))
            for place, target in sorted(targets.items())
        ]

    def require_inactive(self, name: str) -> None:
        known = {group.group: group for group in self.all()}
        if name in known and known[name].state not in ("Empty", "Dead", "Unknown"):
            raise GroupIsActive(
                f"Group {name} has active members ({known[name].state}): stop them first."
            )

    def move(self, name: str, moves: Iterable[Move]) -> None:
        self.require_inactive(name)
        places = [TopicPartition(move.topic, move.partition, move.target) for move in moves]
        asked = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name, places)], request_timeout=self.connection.timeout_s
        )
        for place in self._answer(asked[name], group=name).topic_partitions:
            if place.error is not None:
                raise explain(place.error, self.connection.bootstrap, topic=place.topic)

    def delete(self, name: str) -> None:
        self.require_inactive(name)
        asked = self._admin.delete_consumer_groups(
            [name], request_timeout=self.connection.timeout_s
        )
        self._answer(asked[name], group=name)

    def _answer(
        self, future: Future[Any], *, group: str | None = None, topic: str | None = None
    ) -> Any:
        try:
            # librdkafka keeps the time limit; this one only guards against a lost answer.
            return future.result(timeout=self.connection.timeout_s + 5)
        except KafkaException as failure:
            error = kafka_error(failure)
            if group is not None and error.code() == KafkaError.GROUP_ID_NOT_FOUND:
                raise NoSuchGroup(f"There is no group {group}.") from failure
            if group is not None and error.code() == KafkaError.NON_EMPTY_GROUP:
                raise GroupIsActive(
                    f"Group {group} has active members: stop them first."
                ) from failure
            raise explain(error, self.connection.bootstrap, topic=topic) from failure
        except TimeoutError as late:
            raise ClientError(
                f"The cluster did not answer within {self.connection.timeout_s:g} seconds."
            ) from late


def _all_known(names: Iterable[str], known: set[str]) -> list[str]:
    names = list(names)
    for name in names:
        if name not in known:
            raise NoSuchGroup(f"There is no group {name}.")
    return names


def _state(given: ConsumerGroupState) -> str:
    """As Kafka itself writes it: PREPARING_REBALANCING is PreparingRebalance."""
    words = given.name.replace("REBALANCING", "REBALANCE").split("_")
    return "".join(word.capitalize() for word in words)


def _type(group: Any) -> str:
    kind = getattr(group, "type", None)
    return "classic" if kind is None else str(kind.name).lower()
