"""The decisions about share groups (KIP-932): heartbeats, and the state of their partitions.

A heartbeat joins (epoch 0), sends the member's subscription, or leaves (epoch -1); the answer has
the member's partitions. Before a partition is assigned, the share coordinator must have a state of
it: a heartbeat that finds partitions without one records them as initializing and adds them to
`to_initialize`, for the owner to request; `initialized` records the outcome, and the next heartbeat
assigns them. The partition's leader finds the start offset, by `share.auto.offset.reset`.

Decisions read the group and return records; the recorded state changes by their replay alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from headrace.environment import Now
from headrace.node.coordination.deadlines import Deadlines
from headrace.node.coordination.group import share_records as kept
from headrace.node.coordination.group.assignors import Assignment
from headrace.node.coordination.group.assignors.simple import assign_shares
from headrace.node.coordination.group.classic_answers import Client
from headrace.node.coordination.group.consumer_group import NOTHING
from headrace.node.coordination.group.epochs import JOINS
from headrace.node.coordination.group.metadata_hash import metadata_hash
from headrace.node.coordination.group.settings import GroupSettings
from headrace.node.coordination.group.share_group import (
    LEAVES,
    Shared,
    SharedTopic,
    SharedTopics,
    ShareGroup,
    ShareMember,
    added,
    without,
)
from headrace.node.coordination.records import Record
from headrace.node.coordination.shard import Decision
from headrace.node.coordination.share.state_key import SharePartitionKey
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import share_group_heartbeat as messages
from headrace.wire.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

SESSION = "share session"  # the kind of its deadline; member id
LONGEST_MEMBER_ID = 36  # characters: a UUID as text
NO_OFFSET = -1  # the partition's leader finds the start
# A member that waits for its first partitions sends its next heartbeat so soon, and not after 5 s
# as in Apache Kafka: the state exists after some milliseconds.
SOON_MS = 250
SIMPLE = "simple"  # the only assignor


class Initialization(NamedTuple):
    """Share partitions whose state is to be initialized, with the state epoch."""

    group_id: str
    state_epoch: int
    topics: Shared


class ShareGroups:
    __slots__ = ("groups", "deadlines", "image", "to_initialize", "_settings", "_asked_ms")

    def __init__(
        self,
        deadlines: Deadlines,
        image: Callable[[], MetadataImage],
        settings: Callable[[], GroupSettings],
    ) -> None:
        self.groups: dict[str, ShareGroup] = {}
        self.deadlines = deadlines
        self.image = image
        self.to_initialize: list[Initialization] = []  # taken by the owner after each decision
        self._settings = settings
        # By group and topic id, when a state was last requested here.
        self._asked_ms: dict[tuple[str, bytes], int] = {}

    def require(self, group_id: str) -> ShareGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return group

    def require_empty(self, group: ShareGroup) -> None:
        if group.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, ErrorCode.NON_EMPTY_GROUP.description)

    # --- heartbeats

    def heartbeat(self, request: ShareGroupHeartbeatRequest, client: Client, now: Now) -> Decision:
        """Decides the heartbeat of a member that joins or stays; a group of another kind must not
        have the name."""
        joins = request.member_epoch == JOINS
        found = self.groups.get(request.group_id)
        if found is None and not joins:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {request.group_id} not found."
            )
        group = found or ShareGroup(request.group_id)
        self._require_room(group, request.member_id)
        before = _known_member(group, request)
        after = before.copy(client_id=client.id, client_host=client.host)
        if request.rack_id is not None:
            after.rack_id = request.rack_id
        if request.subscribed_topic_names is not None:
            after.topics = tuple(sorted(set(request.subscribed_topic_names)))
        members = {**group.members, after.id: after}
        records: list[Record] = []
        if before.id not in group.members or after != before:
            records.append(kept.member(group.id, after))
        epoch, changed = self._next_epoch(group, before, after, members, records)
        targets, target_epoch, too_early_ms = self._share_out(group, members, epoch, records, now)
        moved = self._reconcile(after, targets, target_epoch, changed)
        if moved != after:
            records.append(kept.current(group.id, moved))
        new = self._without_state(group, members, now)
        if new:
            records.append(kept.shared(group.id, _with_initializing(group.shared, new)))
        response = ShareGroupHeartbeatResponse(
            member_id=moved.id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=self._interval_ms(group, new, too_early_ms),
        )
        if joins or request.subscribed_topic_names is not None or moved.assigned != before.assigned:
            response.assignment = _as_answer(moved.assigned)
        topics_seen = self.image().topics

        def then() -> None:
            self.keep_session(group.id, moved.id, now)
            self.groups[group.id].topics_seen = topics_seen
            if new:
                self._begin(Initialization(group.id, epoch, new), now)

        return Decision(records, response, then)

    def _begin(self, initialization: Initialization, now: Now) -> None:
        for topic_id in initialization.topics:
            self._asked_ms[initialization.group_id, topic_id] = now.monotonic_ms
        self.to_initialize.append(initialization)

    def _require_room(self, group: ShareGroup, member_id: str) -> None:
        most = self._settings().share_max_size
        if len(group.members) >= most and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {most} members.",
            )

    def _interval_ms(self, group: ShareGroup, new: Shared, too_early_ms: int) -> int:
        interval_ms = self._settings().of_share_group(group.id).heartbeat_interval_ms
        if too_early_ms:
            return min(interval_ms, too_early_ms)
        return min(interval_ms, SOON_MS) if new or group.shared.initializing else interval_ms

    def _next_epoch(
        self,
        group: ShareGroup,
        before: ShareMember,
        after: ShareMember,
        members: Mapping[str, ShareMember],
        records: list[Record],
    ) -> tuple[int, bool]:
        """Returns the group's epoch, higher if what is read or what can be assigned has changed."""
        changed = after.topics != before.topics
        if group.target_epoch >= group.epoch:
            changed = changed or _has_unassigned(group, self.image().topics_by_id)
        if not changed and group.topics_seen is self.image().topics:
            return group.epoch, False
        number = metadata_hash(_names(members), self.image())
        if not changed and number == group.metadata_hash:
            return group.epoch, False
        records.append(kept.epoch(group.id, group.epoch + 1, number))
        return group.epoch + 1, True

    def _share_out(
        self,
        group: ShareGroup,
        members: Mapping[str, ShareMember],
        epoch: int,
        records: list[Record],
        now: Now,
    ) -> tuple[Mapping[str, Assignment], int, int]:
        """Returns the targets, their epoch, and for how long it is too early for new ones."""
        if epoch <= group.target_epoch:
            return group.target, group.target_epoch, 0
        interval_ms = self._settings().of_share_group(group.id).assignment_interval_ms
        since_ms = now.wall_ms - group.target_at_ms
        if len(members) > 1 and 0 <= since_ms < interval_ms:
            return group.target, group.target_epoch, interval_ms - since_ms
        topics = self.image().topics
        read = {
            one.id: frozenset(topics[name].id for name in one.topics if name in topics)
            for one in members.values()
        }
        can_be_assigned = {
            topic_id: topic.partitions for topic_id, topic in group.shared.initialized.items()
        }
        given = assign_shares(read, group.target, can_be_assigned)
        for member_id, target in given.items():
            if group.target.get(member_id) != target:
                records.append(kept.target(group.id, member_id, target))
        records.append(kept.target_epoch(group.id, epoch, now.wall_ms))
        return given, epoch, 0

    def _reconcile(
        self,
        member: ShareMember,
        targets: Mapping[str, Assignment],
        target_epoch: int,
        changed: bool,
    ) -> ShareMember:
        """Moves the member to its target in one step; topics that it does not read any more are
        left out of an earlier target."""
        if member.epoch == target_epoch and not changed:
            return member
        known = self.image().topics_by_id
        assigned = {
            topic_id: found
            for topic_id, found in targets.get(member.id, NOTHING).items()
            if topic_id in known and known[topic_id].name in member.topics
        }
        if member.epoch == target_epoch:
            return member.copy(assigned=assigned)
        return member.copy(epoch=target_epoch, previous_epoch=member.epoch, assigned=assigned)

    def keep_session(self, group_id: str, member_id: str, now: Now) -> None:
        timeout_ms = self._settings().of_share_group(group_id).session_timeout_ms
        self.deadlines.set((SESSION, group_id, member_id), now.monotonic_ms + timeout_ms)

    # --- leaving

    def leave(self, request: ShareGroupHeartbeatRequest) -> Decision:
        group = self.require(request.group_id)
        if request.member_id not in group.members:
            raise _unknown_member(group, request.member_id)
        response = ShareGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        return self._remove(group, request.member_id, response)

    def session_is_over(self, group_id: str, member_id: str) -> Decision:
        group = self.groups.get(group_id)
        if group is None or member_id not in group.members:
            return Decision()
        return self._remove(group, member_id, None)

    def _remove(self, group: ShareGroup, member_id: str, response: Any) -> Decision:
        left = {key: one for key, one in group.members.items() if key != member_id}
        records = [
            *kept.forgotten_member(group.id, member_id),
            kept.epoch(group.id, group.epoch + 1, metadata_hash(_names(left), self.image())),
        ]
        return Decision(
            records, response, lambda: self.deadlines.drop((SESSION, group.id, member_id))
        )

    def resume(self, now: Now) -> None:
        """The log is loaded: begin the sessions."""
        for group in self.groups.values():
            for member_id in group.members:
                self.keep_session(group.id, member_id, now)

    # --- the state of partitions

    def _without_state(
        self, group: ShareGroup, members: Mapping[str, ShareMember], now: Now
    ) -> Shared:
        """Returns the partitions that are read and have no state, and for which none was requested
        lately."""
        retry_ms = self._settings().share_initialize_retry_ms
        long_ago_ms = now.monotonic_ms - retry_ms
        asked = {
            topic_id: topic
            for topic_id, topic in group.shared.initializing.items()
            if self._asked_ms.get((group.id, topic_id), long_ago_ms) > long_ago_ms
        }
        known = added(group.shared.initialized, asked)
        topics = self.image().topics
        read = {
            topics[name].id: SharedTopic(name, frozenset(range(len(topics[name].partitions))))
            for name in _names(members)
            if name in topics
        }
        return without(read, known)

    def initialized(self, initialization: Initialization, succeeded: bool) -> Decision:
        """Record the share coordinator's answer for all of the partitions; a later heartbeat
        retries failures."""
        group = self.groups.get(initialization.group_id)
        for topic_id in initialization.topics:
            self._asked_ms.pop((initialization.group_id, topic_id), None)
        if group is None:
            return Decision(response=True)
        shared = group.shared
        after = shared._replace(
            initializing=without(shared.initializing, initialization.topics),
            initialized=added(shared.initialized, initialization.topics)
            if succeeded
            else shared.initialized,
        )
        return Decision([kept.shared(group.id, after)] if after != shared else [], True)

    def begin_deletion(self, group_id: str) -> Decision:
        """Begin the deletion of the group: the answer is the keys of the states to delete."""
        group = self.require(group_id)
        self.require_empty(group)
        shared = added(group.shared.initialized, group.shared.initializing)
        known = self.image().topics_by_id
        again = {
            topic_id: SharedTopic(name, frozenset(range(len(known[topic_id].partitions))))
            for topic_id, name in group.shared.deleting.items()
            if topic_id in known
        }
        gone = added(shared, again)
        deleting = {topic_id: topic.name for topic_id, topic in gone.items()}
        records = [kept.shared(group_id, SharedTopics({}, {}, deleting))] if gone else []
        return Decision(records, _keys(group_id, gone, known))

    def delete(self, group_id: str) -> Decision:
        """Delete the group, after its states are deleted."""
        group = self.require(group_id)
        self.require_empty(group)
        return Decision(kept.forgotten_group(group), True)

    def alter(self, group_id: str, topics: Shared) -> Decision:
        """Prepare to set the offsets of these partitions; a missing group is created. The answer is
        the state epoch."""
        group = self.groups.get(group_id) or ShareGroup(group_id)
        self.require_empty(group)
        records: list[Record] = []
        epoch = group.epoch
        if group_id not in self.groups:
            records.append(kept.epoch(group_id, epoch, group.metadata_hash))
        if topics:
            records.append(kept.shared(group_id, _with_initializing(group.shared, topics)))
        return Decision(records, epoch)

    def begin_offset_deletion(self, group_id: str, topic_ids: Iterable[bytes]) -> Decision:
        """The answer is the keys of the states to delete, by topic id; topics without states are
        left out."""
        group = self.require(group_id)
        self.require_empty(group)
        known = self.image().topics_by_id
        shared = group.shared
        gone: dict[bytes, SharedTopic] = {}
        for topic_id in topic_ids:
            topic = known[topic_id]
            if topic_id in shared.initialized:
                gone[topic_id] = shared.initialized[topic_id]
            elif topic_id in shared.deleting:
                every = frozenset(range(len(topic.partitions)))
                gone[topic_id] = SharedTopic(topic.name, every)
        after = shared._replace(
            initialized=without(shared.initialized, gone),
            deleting={**shared.deleting, **{key: one.name for key, one in gone.items()}},
        )
        records = [kept.shared(group_id, after)] if after != shared else []
        return Decision(
            records, {key: _keys(group_id, {key: one}, known) for key, one in gone.items()}
        )

    def end_offset_deletion(self, group_id: str, topic_ids: frozenset[bytes]) -> Decision:
        group = self.require(group_id)
        left = {key: name for key, name in group.shared.deleting.items() if key not in topic_ids}
        return Decision([kept.shared(group_id, group.shared._replace(deleting=left))], True)

    def forget_topics(self, topic_ids: frozenset[bytes]) -> Decision:
        """Forget deleted topics; the share coordinator deletes their states itself."""
        records: list[Record] = []
        for group in self.groups.values() if topic_ids else ():
            initializing, initialized, deleting = group.shared
            after = SharedTopics(
                {key: one for key, one in initializing.items() if key not in topic_ids},
                {key: one for key, one in initialized.items() if key not in topic_ids},
                {key: name for key, name in deleting.items() if key not in topic_ids},
            )
            if after != group.shared:
                records.append(kept.shared(group.id, after))
        return Decision(records)


