"""Streams groups of a cluster (KIP-1071): their members and tasks, with our own codecs.

librdkafka's admin client does not describe them; `Groups` asks here for groups that it does not
find among consumer groups. They commit offsets as consumer groups do. A member's partitions are
those that its active tasks read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.client.admin.group_coordinators import GroupCoordinators, Place
from headrace.client.wire import require_no_error
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import streams_group_describe

STREAMS = "streams"
ASSIGNOR = "sticky"  # the only one


@dataclass(slots=True)
class StreamsGroupMember:
    id: str
    client_id: str
    host: str
    assigned: list[Place]  # what its active tasks read


@dataclass(slots=True)
class StreamsGroupDescription:
    group: str
    state: str
    coordinator: int
    members: list[StreamsGroupMember]


class StreamsGroups:
    """Describes streams groups."""

    def __init__(self, coordinators: GroupCoordinators) -> None:
        self._coordinators = coordinators

    def states(self) -> dict[str, str]:
        """The state of each streams group, by name; without those of brokers that do not answer."""
        return self._coordinators.states(STREAMS, streams_group_describe)

    def describe(self, name: str) -> StreamsGroupDescription | None:
        """None if there is no streams group of this name."""
        with self._coordinators.of_group(name, streams_group_describe) as (wire, node):
            if wire is None:
                return None
            request = streams_group_describe.StreamsGroupDescribeRequest([name])
            [found] = wire.ask(streams_group_describe, request).groups
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        require_no_error(found.error_code, found.error_message)
        sources = _sources(found.topology)
        members = [
            StreamsGroupMember(
                member.member_id,
                member.client_id,
                member.client_host,
                sorted(_places(member, sources)),
            )
            for member in found.members
        ]
        return StreamsGroupDescription(name, found.group_state, node, members)


def _sources(topology: streams_group_describe.Topology | None) -> dict[str, list[str]]:
    """The topics that each subtopology reads."""
    if topology is None:
        return {}
    return {
        one.subtopology_id: [
            *one.source_topics,
            *(topic.name for topic in one.repartition_source_topics),
        ]
        for one in topology.subtopologies or ()
    }


def _places(
    member: streams_group_describe.Member, sources: dict[str, list[str]]
) -> Iterator[Place]:
    for task in member.assignment.active_tasks:
        for topic in sources.get(task.subtopology_id, ()):
            for partition in task.partitions:
                yield topic, partition
