"""A streams group (KIP-1071): its state, and how records change it.

The group has an epoch, which rises when its members, its topology, its topics or the settings of
the assignment change; a target per member with the epoch it was computed for; and each member's own
epoch and tasks, which move to the target step by step (`task_reconciliation.py`).

Everything here changes by `replay` alone, except the fields that are marked as not recorded.
Decides nothing: `streams.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple

from headrace.node.coordination.group.streams.internal_topics import Configured
from headrace.node.coordination.group.streams.tasks import NOTHING, TaskId, Tasks, task_set
from headrace.node.coordination.group.streams.topology import Topology, subtopology_by_source
from headrace.node.coordination.records import Record
from headrace.wire.protocol.messages.streams_group_current_member_assignment_key import (
    StreamsGroupCurrentMemberAssignmentKey,
)
from headrace.wire.protocol.messages.streams_group_current_member_assignment_value import (
    StreamsGroupCurrentMemberAssignmentValue,
)
from headrace.wire.protocol.messages.streams_group_member_metadata_key import (
    StreamsGroupMemberMetadataKey,
)
from headrace.wire.protocol.messages.streams_group_member_metadata_value import (
    StreamsGroupMemberMetadataValue,
)
from headrace.wire.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from headrace.wire.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from headrace.wire.protocol.messages.streams_group_target_assignment_member_key import (
    StreamsGroupTargetAssignmentMemberKey,
)
from headrace.wire.protocol.messages.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from headrace.wire.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey

LEAVES = -1  # the epoch of a member that goes
NOT_VALIDATED = -1
Epochs = Mapping[TaskId, int]


class TaskMemberState(IntEnum):
    """Where a member is on the way to its target; the numbers of the records."""

    STABLE = 1
    UNREVOKED_TASKS = 2  # it has to give tasks up
    UNRELEASED_TASKS = 3  # others still have some of its tasks
    UNKNOWN = 127  # a later release has written it


class Endpoint(NamedTuple):
    """Where a member answers interactive queries."""

    host: str
    port: int


@dataclass(slots=True)
class StreamsMember:
    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] = ()
    state: TaskMemberState = TaskMemberState.STABLE
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Tasks = NOTHING
    revoking: Tasks = NOTHING
    since: Epochs = field(default_factory=dict)  # active tasks that it has or gives up

    def copy(self, **changes: Any) -> StreamsMember:
        return replace(self, **changes)

    def has_reached(self, target_epoch: int) -> bool:
        return self.state is TaskMemberState.STABLE and self.epoch == target_epoch


@dataclass(slots=True)
class StreamsGroup:
    id: str
    epoch: int = 1  # so that the first member finds 2, as in Apache Kafka 4.3
    metadata_hash: int = 0
    validated_topology_epoch: int = NOT_VALIDATED
    assignment_settings: Mapping[str, str] = field(default_factory=dict)
    target_epoch: int = 0
    target_at_ms: int = 0  # wall clock; when the target was computed
    topology: Topology | None = None
    members: dict[str, StreamsMember] = field(default_factory=dict)
    target: dict[str, Tasks] = field(default_factory=dict)
    # Not recorded: found again after a change of the coordinator.
    configured: Configured | None = None
    topics_seen: Any = None  # the image's topics at the last check
    endpoints_epoch: int = 0
    shutdown_by: str | None = None  # the member that asked for the application's end
    sources: Mapping[str, str] = field(default_factory=dict)  # topic -> subtopology

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return "NotReady"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.has_reached(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def reads(self, topic: str) -> bool:
        return bool(self.members) and topic in self.sources

    # --- replay

    def replay_topology(self, value: Topology | None) -> None:
        self.topology, self.configured = value, None
        self.sources = {} if value is None else subtopology_by_source(value)

    def replay_metadata(self, value: StreamsGroupMetadataValue) -> None:
        self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        self.validated_topology_epoch = value.validated_topology_epoch
        settings = value.last_assignment_configs or ()
        self.assignment_settings = {one.key: one.value for one in settings}

    def replay_member(self, member_id: str, value: StreamsGroupMemberMetadataValue | None) -> None:
        if value is None:
            self.members.pop(member_id, None)
            if not self.members:
                self.shutdown_by = None
            return
        endpoint = value.user_endpoint
        self.members[member_id] = self._member(member_id).copy(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            tags=tuple((tag.key, tag.value) for tag in value.client_tags),
        )

    def replay_current(
        self, member_id: str, value: StreamsGroupCurrentMemberAssignmentValue | None
    ) -> None:
        if value is None:
            if member_id in self.members:
                self.members[member_id] = self.members[member_id].copy(
                    epoch=LEAVES,
                    previous_epoch=LEAVES,
                    assigned=NOTHING,
                    revoking=NOTHING,
                    since={},
                )
            return
        self.members[member_id] = self._member(member_id).copy(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_state(value.state),
            assigned=Tasks(
                task_set(value.active_tasks),
                task_set(value.standby_tasks),
                task_set(value.warmup_tasks),
            ),
            revoking=Tasks(
                task_set(value.active_tasks_pending_revocation),
                task_set(value.standby_tasks_pending_revocation),
                task_set(value.warmup_tasks_pending_revocation),
            ),
            since=_epochs(
                (*value.active_tasks, *value.active_tasks_pending_revocation), value.member_epoch
            ),
        )

    def _member(self, member_id: str) -> StreamsMember:
        return self.members.get(member_id) or StreamsMember(member_id)


def replay(groups: dict[str, StreamsGroup], record: Record) -> bool:
    """Apply a record to its streams group; returns False if it is of another kind."""
    key, value = record.key, record.value
    kind = type(key)
    if kind not in KINDS:
        return False
    group = groups.get(key.group_id)
    if group is None:
        if value is None:
            return True
        group = groups[key.group_id] = StreamsGroup(key.group_id)
    if kind is StreamsGroupMemberMetadataKey:
        group.replay_member(key.member_id, value)
    elif kind is StreamsGroupCurrentMemberAssignmentKey:
        group.replay_current(key.member_id, value)
    elif kind is StreamsGroupTargetAssignmentMemberKey:
        if value is None:
            group.target.pop(key.member_id, None)
        else:
            group.target[key.member_id] = Tasks(
                task_set(value.active_tasks),
                task_set(value.standby_tasks),
                task_set(value.warmup_tasks),
            )
    elif kind is StreamsGroupTargetAssignmentMetadataKey:
        group.target_epoch = -1 if value is None else value.assignment_epoch
        group.target_at_ms = 0 if value is None else value.assignment_timestamp
    elif kind is StreamsGroupTopologyKey:
        group.replay_topology(value)
    elif value is None:
        del groups[key.group_id]
    else:
        group.replay_metadata(value)
    return True


KINDS = frozenset(
    {
        StreamsGroupMetadataKey,
        StreamsGroupTopologyKey,
        StreamsGroupMemberMetadataKey,
        StreamsGroupTargetAssignmentMetadataKey,
        StreamsGroupTargetAssignmentMemberKey,
        StreamsGroupCurrentMemberAssignmentKey,
    }
)


def _epochs(parts: Iterable[Any], member_epoch: int) -> Epochs:
    """Releases before Kafka 4.3 wrote none: then only the present epoch of the member counts."""
    found: dict[TaskId, int] = {}
    for part in parts:
        epochs = part.assignment_epochs or ()
        if len(epochs) != len(part.partitions):
            epochs = [member_epoch] * len(part.partitions)
        for partition, epoch in zip(part.partitions, epochs, strict=True):
            found[part.subtopology_id, partition] = epoch
    return found


def _state(number: int) -> TaskMemberState:
    known = {1, 2, 3}
    return TaskMemberState(number) if number in known else TaskMemberState.UNKNOWN