def require_sensible(request: ShareGroupHeartbeatRequest) -> None:
    """Checks of a request that do not need its group."""

    def require(holds: bool, otherwise: str) -> None:
        if not holds:
            raise KafkaError(ErrorCode.INVALID_REQUEST, otherwise)

    member_id = request.member_id
    require(
        member_id.strip() != "" and len(member_id) <= LONGEST_MEMBER_ID,
        "Invalid member id in the request.",
    )
    require(request.group_id.strip() != "", "GroupId can't be empty.")
    require(request.rack_id is None or request.rack_id.strip() != "", "RackId can't be empty.")
    require(request.member_epoch >= LEAVES, "MemberEpoch is invalid.")
    if request.member_epoch == JOINS:
        require(
            bool(request.subscribed_topic_names),
            "SubscribedTopicNames must be set in first request.",
        )


def _known_member(group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """Returns the member, or a new one if it joins; it may be one answer behind."""
    member = group.members.get(request.member_id)
    epoch = request.member_epoch
    if epoch == JOINS:
        return member or ShareMember(request.member_id)
    if member is None:
        raise _unknown_member(group, request.member_id)
    if epoch == member.epoch or (epoch < member.epoch and epoch == member.previous_epoch):
        return member
    size = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {size} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _unknown_member(group: ShareGroup, member_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.id}."
    )


