"""The records of streams groups: one function for each recorded change."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.node.coordination.group.streams.streams_group import (
    Epochs,
    StreamsGroup,
    StreamsMember,
)
from headrace.node.coordination.group.streams.tasks import Tasks, TaskSet
from headrace.node.coordination.group.streams.topology import Topology
from headrace.node.coordination.records import Record
from headrace.wire.protocol.messages import (
    streams_group_current_member_assignment_value as current_,
)
from headrace.wire.protocol.messages import streams_group_member_metadata_value as member_
from headrace.wire.protocol.messages import streams_group_metadata_value as metadata_
from headrace.wire.protocol.messages import streams_group_target_assignment_member_value as target_
from headrace.wire.protocol.messages.streams_group_current_member_assignment_key import (
    StreamsGroupCurrentMemberAssignmentKey,
)
from headrace.wire.protocol.messages.streams_group_member_metadata_key import (
    StreamsGroupMemberMetadataKey,
)
from headrace.wire.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from headrace.wire.protocol.messages.streams_group_target_assignment_member_key import (
    StreamsGroupTargetAssignmentMemberKey,
)
from headrace.wire.protocol.messages.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from headrace.wire.protocol.messages.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from headrace.wire.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey


def epoch(
    group_id: str,
    number: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    settings: Mapping[str, str],
) -> Record:
    value = metadata_.StreamsGroupMetadataValue(
        number,
        metadata_hash,
        validated_topology_epoch,
        [metadata_.LastAssignmentConfig(*one) for one in sorted(settings.items())],
    )
    return Record(StreamsGroupMetadataKey(group_id), value)


def topology(group_id: str, value: Topology) -> Record:
    return Record(StreamsGroupTopologyKey(group_id), value)


def member(group_id: str, one: StreamsMember) -> Record:
    value = member_.StreamsGroupMemberMetadataValue(
        one.instance_id,
        one.rack_id,
        one.client_id,
        one.client_host,
        one.rebalance_timeout_ms,
        one.topology_epoch,
        one.process_id,
        None if one.endpoint is None else member_.Endpoint(*one.endpoint),
        [member_.KeyValue(*tag) for tag in one.tags],
    )
    return Record(StreamsGroupMemberMetadataKey(group_id, one.id), value)


def target_epoch(group_id: str, number: int, wall_ms: int) -> Record:
    value = StreamsGroupTargetAssignmentMetadataValue(number, wall_ms)
    return Record(StreamsGroupTargetAssignmentMetadataKey(group_id), value)


def target(group_id: str, member_id: str, given: Tasks) -> Record:
    value = target_.StreamsGroupTargetAssignmentMemberValue(
        *(
            [target_.TaskIds(name, sorted(found)) for name, found in sorted(tasks.items())]
            for tasks in given
        )
    )
    return Record(StreamsGroupTargetAssignmentMemberKey(group_id, member_id), value)


def current(group_id: str, one: StreamsMember) -> Record:
    value = current_.StreamsGroupCurrentMemberAssignmentValue(
        one.epoch,
        one.previous_epoch,
        int(one.state),
        _with_epochs(one.assigned.active, one.since),
        _without_epochs(one.assigned.standby),
        _without_epochs(one.assigned.warmup),
        _with_epochs(one.revoking.active, one.since),
        _without_epochs(one.revoking.standby),
        _without_epochs(one.revoking.warmup),
    )
    return Record(StreamsGroupCurrentMemberAssignmentKey(group_id, one.id), value)


def _with_epochs(tasks: TaskSet, since: Epochs) -> list[current_.TaskIds]:
    return [
        current_.TaskIds(
            name, sorted(found), [since[name, partition] for partition in sorted(found)]
        )
        for name, found in sorted(tasks.items())
    ]


def _without_epochs(tasks: TaskSet) -> list[current_.TaskIds]:
    return [current_.TaskIds(name, sorted(found), None) for name, found in sorted(tasks.items())]


def forgotten_member(group_id: str, member_id: str) -> list[Record]:
    return [
        Record(StreamsGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        Record(StreamsGroupTargetAssignmentMemberKey(group_id, member_id), None),
        Record(StreamsGroupMemberMetadataKey(group_id, member_id), None),
    ]


def forgotten_group(group: StreamsGroup) -> list[Record]:
    ids = group.members.keys()
    return [
        *(Record(StreamsGroupCurrentMemberAssignmentKey(group.id, one), None) for one in ids),
        *(Record(StreamsGroupTargetAssignmentMemberKey(group.id, one), None) for one in ids),
        Record(StreamsGroupTargetAssignmentMetadataKey(group.id), None),
        *(Record(StreamsGroupMemberMetadataKey(group.id, one), None) for one in ids),
        Record(StreamsGroupTopologyKey(group.id), None),
        Record(StreamsGroupMetadataKey(group.id), None),
    ]
