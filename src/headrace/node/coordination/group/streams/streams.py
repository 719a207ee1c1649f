"""The decisions about streams groups (KIP-1071): StreamsGroupHeartbeat is their only request.

A member joins (epoch 0) with the topology of its application, reports its tasks, or leaves (epoch
-1). The group checks the topology against the topics that exist; tasks are assigned once all of
them do. The answer names internal topics that are missing, for the handler to create; when they
exist, the next heartbeat finds them. A new group waits `streams.initial.rebalance.delay.ms` for
further members before the first assignment.

Decisions read the group and return records; the recorded state changes by their replay alone. Not
done, as in Apache Kafka 4.3: static members, patterns of topics, warm-up tasks, another topology in
an existing group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace.environment import Now
from headrace.node.coordination.deadlines import Deadlines
from headrace.node.coordination.group.classic_answers import Client
from headrace.node.coordination.group.epochs import JOINS
from headrace.node.coordination.group.metadata_hash import metadata_hash
from headrace.node.coordination.group.settings import GroupSettings
from headrace.node.coordination.group.streams import streams_records as kept
from headrace.node.coordination.group.streams.internal_topics import (
    MOST_TASKS,
    Configured,
    InternalTopic,
    Status,
    StatusCode,
    configure,
)
from headrace.node.coordination.group.streams.streams_group import (
    LEAVES,
    NOT_VALIDATED,
    Endpoint,
    StreamsGroup,
    StreamsMember,
    TaskMemberState,
)
from headrace.node.coordination.group.streams.task_assignor import TaskMember, assign_tasks
from headrace.node.coordination.group.streams.task_reconciliation import next_step
from headrace.node.coordination.group.streams.tasks import NOTHING, Tasks, TaskSet, ids_of, task_set
from headrace.node.coordination.group.streams.topology import (
    Topology,
    is_same,
    required_names,
    topology_of,
)
from headrace.node.coordination.records import Record
from headrace.node.coordination.shard import Decision
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import streams_group_heartbeat as messages
from headrace.wire.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

# Kinds of deadlines.
SESSION = "streams session"  # member id
REVOCATION = "streams revocation"  # member id
FIRST_ASSIGNMENT = "streams first assignment"  # of the group
KINDS = (SESSION, REVOCATION, FIRST_ASSIGNMENT)

STATIC_LEAVES = -2  # the epoch of a static member that will be back
STANDBYS = "num.standby.replicas"
# A member that waits for internal topics or for its first tasks sends its next heartbeat so soon,
# and not after 5 s as in Apache Kafka: the topics exist after some milliseconds.
SOON_MS = 1_000
MOST_TAGS = 100  # Kafka Streams takes 5 from its settings


class Beat(NamedTuple):
    """The answer to a heartbeat, and the internal topics to create."""

    response: StreamsGroupHeartbeatResponse
    missing: tuple[InternalTopic, ...] = ()


class StreamsGroups:
    __slots__ = ("groups", "deadlines", "image", "_settings")

    def __init__(
        self,
        deadlines: Deadlines,
        image: Callable[[], MetadataImage],
        settings: Callable[[], GroupSettings],
    ) -> None:
        self.groups: dict[str, StreamsGroup] = {}
        self.deadlines = deadlines
        self.image = image
        self._settings = settings

    def require(self, group_id: str) -> StreamsGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
        return group

    # --- heartbeats

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client: Client, now: Now
    ) -> Decision:
        """Decides the heartbeat of a member that joins or stays; a group of another kind must not
        have the name."""
        joins = request.member_epoch == JOINS
        group = self.groups.get(request.group_id)
        if group is None:
            group = StreamsGroup(request.group_id) if joins else self.require(request.group_id)
        self._require_room(group, request.member_id)
        owned = _owned(request)
        before = _known_member(group, request, owned)
        after = _updated(before, request, client)
        records: list[Record] = []
        changed = before.id not in group.members or after != before
        if changed:
            records.append(kept.member(group.id, after))
        topology = _topology(group, request, records)
        statuses = _stale(group, after)
        configured, number = self._configured(group, topology)
        changed = changed or number != group.metadata_hash or group.topology is None
        if configured.problem is None:
            _require_tasks_exist(configured, owned)
        validated = topology.epoch if configured.problem is None else NOT_VALIDATED
        settings = self._assignment_settings(group.id)
        changed = changed or validated != group.validated_topology_epoch
        changed = changed or settings != group.assignment_settings
        epoch = group.epoch + 1 if changed else group.epoch
        if changed:
            records.append(kept.epoch(group.id, epoch, number, validated, settings))
        members = {**group.members, after.id: after}
        delay_ms = self._delay_of_first_assignment(group, now)
        if delay_ms:
            why = "Assignment delayed due to the configured initial rebalance delay."
            statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, why))
            target, target_epoch, wait_ms = NOTHING, group.target_epoch, delay_ms
        else:
            targets, target_epoch, wait_ms = self._assign(
                group, members, epoch, configured, records, now
            )
            target = targets.get(after.id, NOTHING)
            if wait_ms:
                why = "Assignment delayed due to the configured assignment interval."
                statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, why))
        moved = next_step(after, target_epoch, target, owned, group.members)
        if moved != after:
            records.append(kept.current(group.id, moved))
        shutdown_by = group.shutdown_by
        if request.shutdown_application and shutdown_by is None:
            shutdown_by = moved.id
        if configured.problem is not None:
            statuses.append(configured.problem)
        if shutdown_by is not None:
            statuses.append(_shutdown(shutdown_by))
        response = StreamsGroupHeartbeatResponse(
            member_id=moved.id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=self._interval_ms(group.id, configured, wait_ms),
            status=[messages.Status(*status) for status in statuses],
        )
        endpoints_epoch = group.endpoints_epoch
        if joins or moved.assigned != before.assigned:
            active, standby, warmup = moved.assigned
            response.active_tasks = _as_answer(active)
            response.standby_tasks = _as_answer(standby)
            response.warmup_tasks = _as_answer(warmup)
            endpoints_epoch += moved.endpoint is not None
        response.endpoint_information_epoch = endpoints_epoch
        if endpoints_epoch != request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = self._endpoints(group, moved, configured)
        topics_seen = self.image().topics

        def then() -> None:
            recorded = self.groups[group.id]
            recorded.configured, recorded.topics_seen = configured, topics_seen
            recorded.endpoints_epoch = endpoints_epoch
            recorded.shutdown_by = shutdown_by
            self.keep_session(group.id, moved.id, now)
            self.watch_revocation(group.id, moved, now, moved=moved != after)
            if delay_ms and (FIRST_ASSIGNMENT, group.id) not in self.deadlines.at:
                self.deadlines.set((FIRST_ASSIGNMENT, group.id), now.monotonic_ms + delay_ms)

        return Decision(records, Beat(response, configured.missing), then)

    def _require_room(self, group: StreamsGroup, member_id: str) -> None:
        most = self._settings().streams_max_size
        if len(group.members) >= most and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {most} members.",
            )

    def _configured(self, group: StreamsGroup, topology: Topology) -> tuple[Configured, int]:
        """Returns the topology as it fits the topics that exist, and the hash of those topics."""
        image = self.image()
        if group.configured is not None and group.topics_seen is image.topics:
            return group.configured, group.metadata_hash
        number = metadata_hash(required_names(topology), image)
        if group.configured is not None and number == group.metadata_hash:
            return group.configured, number
        return configure(topology, image), number

    def _assignment_settings(self, group_id: str) -> dict[str, str]:
        return {STANDBYS: str(self._settings().of_streams_group(group_id).standbys)}

    def _delay_of_first_assignment(self, group: StreamsGroup, now: Now) -> int:
        """Returns how long the group's first assignment waits still; 0: it does not."""
        due_ms = self.deadlines.at.get((FIRST_ASSIGNMENT, group.id))
        if due_ms is not None:
            return max(due_ms - now.monotonic_ms, 1)
        if group.members:
            return 0
        return self._settings().of_streams_group(group.id).initial_delay_ms

    def _interval_ms(self, group_id: str, configured: Configured, wait_ms: int) -> int:
        interval_ms = self._settings().of_streams_group(group_id).heartbeat_interval_ms
        if configured.missing:
            return min(interval_ms, SOON_MS)
        return min(interval_ms, max(wait_ms, 1)) if wait_ms else interval_ms

    def _assign(
        self,
        group: StreamsGroup,
        members: Mapping[str, StreamsMember],
        epoch: int,
        configured: Configured,
        records: list[Record],
        now: Now,
    ) -> tuple[Mapping[str, Tasks], int, int]:
        """Returns the targets, their epoch, and for how long it is too early for new ones."""
        if epoch <= group.target_epoch:
            return group.target, group.target_epoch, 0
        settings = self._settings().of_streams_group(group.id)
        since_ms = now.wall_ms - group.target_at_ms
        if group.target_at_ms and 0 <= since_ms < settings.assignment_interval_ms:
            wait_ms = settings.assignment_interval_ms - since_ms
            return group.target, group.target_epoch, wait_ms
        given = {member_id: NOTHING for member_id in members}
        if configured.problem is None:
            last = {
                one.id: TaskMember(one.process_id, group.target.get(one.id, NOTHING))
                for one in members.values()
            }
            given = assign_tasks(last, configured.subtopologies, settings.standbys)
        for member_id, target in given.items():
            if group.target.get(member_id) != target:
                records.append(kept.target(group.id, member_id, target))
        records.append(kept.target_epoch(group.id, epoch, now.wall_ms))
        return given, epoch, 0

    def _endpoints(
        self, group: StreamsGroup, moved: StreamsMember, configured: Configured
    ) -> list[messages.EndpointToPartitions]:
        """Returns which partitions each application instance has, for interactive queries."""
        others = [one for one in group.members.values() if one.id != moved.id]
        return [
            messages.EndpointToPartitions(
                messages.Endpoint(*one.endpoint),
                self._partitions(one.assigned.active, configured),
                self._partitions(one.assigned.standby, configured),
            )
            for one in (*others, moved)
            if one.endpoint is not None
        ]

    def _partitions(self, tasks: TaskSet, configured: Configured) -> list[messages.TopicPartition]:
        topics = self.image().topics
        return [
            messages.TopicPartition(
                name, [index for index in sorted(found) if index < len(topics[name].partitions)]
            )
            for subtopology, found in tasks.items()
            if subtopology in configured.subtopologies
            for name in configured.subtopologies[subtopology].sources
            if name in topics
        ]

    # --- sessions

    def keep_session(self, group_id: str, member_id: str, now: Now) -> None:
        timeout_ms = self._settings().of_streams_group(group_id).session_timeout_ms
        self.deadlines.set((SESSION, group_id, member_id), now.monotonic_ms + timeout_ms)

    def watch_revocation(
        self, group_id: str, member: StreamsMember, now: Now, *, moved: bool
    ) -> None:
        """A member has its rebalance timeout for each step in which it gives tasks up."""
        key = (REVOCATION, group_id, member.id)
        if member.state is not TaskMemberState.UNREVOKED_TASKS:
            self.deadlines.drop(key)
        elif moved or key not in self.deadlines.at:
            self.deadlines.set(key, now.monotonic_ms + max(member.rebalance_timeout_ms, 0))

    def due(self, key: Any, now: Now) -> Decision:
        """Decides what follows when a deadline of one of KINDS is reached."""
        group = self.groups.get(key[1])
        if group is None:
            return Decision()
        if key[0] == FIRST_ASSIGNMENT:
            return self._first_assignment(group, now)
        member = group.members.get(key[2])
        if member is None:
            return Decision()
        if key[0] == REVOCATION and member.state is not TaskMemberState.UNREVOKED_TASKS:
            return Decision()
        return self._remove(group, member.id, None)

    def _first_assignment(self, group: StreamsGroup, now: Now) -> Decision:
        if not group.members or group.topology is None:
            return Decision()
        configured = group.configured or configure(group.topology, self.image())
        records: list[Record] = []
        self._assign(group, group.members, group.epoch, configured, records, now)
        return Decision(records)

    def resume(self, now: Now) -> None:
        """The log is loaded: begin the sessions."""
        for group in self.groups.values():
            for member in group.members.values():
                self.keep_session(group.id, member.id, now)
                self.watch_revocation(group.id, member, now, moved=True)

    # --- leaving

    def leave(self, request: StreamsGroupHeartbeatRequest) -> Decision:
        group = self.require(request.group_id)
        if request.member_id not in group.members:
            raise _unknown_member(group, request.member_id)
        response = StreamsGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        shutdown_by = request.member_id if request.shutdown_application else None
        return self._remove(group, request.member_id, Beat(response), shutdown_by)

    def _remove(
        self, group: StreamsGroup, member_id: str, response: Any, shutdown_by: str | None = None
    ) -> Decision:
        records = [
            *kept.forgotten_member(group.id, member_id),
            kept.epoch(
                group.id,
                group.epoch + 1,
                group.metadata_hash,
                group.validated_topology_epoch,
                group.assignment_settings,
            ),
        ]

        def then() -> None:
            for kind in (SESSION, REVOCATION):
                self.deadlines.drop((kind, group.id, member_id))
            if group.members and group.shutdown_by is None:
                group.shutdown_by = shutdown_by

        return Decision(records, response, then)


