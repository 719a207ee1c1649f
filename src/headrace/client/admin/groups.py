"""Consumer groups of a cluster: members, lag, and resets of offsets.

Calls wait until the cluster has answered; a refusal is raised as `ClientError`. A reset is first
planned (`plan`), which changes nothing, and then carried out (`move`), which the cluster refuses
while the group has members. The requests go through librdkafka; only states for which it has no
name (those of the newer protocol) are asked for with our own codecs.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
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

from headrace.client.admin.group_coordinators import GroupCoordinators
from headrace.client.admin.share_groups import (
    SHARE,
    ShareGroupDescription,
    ShareGroups,
)
from headrace.client.admin.streams_groups import (
    ASSIGNOR,
    STREAMS,
    StreamsGroupDescription,
    StreamsGroups,
)
from headrace.client.admin.unread import Unread, unread
from headrace.client.connection import ClientSettings, reach
from headrace.client.errors import NO_LONGER_OURS, ClientError, NoSuchTopic, explain, kafka_error
from headrace.client.wire import Wire, require_no_error
from headrace.wire.protocol.messages import list_groups

Place = tuple[str, int]  # topic, partition

# States without active members: the committed offsets may be changed from outside. Dead means that
# the group does not exist.
IDLE, DEAD = ("Empty", "Dead"), "Dead"
UNKNOWN = "Unknown"

# The answers of a coordinator that was just made or has just moved; it is asked again after a
# moment.
NOT_YET = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
PAUSE_S = 0.05

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class NoSuchGroup(ClientError):
    """The cluster has no group of this name."""


class NoCoordinator(ClientError):
    """The coordinator of the group is not ready."""


class GroupIsActive(ClientError):
    """The group has active members, so its offsets cannot be changed from outside."""


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
class GroupProgress:
    """One partition of a group. `committed` is the start offset of a share group. `unread` counts
    the records that it can still get, from its first record where the group has committed nothing;
    None: the topic is gone, or it has no leader now.
    """

    topic: str
    partition: int
    committed: int | None
    end_offset: int | None
    member: str | None = None
    unread: int | None = None

    @property
    def lag(self) -> int | None:
        """Records that the group can still get; None: unknown. Without a commit it is unknown too,
        unless there is nothing to read."""
        return self.unread if self.committed is not None or self.unread == 0 else None


@dataclass(slots=True)
class GroupDescription:
    group: str
    state: str
    type: str  # classic, consumer, share or streams: which protocol its members speak
    protocol: str  # the assignor
    coordinator: int | None
    members: list[Member] = field(default_factory=list)
    progress: list[GroupProgress] = field(default_factory=list)

    @property
    def lag(self) -> int:
        """The sum over the partitions with a known lag; `unknown` has the other partitions."""
        return sum(one.lag or 0 for one in self.progress)

    @property
    def unknown(self) -> list[GroupProgress]:
        return [one for one in self.progress if one.lag is None]


@dataclass(slots=True)
class Move:
    """A group's move in one partition, from an offset to another. `target` is `wanted`, or the
    nearest offset that the partition holds.
    """

    topic: str
    partition: int
    current: int | None
    target: int
    wanted: int


class Groups:
    """Describes groups, moves and deletes their offsets: `admin.groups`."""

    def __init__(self, connection: ClientSettings) -> None:
        self.connection = connection
        self._admin = connection.admin()
        self.cluster = reach(self._admin, connection)
        brokers = [(str(each.host), each.port) for each in self.cluster.brokers.values()]
        self._share = ShareGroups(connection, brokers)
        self._streams = StreamsGroups(GroupCoordinators(connection, brokers))

    def all(self) -> list[GroupSummary]:
        """The groups of all brokers. Raises if one broker fails: a list without its groups would
        mislead."""
        groups, failure = self.of_those_who_answer()
        if failure is not None:
            raise failure
        return groups

    def of_those_who_answer(self) -> tuple[list[GroupSummary], ClientError | None]:
        """The groups, and the refusals of brokers that do not list theirs; those groups are
        missing."""
        asked = self._admin.list_consumer_groups(request_timeout=self.connection.timeout_s)
        found = self._answer(asked)
        failure = None
        for each in found.errors:
            error = each if isinstance(each, KafkaError) else kafka_error(each)
            failure = explain(error, self.connection.bootstrap)
        groups = [
            GroupSummary(group.group_id, _state(group.state), _type(group)) for group in found.valid
        ]
        if any(group.state == UNKNOWN for group in groups):
            states = self._states()
            for group in groups:
                group.state = states.get(group.group, group.state)
        for kind, found_here in ((SHARE, self._share.states()), (STREAMS, self._streams.states())):
            groups = [group for group in groups if group.group not in found_here]
            groups += [GroupSummary(name, state, kind) for name, state in found_here.items()]
        return sorted(groups, key=lambda group: group.group), failure

    def _states(self) -> dict[str, str]:
        """The state of each group, in the cluster's own words."""
        states = {}
        for broker in self.cluster.brokers.values():
            try:
                with Wire(self.connection, (str(broker.host), broker.port)) as wire:
                    answer = wire.ask(list_groups, list_groups.ListGroupsRequest())
                require_no_error(answer.error_code)
            except ClientError:  # its groups stay without a state; others have theirs
                continue
            states.update({group.group_id: group.group_state for group in answer.groups})
        return states

    def describe(self, names: Iterable[str]) -> list[GroupDescription]:
        return [self._describe(name) for name in dict.fromkeys(names)]

    def _describe(self, name: str) -> GroupDescription:
        found, state = self._look_at(name)
        if state == DEAD and (streams := self._streams.describe(name)) is not None:
            members = _members_of_kind(streams)
            return GroupDescription(
                name,
                streams.state,
                STREAMS,
                ASSIGNOR,
                streams.coordinator,
                members,
                self._progress(name, members),
            )
        if state == DEAD:
            return self._describe_share_group(name)
        members = _members(found)
        coordinator = None if found.coordinator is None else found.coordinator.id
        return GroupDescription(
            name,
            state,
            _type(found),
            found.partition_assignor or "",
            coordinator,
            members,
            self._progress(name, members),
        )

    def _describe_share_group(self, name: str) -> GroupDescription:
        found = self._share.describe(name)
        if found is None:
            raise no_such_group(name)
        known = self._share.offsets(name)
        places = {*known, *(place for member in found.members for place in member.assigned)}
        starts = {place: known[place].start_offset if place in known else None for place in places}
        unread = self.unread(starts)
        progress = []
        for place in sorted(places):
            lag = known[place].lag if place in known else None
            left = unread.after(place, starts[place]) if lag is None else lag
            progress.append(
                GroupProgress(*place, starts[place], unread.ends.get(place), None, left)
            )
        members = _members_of_kind(found)
        return GroupDescription(
            name, found.state, SHARE, found.assignor, found.coordinator, members, progress
        )

    def members(self, name: str) -> list[Member]:
        """The members of a group, without its progress."""
        found, state = self._look_at(name)
        if state != DEAD:
            return _members(found)
        other = self._other_kind(name)
        if other is None:
            raise no_such_group(name)
        return _members_of_kind(other)

    def members_of(self, names: Iterable[str]) -> dict[str, list[Member]]:
        """The members of many groups, asked in parallel; groups that do not answer are left out."""
        if not (names := list(dict.fromkeys(names))):
            return {}
        asked = self._admin.describe_consumer_groups(
            names, request_timeout=self.connection.timeout_s
        )
        found = {}
        for name, future in asked.items():
            with suppress(ClientError):
                found[name] = _members(self._answer(future, group=name))
        return found

    def _look_at(self, name: str) -> tuple[Any, str]:
        """librdkafka's description of a group, and its state; Dead if the group does not exist."""
        deadline = time.monotonic() + self.connection.timeout_s
        while True:
            asked = self._admin.describe_consumer_groups(
                [name], request_timeout=self.connection.timeout_s
            )
            try:
                found = self._answer(asked[name], group=name)
                break
            except NoSuchGroup:
                return None, DEAD
            except NoCoordinator:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE_S)
        state = _state(found.state)
        return found, self._states().get(name, state) if state == UNKNOWN else state

    def is_there(self, name: str) -> bool:
        return self._look_at(name)[1] != DEAD or self._other_kind(name) is not None

    def _other_kind(self, name: str) -> ShareGroupDescription | StreamsGroupDescription | None:
        """The group, if it is of a kind that librdkafka does not describe."""
        return self._streams.describe(name) or self._share.describe(name)

    def _progress(self, name: str, members: list[Member]) -> list[GroupProgress]:
        """The group's progress in every partition of every topic that it has committed in or reads
        now."""
        committed = self.committed(name)
        owner = {place: member.id for member in members for place in member.assigned}
        places = {*committed, *owner}
        for topic in {topic for topic, _ in places} & self.cluster.topics.keys():
            places.update(self.partitions_of(topic))
        found = self.unread({place: committed.get(place) for place in places})
        return [
            GroupProgress(
                *place,
                committed.get(place),
                found.ends.get(place),
                owner.get(place),
                found.after(place, committed.get(place)),
            )
            for place in sorted(places)
        ]

    def unread(self, offsets: Mapping[Place, int | None]) -> Unread:
        """The records that readers at these offsets can still get; None means a reader without a
        commit."""
        readers = {place: (offset,) for place, offset in offsets.items()}
        return unread(self.connection, self.cluster, readers)

    def committed(self, name: str) -> dict[Place, int]:
        """The offsets of a group; of a share group its start offsets."""
        # Wait for the coordinator first: librdkafka 2.16 crashes, and the program with it, when it
        # asks for offsets and gets NOT_COORDINATOR (its issue 5040; seen on a new Apache Kafka).
        if self._look_at(name)[1] == DEAD and (shared := self._share.offsets(name)):
            return {
                place: each.start_offset
                for place, each in shared.items()
                if each.start_offset is not None
            }
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
            hidden = ", or this user may not see it" if self.connection.is_secured else ""
            raise NoSuchTopic(f"There is no topic {topic}{hidden}.")
        return [(topic, index) for index in sorted(found.partitions)]

    def places_in(self, topics: Iterable[tuple[str, Sequence[int]]]) -> list[Place]:
        """The partitions of these topics, each once; all partitions of a topic that is given with
        none. Raises if one does not exist."""
        places: dict[Place, None] = {}
        for name, partitions in topics:
            everything = self.partitions_of(name)
            places |= dict.fromkeys([(name, each) for each in partitions] or everything)
        self.require_partitions(places)
        return list(places)

    def require_partitions(self, places: Iterable[Place]) -> None:
        for topic, partition in places:
            known = self.cluster.topics.get(topic)
            count = len(self.partitions_of(topic) if known is None else known.partitions)
            if not 0 <= partition < count:
                raise ClientError(
                    f"There is no partition {partition} of topic {topic}, which has {count}."
                )

    def offsets(self, places: Iterable[Place], which: OffsetSpec) -> dict[Place, int]:
        """The offset of each partition: -1 if there is no such offset; partitions without a leader
        are left out."""
        wanted = {TopicPartition(*place): which for place in places if self._is_led(place)}
        if not wanted:
            return {}
        asked = self._admin.list_offsets(wanted, request_timeout=self.connection.timeout_s)
        return {
            (place.topic, place.partition): self._answer(future, topic=place.topic).offset
            for place, future in asked.items()
        }

    def _is_led(self, place: Place) -> bool:
        topic = self.cluster.topics.get(place[0])
        found = None if topic is None else topic.partitions.get(place[1])
        return found is not None and found.leader in self.cluster.brokers

    # --- resetting offsets

    def beginnings(self, places: Iterable[Place]) -> dict[Place, int]:
        return self._asked(places, _EARLIEST)

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        return self._asked(places, _LATEST)

    def at_time(self, places: Iterable[Place], time_ms: int) -> dict[Place, int]:
        """The offset of the first record of that time or later; the end where there is none."""
        places = list(places)
        # There are no records from before 1970, and -1 and other negative times have special
        # meanings.
        spec: OffsetSpec = OffsetSpec.for_timestamp(max(time_ms, 0))
        found, ends = self._asked(places, spec), self.ends(places)
        return {place: ends[place] if offset < 0 else offset for place, offset in found.items()}

    def _asked(self, places: Iterable[Place], which: OffsetSpec) -> dict[Place, int]:
        """As `offsets`, but raises if a partition is missing: it would silently keep its committed
        offset."""
        places = list(places)
        found = self.offsets(places, which)
        for topic, partition in places:
            if (topic, partition) not in found:
                raise ClientError(f"{topic}-{partition} has no leader now; try again later.")
        return found

    def plan(self, name: str, targets: Mapping[Place, int]) -> list[Move]:
        """The moves to these offsets; an offset outside of the partition's log becomes its nearest
        edge."""
        self.require_partitions(targets)
        first, last = self.beginnings(targets), self.ends(targets)
        committed = self.committed(name)
        return [
            Move(*place, committed.get(place), min(max(to, first[place]), last[place]), to)
            for place, to in sorted(targets.items())
        ]

    def require_inactive(self, name: str) -> None:
        found, state = self._look_at(name)
        if state == DEAD and (other := self._other_kind(name)) and other.members:
            raise _is_active(f"{name} has active members ({other.state})")
        if state not in IDLE and (state != UNKNOWN or found.members):
            raise _is_active(f"{name} has active members ({state})")

    def move(self, name: str, moves: Iterable[Move]) -> None:
        self.require_inactive(name)
        if self._share.describe(name) is not None:
            moves = list(moves)
            self._share.move(name, [((move.topic, move.partition), move.target) for move in moves])
            return
        places = [TopicPartition(move.topic, move.partition, move.target) for move in moves]
        asked = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name, places)], request_timeout=self.connection.timeout_s
        )
        for place in self._answer(asked[name], group=name).topic_partitions:
            if place.error is not None:
                raise self._explained(place.error, name, place.topic)

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
            raise self._explained(kafka_error(failure), group, topic) from failure
        except TimeoutError as late:
            raise ClientError(
                f"The cluster did not answer within {self.connection.timeout_s:g} seconds."
            ) from late

    def _explained(self, error: KafkaError, group: str | None, topic: str | None) -> ClientError:
        if group is not None and error.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return no_such_group(group)
        if group is not None and error.code() in NOT_YET:
            return NoCoordinator(
                f"No broker is ready to look after group {group}; try again. If that lasts, the "
                "broker's log says why."
            )
        # We are not a member: for a caller that is not one, the codes of NO_LONGER_OURS mean that
        # the group has members.
        if group is not None and error.code() in {KafkaError.NON_EMPTY_GROUP, *NO_LONGER_OURS}:
            return _is_active(f"{group} has active members")
        if error.str().rstrip().endswith(":"):  # the name of a request without a text of the broker
            error = KafkaError(error.code())
        return explain(error, self.connection.bootstrap, topic=topic)


def _members(found: Any) -> list[Member]:
    return [
        Member(
            member.member_id,
            member.client_id,
            member.host,
            member.group_instance_id,
            sorted((one.topic, one.partition) for one in member.assignment.topic_partitions),
        )
        for member in found.members
    ]


def _members_of_kind(found: ShareGroupDescription | StreamsGroupDescription) -> list[Member]:
    return [
        Member(each.id, each.client_id, each.host, None, each.assigned) for each in found.members
    ]


def no_such_group(name: str) -> NoSuchGroup:
    return NoSuchGroup(f"There is no group {name}.")


def _is_active(who_and_how: str) -> GroupIsActive:
    return GroupIsActive(
        f"Group {who_and_how}: stop them first. One that was killed, or that is static, counts "
        "until its session times out."
    )


@functools.cache  # a cluster may have ten thousand groups, and there are eight states
def _state(given: ConsumerGroupState) -> str:
    """The name that Kafka itself writes: PREPARING_REBALANCING is PreparingRebalance."""
    words = given.name.replace("REBALANCING", "REBALANCE").split("_")
    return "".join(word.capitalize() for word in words)


def _type(group: Any) -> str:
    kind = getattr(group, "type", None)
    return "classic" if kind is None else str(kind.name).lower()
