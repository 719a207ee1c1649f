"""How far many groups are behind, in few requests: for lists, and for samples taken all day.

`Groups.describe` sends several requests for each group. Here one FindCoordinator, one OffsetFetch
for each coordinator and a few requests for each leader (`unread.py`) serve hundreds of groups, with
our own codecs. A group that cannot be asked for (a missing right, its coordinator is away) is left
out, and so is a partition whose leader does not answer; callers report how many are missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.client.admin.unread import Unread, UnreadCounter, Wires
from headrace.client.connection import ClientSettings, addresses, reach
from headrace.client.errors import ClientError
from headrace.client.wire import Wire
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import find_coordinator, offset_fetch

Address = tuple[str, int]
Place = tuple[str, int]  # topic, partition
Item = TypeVar("Item")

GROUP_KEY = 0  # FindCoordinator's type
# OffsetFetch since version 8 and FindCoordinator since version 4 take many groups at once.
FIRST_FETCH_OF_MANY, FIRST_FIND_OF_MANY = 8, 4
# From version 10 on topics are named by id, which we do not need.
LAST_FETCH_BY_NAME = 9
GROUPS_AT_ONCE = 250


@dataclass(slots=True)
class TopicLag:
    """One topic of a group, summed over the partitions where it has committed."""

    lag: int = 0  # records that the group can still get
    committed: int = 0  # sum of offsets: the difference of two samples was read in between
    end: int = 0
    partitions_without_commit: int = 0  # they hold records, so the lag there is unknown


@dataclass(slots=True)
class GroupLag:
    topics: dict[str, TopicLag] = field(default_factory=dict)
    partitions_unknown: int = 0  # no leader answers with their end offsets

    @property
    def lag(self) -> int:
        return sum(topic.lag for topic in self.topics.values())

    @property
    def is_known(self) -> bool:
        """Whether `lag` counts all partitions. If not, the lag is at least that."""
        without = any(topic.partitions_without_commit for topic in self.topics.values())
        return not without and not self.partitions_unknown


class GroupLags:
    """One sample of the cluster; use it in a `with` statement."""

    def __init__(self, connection: ClientSettings) -> None:
        self._connection = connection
        self._cluster = reach(connection.admin(), connection)
        self._wires = Wires(connection)

    def __enter__(self) -> GroupLags:
        return self

    def __exit__(self, *_: object) -> None:
        self._wires.close()

    def of(self, names: Iterable[str], *, topic: str | None = None) -> dict[str, GroupLag]:
        """The lags by group; a group that has committed nothing has an entry without topics. With a
        `topic` only that one is asked for: the answers are small, however much the groups read."""
        committed = self.committed(names, topic=topic)
        read = {group: self._read(places) for group, places in committed.items()}
        readers: dict[Place, set[int | None]] = defaultdict(set)
        for group, topics in read.items():
            for places in topics.values():
                for place in places:
                    readers[place].add(committed[group].get(place))
        unread = UnreadCounter(self._cluster, self._wires.to).look(readers)
        return {group: _summed(committed[group], read[group], unread) for group in committed}

    def _read(self, committed: Iterable[Place]) -> dict[str, list[Place]]:
        """The lag in every partition of every topic that a group has committed in."""
        found: dict[str, list[Place]] = defaultdict(list)
        for topic, partition in committed:
            found[topic].append((topic, partition))
        for topic, places in found.items():
            known = self._cluster.topics.get(topic)
            there = () if known is None else known.partitions
            places += [(topic, each) for each in there if (topic, each) not in set(places)]
        return found

    def committed(
        self, names: Iterable[str], *, topic: str | None = None
    ) -> dict[str, dict[Place, int]]:
        """The offsets of each group; groups that cannot be asked for are left out."""
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

    def _any_broker(self) -> Wire:
        known = [(str(each.host), each.port) for each in self._cluster.brokers.values()]
        failure = ClientError("No broker answers.")
        for address in known or addresses(self._connection.bootstrap):
            try:
                return self._wires.to(address)
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
        wire = self._wires.to(address)
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


def _summed(
    committed: Mapping[Place, int], read: Mapping[str, Iterable[Place]], unread: Unread
) -> GroupLag:
    group = GroupLag()
    for topic, places in read.items():
        known = TopicLag()
        for place in places:
            count = unread.after(place, committed.get(place))
            if count is None:
                group.partitions_unknown += 1
                continue
            if place not in committed:
                known.partitions_without_commit += count > 0
                continue
            known.lag += count
            known.committed += committed[place]
            known.end += unread.ends[place]
        if any(place in committed and place in unread.ends for place in places):
            group.topics[topic] = known
    return group


def _slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]