def require_sensible(request: StreamsGroupHeartbeatRequest) -> None:
    """Checks of a request that do not need its group."""

    def require(holds: bool, otherwise: str) -> None:
        if not holds:
            raise KafkaError(ErrorCode.INVALID_REQUEST, otherwise)

    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    epoch = request.member_epoch
    topology = request.topology
    require(request.instance_id is None, "Static membership is not yet supported.")
    require(request.task_offsets is None, "TaskOffsets are not supported yet.")
    require(request.task_end_offsets is None, "TaskEndOffsets are not supported yet.")
    require(not request.warmup_tasks, "WarmupTasks are not supported yet.")
    if topology is not None:
        require(
            not any(one.source_topic_regex for one in topology.subtopologies),
            "Regular expressions for source topics are not supported yet.",
        )
    require(request.member_id.strip() != "", "MemberId can't be empty.")
    require(request.group_id.strip() != "", "GroupId can't be empty.")
    require(request.rack_id is None or request.rack_id.strip() != "", "RackId can't be empty.")
    if epoch == JOINS:
        require(
            request.rebalance_timeout_ms != -1,
            "RebalanceTimeoutMs must be provided in first request.",
        )
        require(not request.active_tasks, "ActiveTasks must be empty when (re-)joining.")
        require(not request.standby_tasks, "StandbyTasks must be empty when (re-)joining.")
        require(topology is not None, "Topology must be non-null when (re-)joining.")
    require(epoch != STATIC_LEAVES, "InstanceId can't be null.")
    require(epoch >= LEAVES, f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    require(
        all(one is None for one in tasks) or all(one is not None for one in tasks),
        "If one task-type is non-null, all must be non-null.",
    )
    require(epoch == JOINS or topology is None, "Topology can only be provided when (re-)joining.")
    reported = sum(1 + len(part.partitions) for one in tasks for part in one or ())
    require(reported <= 2 * MOST_TASKS, f"More tasks than a group can have ({MOST_TASKS}).")
    require(len(request.client_tags or ()) <= MOST_TAGS, f"More than {MOST_TAGS} client tags.")


def _owned(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    if request.active_tasks is None or request.standby_tasks is None:
        return None
    return Tasks(
        task_set(request.active_tasks),
        task_set(request.standby_tasks),
        task_set(request.warmup_tasks or ()),
    )


def _known_member(
    group: StreamsGroup, request: StreamsGroupHeartbeatRequest, owned: Tasks | None
) -> StreamsMember:
    """Returns the member, or a new one if it joins. It may be one answer behind, if it has nothing
    beyond its assignment."""
    member = group.members.get(request.member_id)
    epoch = request.member_epoch
    if epoch == JOINS:
        return member or StreamsMember(request.member_id)
    if member is None:
        raise _unknown_member(group, request.member_id)
    if epoch == member.epoch:
        return member
    is_behind = epoch < member.epoch and epoch == member.previous_epoch
    if is_behind and owned is not None and owned.is_within(member.assigned):
        return member
    size = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {size} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _unknown_member(group: StreamsGroup, member_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.id}."
    )


def _updated(
    member: StreamsMember, request: StreamsGroupHeartbeatRequest, client: Client
) -> StreamsMember:
    """Takes over the fields of the request; missing fields keep their values."""
    after = member.copy(client_id=client.id, client_host=client.host)
    if request.rack_id is not None:
        after.rack_id = request.rack_id
    if request.rebalance_timeout_ms != -1:
        after.rebalance_timeout_ms = request.rebalance_timeout_ms
    if request.topology is not None:
        after.topology_epoch = request.topology.epoch
    if request.process_id is not None:
        after.process_id = request.process_id
    if request.client_tags is not None:
        after.tags = tuple(sorted((tag.key, tag.value) for tag in request.client_tags))
    if request.user_endpoint is not None:
        after.endpoint = Endpoint(request.user_endpoint.host, request.user_endpoint.port)
    return after


def _topology(
    group: StreamsGroup, request: StreamsGroupHeartbeatRequest, records: list[Record]
) -> Topology:
    """Returns the group's topology, which the first member brings."""
    asked = None if request.topology is None else topology_of(request.topology)
    if group.topology is None:
        if asked is None:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The group has no topology. The member must abandon all its tasks and rejoin.",
            )
        records.append(kept.topology(group.id, asked))
        return asked
    if asked is None or asked.epoch < group.topology.epoch or is_same(asked, group.topology):
        return group.topology
    raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")


def _stale(group: StreamsGroup, member: StreamsMember) -> list[Status]:
    if group.topology is None or member.topology_epoch >= group.topology.epoch:
        return []
    return [
        Status(
            StatusCode.STALE_TOPOLOGY,
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology "
            f"epoch {group.topology.epoch}.",
        )
    ]


def _shutdown(member_id: str) -> Status:
    return Status(
        StatusCode.SHUTDOWN_APPLICATION,
        f"Streams group member {member_id} encountered a fatal error and requested a shutdown for "
        "the entire application.",
    )


def _require_tasks_exist(configured: Configured, owned: Tasks | None) -> None:
    for tasks in owned or ():
        for subtopology, partition in ids_of(tasks):
            known = configured.subtopologies.get(subtopology)
            if known is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Subtopology {subtopology} does not exist in the topology.",
                )
            if not 0 <= partition < known.tasks:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Task {partition} for subtopology {subtopology} is invalid. Number of tasks "
                    f"for this subtopology: {known.tasks}",
                )


def _as_answer(tasks: TaskSet) -> list[messages.TaskIds]:
    return [messages.TaskIds(name, sorted(found)) for name, found in sorted(tasks.items())]
