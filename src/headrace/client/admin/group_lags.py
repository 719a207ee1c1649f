"""How far many groups are behind, in few requests: for lists, and for samples taken all day.

`Groups.describe` asks several questions about each group. Here one FindCoordinator, one OffsetFetch
for each coordinator and one ListOffsets for each leader answer for hundreds of groups, spoken with
our own codecs. A group that cannot be asked about (no right to, its coordinator is away) is left
out, and so is a partition whose leader does not answer; callers say how many are missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.client.connection import ClientSettings, addresses, reach
from headrace.client.errors import ClientError
from headrace.client.wire import Wire
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import find_coordinator, list_offsets, offset_fetch

Address = tuple[str, int]
Place = tuple[str, int]  # topic, partition
Item = TypeVar("Item")

GROUP_KEY = 0  # FindCoordinator's type
LATEST, CLIENT, READ_UNCOMMITTED = -1, -1, 0
# OffsetFetch since version 8 and FindCoordinator since version 4 take many groups at once.
FIRST_FETCH_OF_MANY, FIRST_FIND_OF_MANY = 8, 4
# From version 10 on topics are named by id, which we have no need of.
LAST_FETCH_BY_NAME = 9
GROUPS_AT_ONCE = 250
PARTITIONS_AT_ONCE = 1_000


@dataclass(slots=True)
class TopicLag:
    """One topic of a group, summed over the partitions where it has committed."""

    lag: int = 0
    committed: int = 0  # offsets, summed: what two samples differ by was read in between
    end: int = 0


@dataclass(slots=True)
class GroupLag:
    topics: dict[str, TopicLag] = field(default_factory=dict)
    partitions_unknown: int = 0  # where nobody could say the end

    @property
    def lag(self) -> int:
        return sum(topic.lag for topic in self.topics.values())


class GroupLags:
    """One look at the cluster; use it in a `with` statement."""

    def __init__(self, connection: ClientSettings) -> None:
        self._connection = connection
        self._cluster = reach(connection.admin(), connection)
        self._wires: dict[Address, Wire] = {}
        self._open = ExitStack()

    def __enter__(self) -> GroupLags:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def of(self, names: Iterable[str], *, topic: str | None = None) -> dict[str, GroupLag]:
        """By group; one that has committed nothing is there, without topics. With a `topic` only
        that one is asked about: the answers are small, however much the groups read."""
        committed = self.committed(names, topic=topic)
        ends = self._ends({place for places in committed.values() for place in places})
        return {group: _summed(places, ends) for group, places in committed.items()}

    def committed(
        self, names: Iterable[str], *, topic: str | None = None
    ) -> dict[str, dict[Place, int]]:
        """The offsets of each group; groups that cannot be asked about are left out."""
        wanted = None if topic is None else self._partitions_of(topic)
        committed: dict[str, dict[Place, int]] = {}
        for address, groups in self._coordinators(list(dict.fromkeys(names))).items():
            for some in _slices(groups, GROUPS_AT_ONCE):
                with suppress(ClientError):
                    committed.update(self._committed(address, some, wanted))
        return committed

    def _partitions_of(self, topic: str) -> list[offset_fetch.OffsetFetchRequestTopics]:
        known = self._cluster.topics.get(topic)
        partitions = [] if known is None else sorted(known.partitions)
        return [offset_fetch.OffsetFetchRequestTopics(topic, partition_indexes=partitions)]

    def _wire(self, address: Address) -> Wire:
        if address not in self._wires:
            self._wires[address] = self._open.enter_context(Wire(self._connection, address))
        return self._wires[address]

    def _any_broker(self) -> Wire:
        known = [(str(each.host), each.port) for each in self._cluster.brokers.values()]
        failure = ClientError("No broker answers.")
        for address in known or addresses(self._connection.bootstrap):
            try:
                return self._wire(address)
            except ClientError as refusal:
                failure = refusal
        raise failure

    def _coordinators(self, names: list[str]) -> dict[Address, list[str]]:
        found: dict[Address, list[str]] = defaultdict(list)
        wire = self._any_broker()
        at_once = GROUPS_AT_ONCE
        if wire.version_of(find_coordinator) < FIRST_FIND_OF_MANY:
            raise ClientError("This cluster is too old to be asked about many groups at once.")
        for some in _slices(names, at_once):
            request = find_coordinator.FindCoordinatorRequest("", GROUP_KEY, list(some))
            for each in wire.ask(find_coordinator, request).coordinators:
                if each.error_code == ErrorCode.NONE:
                    found[each.host, each.port].append(each.key)
        return found

    def _committed(
        self,
        address: Address,
        groups: Sequence[str],
        wanted: list[offset_fetch.OffsetFetchRequestTopics] | None,
    ) -> Iterator[tuple[str, dict[Place, int]]]:
        wire = self._wire(address)
        version = min(wire.version_of(offset_fetch), LAST_FETCH_BY_NAME)
        if version < FIRST_FETCH_OF_MANY:
            raise ClientError("This cluster is too old to be asked about many groups at once.")
        request = offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.OffsetFetchRequestGroup(name, topics=wanted) for name in groups]
        )
        for group in wire.ask(offset_fetch, request, version=version).groups:
            if group.error_code == ErrorCode.NONE:
                yield (
                    group.group_id,
                    {
                        (topic.name, each.partition_index): each.committed_offset
                        for topic in group.topics
                        for each in topic.partitions
                        if each.error_code == ErrorCode.NONE and each.committed_offset >= 0
                    },
                )

    def _ends(self, places: set[Place]) -> dict[Place, int]:
        """As consumers of uncommitted records see them, and as Kafka's own tools count lag."""
        by_leader: dict[Address, list[Place]] = defaultdict(list)
        for topic, partition in sorted(places):
            known = self._cluster.topics.get(topic)
            found = None if known is None else known.partitions.get(partition)
            broker = None if found is None else self._cluster.brokers.get(found.leader)
            if broker is not None:
                by_leader[str(broker.host), broker.port].append((topic, partition))
        ends: dict[Place, int] = {}
        for address, led in by_leader.items():
            for some in _slices(led, PARTITIONS_AT_ONCE):
                with suppress(ClientError):
                    ends.update(self._ends_at(address, some))
        return ends

    def _ends_at(self, address: Address, places: Sequence[Place]) -> Iterator[tuple[Place, int]]:
        by_topic: dict[str, list[list_offsets.ListOffsetsPartition]] = defaultdict(list)
        for topic, partition in places:
            by_topic[topic].append(list_offsets.ListOffsetsPartition(partition, -1, LATEST))
        request = list_offsets.ListOffsetsRequest(
            CLIENT,
            READ_UNCOMMITTED,
            [list_offsets.ListOffsetsTopic(name, asked) for name, asked in by_topic.items()],
        )
        for answered in self._wire(address).ask(list_offsets, request).topics:
            for each in answered.partitions:
                if each.error_code == ErrorCode.NONE:
                    yield (answered.name, each.partition_index), each.offset


def _summed(committed: dict[Place, int], ends: dict[Place, int]) -> GroupLag:
    group = GroupLag()
    for (topic, partition), offset in committed.items():
        end = ends.get((topic, partition))
        if end is None:
            group.partitions_unknown += 1
            continue
        known = group.topics.setdefault(topic, TopicLag())
        known.lag += max(end - offset, 0)
        known.committed += offset
        known.end += end
    return group


def _slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]