def _names(members: Mapping[str, ShareMember]) -> frozenset[str]:
    return frozenset[str]().union(*(member.topics for member in members.values()))


def _has_unassigned(group: ShareGroup, known: Mapping[bytes, Any]) -> bool:
    """Returns whether partitions that no member has have a state: it came after the last
    targets."""
    if not group.members or not group.shared.initialized:
        return False
    assigned: dict[bytes, frozenset[int]] = {}
    for target in group.target.values():
        for topic_id, indexes in target.items():
            assigned[topic_id] = assigned.get(topic_id, frozenset()) | indexes
    names = group.names_read()
    return any(
        topic_id in known and topic.name in names and assigned.get(topic_id) != topic.partitions
        for topic_id, topic in group.shared.initialized.items()
    )


def _with_initializing(shared: SharedTopics, new: Shared) -> SharedTopics:
    """Adds states that begin, and removes them from those that end."""
    initializing = added(shared.initializing, new)
    deleting = {key: name for key, name in shared.deleting.items() if key not in initializing}
    return SharedTopics(initializing, shared.initialized, deleting)


def _keys(group_id: str, topics: Shared, known: Mapping[bytes, Any]) -> list[SharePartitionKey]:
    """Returns the share partitions of the topics that exist."""
    return [
        SharePartitionKey(group_id, topic_id, index)
        for topic_id, topic in topics.items()
        if topic_id in known
        for index in sorted(topic.partitions)
    ]


def _as_answer(assigned: Assignment) -> messages.Assignment:
    return messages.Assignment(
        [messages.TopicPartitions(topic, sorted(found)) for topic, found in assigned.items()]
    )
