"""Share groups of a cluster (KIP-932): members, start offsets and lag, with our own codecs.

librdkafka's admin client neither lists nor describes them. `Groups` asks here for groups that it
does not find among consumer groups. A share group has no committed offset: its start offset is the
first record of a partition that is not done, and records after it may be done already, which `lag`
leaves out. The protocol does not say which records are locked, nor how often they were delivered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.client.admin.group_coordinators import (
    NOT_SAID,
    Address,
    GroupCoordinators,
    Place,
)
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.wire import require_no_error
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    alter_share_group_offsets,
    describe_share_group_offsets,
    share_group_describe,
)

SHARE = "share"
FIRST_WITH_LAG = 1  # DescribeShareGroupOffsets


@dataclass(slots=True)
class ShareGroupMember:
    id: str
    client_id: str
    host: str
    assigned: list[Place]  # others may read the same partitions


@dataclass(slots=True)
class SharedPartition:
    """A field is None if the group has not read the partition yet, or the cluster does not say."""

    start_offset: int | None
    lag: int | None


@dataclass(slots=True)
class ShareGroupDescription:
    group: str
    state: str
    assignor: str
    coordinator: int
    members: list[ShareGroupMember]


class ShareGroups:
    """Lists and describes share groups. `brokers` are the addresses of the cluster's brokers."""

    def __init__(self, connection: ClientSettings, brokers: Sequence[Address]) -> None:
        self._coordinators = GroupCoordinators(connection, brokers)

    def states(self) -> dict[str, str]:
        """The state of each share group, by name; without those of brokers that do not answer."""
        return self._coordinators.states(SHARE, share_group_describe)

    def describe(self, name: str) -> ShareGroupDescription | None:
        """None if there is no share group of this name."""
        with self._coordinators.of_group(name, share_group_describe) as (wire, node):
            if wire is None:
                return None
            request = share_group_describe.ShareGroupDescribeRequest([name])
            [found] = wire.ask(share_group_describe, request).groups
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        require_no_error(found.error_code, found.error_message)
        return ShareGroupDescription(
            name, found.group_state, found.assignor_name, node, _members(found.members)
        )

    def offsets(self, name: str) -> dict[Place, SharedPartition]:
        """Start offset and lag of every partition that the group knows; empty if there is no such
        share group."""
        with self._coordinators.of_group(name, share_group_describe) as (wire, _):
            if wire is None:
                return {}
            says_lag = wire.version_of(describe_share_group_offsets) >= FIRST_WITH_LAG
            asked = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(name, None)
            request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest([asked])
            [found] = wire.ask(describe_share_group_offsets, request).groups
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        require_no_error(found.error_code, found.error_message)
        return {
            (topic.topic_name, each.partition_index): SharedPartition(
                None if each.start_offset < 0 else each.start_offset,
                None if each.lag == NOT_SAID or not says_lag else each.lag,
            )
            for topic in found.topics
            for each in topic.partitions
            if each.error_code == ErrorCode.NONE
        }

    def move(self, name: str, targets: Iterable[tuple[Place, int]]) -> None:
        """Set start offsets: records before them are done, records after them are delivered again
        with delivery count 0. The cluster refuses while the group has members."""
        topics: dict[str, list[alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition]]
        topics = defaultdict(list)
        for (topic, partition), offset in targets:
            topics[topic].append(
                alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(partition, offset)
            )
        request = alter_share_group_offsets.AlterShareGroupOffsetsRequest(
            name,
            [
                alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(topic, partitions)
                for topic, partitions in topics.items()
            ],
        )
        with self._coordinators.of_group(name, share_group_describe) as (wire, _):
            if wire is None:
                raise ClientError("This cluster has no share groups.")
            answer = wire.ask(alter_share_group_offsets, request)
        require_no_error(answer.error_code, answer.error_message)
        for topic in answer.responses:
            for each in topic.partitions:
                require_no_error(each.error_code, each.error_message)


def _members(found: Iterable[share_group_describe.Member]) -> list[ShareGroupMember]:
    return [
        ShareGroupMember(
            each.member_id,
            each.client_id,
            each.client_host,
            sorted(
                (topic.topic_name, partition)
                for topic in each.assignment.topic_partitions
                for partition in topic.partitions
            ),
        )
        for each in found
    ]
