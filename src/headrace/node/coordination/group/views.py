"""The public view of groups: lists and descriptions, as in the responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from headrace.node.coordination.group.assignors import Assignment
from headrace.node.coordination.group.classic_group import CONSUMER, ClassicGroup, ClassicGroupState
from headrace.node.coordination.group.consumer_group import ConsumerGroup, ConsumerMember
from headrace.node.coordination.group.share import SIMPLE
from headrace.node.coordination.group.streams.internal_topics import Configured
from headrace.node.coordination.group.streams.streams_group import StreamsGroup, StreamsMember
from headrace.node.coordination.group.streams.tasks import NOTHING, Tasks
from headrace.node.coordination.group.streams.topology import Topology
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import consumer_group_describe as consumer
from headrace.wire.protocol.messages import describe_groups as classic
from headrace.wire.protocol.messages import share_group_describe as share
from headrace.wire.protocol.messages import streams_group_describe as streams
from headrace.wire.protocol.messages.list_groups import ListedGroup
from headrace.wire.protocol.messages.streams_group_topology_value import Subtopology, TopicInfo

if TYPE_CHECKING:
    from headrace.node.coordination.group.machine import Group, GroupMachine

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
Part = TypeVar("Part")
SHARE = "share"  # the protocol type and the group type
STREAMS = "streams"  # likewise


def list_groups(machine: GroupMachine, names: Iterable[str]) -> list[ListedGroup]:
    """Returns the existing ones of these groups."""
    found = []
    for name in names:
        if name in machine.share.groups:
            found.append(ListedGroup(name, SHARE, machine.share.groups[name].state, SHARE))
            continue
        if name in machine.streams.groups:
            state = machine.streams.groups[name].state
            found.append(ListedGroup(name, STREAMS, state, STREAMS))
            continue
        if name not in machine.groups and name not in machine.offsets.by_group:
            continue
        group = machine.require(name)
        if isinstance(group, ConsumerGroup):
            found.append(ListedGroup(group.id, CONSUMER, group.state, "consumer"))
        else:
            kind = group.protocol_type or ""
            found.append(ListedGroup(group.id, kind, group.state.value, "classic"))
    return found


def describe_classic(machine: GroupMachine, group_id: str) -> classic.DescribedGroup:
    group = _of_the_first_kinds(machine, group_id, "classic")
    if not isinstance(group, ClassicGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
    stable = group.state is ClassicGroupState.STABLE
    return classic.DescribedGroup(
        group_id=group.id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=[
            classic.DescribedGroupMember(
                member.id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.protocols.get(group.protocol or "", b"") if stable else b"",
                member.assignment,
            )
            for member in group.members.values()
        ],
    )


def describe_consumer(machine: GroupMachine, group_id: str) -> consumer.DescribedGroup:
    group = _of_the_first_kinds(machine, group_id, "consumer")
    if not isinstance(group, ConsumerGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    image = machine.consumer.image()
    return consumer.DescribedGroup(
        group_id=group.id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=machine.consumer.assignor_name(group.wishes),
        members=[_member(group, member, image) for member in group.members.values()],
    )


def _of_the_first_kinds(machine: GroupMachine, group_id: str, kind: str) -> Group:
    if machine.is_taken(group_id):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind} group.")
    return machine.require(group_id)


def describe_share(machine: GroupMachine, group_id: str) -> share.DescribedGroup:
    machine.require_share_name(group_id)
    group = machine.share.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    image = machine.share.image()
    return share.DescribedGroup(
        group_id=group.id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=SIMPLE,
        members=[
            share.Member(
                member.id,
                member.rack_id,
                member.epoch,
                member.client_id,
                member.client_host,
                list(member.topics),
                share.Assignment(_named(member.assigned, image, share.TopicPartitions)),
            )
            for member in group.members.values()
        ],
    )


def describe_streams(machine: GroupMachine, group_id: str) -> streams.DescribedGroup:
    group = machine.streams.groups.get(group_id)
    if group is None and (group_id in machine.share.groups or machine.find(group_id) is not None):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
    group = machine.streams.require(group_id)
    return streams.DescribedGroup(
        group_id=group.id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        topology=None if group.topology is None else _topology(group.topology, group.configured),
        members=[_streams_member(group, member) for member in group.members.values()],
    )


def _topology(topology: Topology, configured: Configured | None) -> streams.Topology:
    """Internal topics have their real numbers of partitions once tasks can be assigned."""
    ready = configured if configured is not None and configured.problem is None else None

    def topics(infos: list[TopicInfo]) -> list[streams.TopicInfo]:
        return [
            streams.TopicInfo(
                info.name,
                info.partitions if ready is None else ready.internal[info.name].partitions,
                info.replication_factor,
                [streams.KeyValue(one.key, one.value) for one in info.topic_configs],
            )
            for info in sorted(infos, key=lambda info: info.name)
        ]

    def described(one: Subtopology) -> streams.Subtopology:
        return streams.Subtopology(
            one.subtopology_id,
            sorted(one.source_topics),
            sorted(one.repartition_sink_topics),
            topics(one.state_changelog_topics),
            topics(one.repartition_source_topics),
        )

    ordered = sorted(topology.subtopologies, key=lambda one: one.subtopology_id)
    return streams.Topology(topology.epoch, [described(one) for one in ordered])


def _streams_member(group: StreamsGroup, member: StreamsMember) -> streams.Member:
    return streams.Member(
        member_id=member.id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if member.endpoint is None else streams.Endpoint(*member.endpoint),
        client_tags=[streams.KeyValue(*tag) for tag in member.tags],
        assignment=_tasks(member.assigned),
        target_assignment=_tasks(group.target.get(member.id, NOTHING)),
    )


def _tasks(tasks: Tasks) -> streams.Assignment:
    return streams.Assignment(
        *(
            [streams.TaskIds(name, sorted(found)) for name, found in sorted(part.items())]
            for part in tasks
        )
    )


def _member(group: ConsumerGroup, member: ConsumerMember, image: MetadataImage) -> consumer.Member:
    return consumer.Member(
        member.id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        list(member.topics),
        member.regex or "",
        _assignment(_held(member), image),
        _assignment(group.target.get(member.id, {}), image),
        CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _held(member: ConsumerMember) -> Assignment:
    """A member still has a partition that it must revoke, until it reports that it has revoked
    it."""
    if not member.revoking:
        return member.assigned
    return {
        topic: member.assigned.get(topic, frozenset()) | member.revoking.get(topic, frozenset())
        for topic in {**member.assigned, **member.revoking}
    }


def _assignment(given: Assignment, image: MetadataImage) -> consumer.Assignment:
    return consumer.Assignment(_named(given, image, consumer.TopicPartitions))


def _named(given: Assignment, image: MetadataImage, kind: Callable[..., Part]) -> list[Part]:
    """Deleted topics have no name to show."""
    return [
        kind(topic, image.topics_by_id[topic].name, sorted(indexes))
        for topic, indexes in given.items()
        if topic in image.topics_by_id
    ]
