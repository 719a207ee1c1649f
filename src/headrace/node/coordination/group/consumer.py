"""The consumer protocol (KIP-848): ConsumerGroupHeartbeat is its only request.

A heartbeat may join (epoch 0), send changes, confirm revoked partitions, or leave (epoch -1; -2 for
a static member that will be back). The server assigns the partitions and moves each member there
step by step (`reconciliation.py`). Decisions read the group and return records; the recorded state
changes only by their replay. Members of the classic protocol in such a group: `migration.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.environment import Now
from headrace.node.coordination.deadlines import Deadlines
from headrace.node.coordination.group import consumer_records as kept
from headrace.node.coordination.group.assignors import ASSIGNORS, Assignment
from headrace.node.coordination.group.classic_answers import Client
from headrace.node.coordination.group.consumer_change import Change
from headrace.node.coordination.group.consumer_group import (
    LEFT_FOR_A_MOMENT,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Wish,
    assignment_of,
    count_wish,
    names_read,
)
from headrace.node.coordination.group.epochs import JOINS
from headrace.node.coordination.group.metadata_hash import metadata_hash
from headrace.node.coordination.group.settings import (
    ASSIGNMENT_INTERVAL,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    GroupSettings,
)
from headrace.node.coordination.group.subscriptions import require_valid
from headrace.node.coordination.records import Record
from headrace.node.coordination.shard import Decision
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import consumer_group_heartbeat as messages
from headrace.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

NEVER_MS = 2**31 - 1
FIRST_VERSION_WITH_OWN_IDS = 1  # KIP-1082: the client makes up its id

# Kinds of deadlines.
SESSION = "consumer session"  # member id
REVOCATION = "consumer revocation"  # member id
# And for members that speak the classic protocol in such a group (`migration.py`).
REJOIN = "consumer rejoin"  # it has to rejoin; member id
SYNC = "consumer sync"  # it has joined and has to send SyncGroup; member id
KINDS = (SESSION, REVOCATION, REJOIN, SYNC)


class ConsumerGroups:
    """The decisions about consumer groups."""

    __slots__ = ("groups", "deadlines", "image", "_settings", "_new_id")

    def __init__(
        self,
        groups: dict[str, Any],
        deadlines: Deadlines,
        image: Callable[[], MetadataImage],
        settings: Callable[[], GroupSettings],
        new_id: Callable[[], str],
    ) -> None:
        self.groups = groups  # of all kinds
        self.deadlines = deadlines
        self.image = image
        self._settings = settings
        self._new_id = new_id

    # --- heartbeats

    def heartbeat(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, client: Client, now: Now
    ) -> Decision:
        """Decides the heartbeat of a member that joins or stays."""
        joins = request.member_epoch == JOINS
        self.require_room(group, request.member_id)
        owned = (
            None if request.topic_partitions is None else assignment_of(request.topic_partitions)
        )
        change = Change(group, self.image(), now, client.sight)
        before = change.member(request, owned, self._new_id)
        after = before.copy(client_id=client.id, client_host=client.host, classic=None)
        _take_over(after, request)
        change.subscribe(before, after, self.assignor_name, self.assignment_interval_ms(group.id))
        changed = change.reconcile(after, owned)
        response = ConsumerGroupHeartbeatResponse(
            member_id=changed.id,
            member_epoch=changed.epoch,
            heartbeat_interval_ms=min(
                self._settings().of_consumer_group(group.id, HEARTBEAT_INTERVAL),
                change.shares_out_in_ms or NEVER_MS,  # the member then comes back for its part
            ),
        )
        whole = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names, request.subscribed_topic_regex) != (None, None)
            and request.topic_partitions is not None
        )
        if joins or whole or changed.assigned != before.assigned:
            response.assignment = _as_answer(changed.assigned)

        def then() -> None:
            if change.replaced is not None:
                self.forget_deadlines(group.id, change.replaced)
            self.note_topics(group.id, change)
            self.keep_session(group.id, changed, now)
            self.watch_revocation(group.id, changed, now, moved=changed is not after)

        return Decision(change.records, response, then)

    def note_topics(self, group_id: str, change: Change) -> None:
        """Note the topics of a checked request: it need not be checked again until topics
        change."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.topics_seen = change.topics_seen
            group.names_seen = change.names_seen
            group.sight_seen = change.sight.change

    def require_room(self, group: ConsumerGroup, member_id: str) -> None:
        most = self._settings().consumer_max_size
        if len(group.members) >= most and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )

    def keep_session(self, group_id: str, member: ConsumerMember, now: Now) -> None:
        timeout_ms = member.session_timeout_ms
        if timeout_ms is None:
            timeout_ms = self._settings().of_consumer_group(group_id, SESSION_TIMEOUT)
        self.deadlines.set((SESSION, group_id, member.id), now.monotonic_ms + timeout_ms)

    def watch_revocation(
        self, group_id: str, member: ConsumerMember, now: Now, *, moved: bool
    ) -> None:
        """A member gets the full time for each step: one that revokes step by step is never
        late."""
        key = (REVOCATION, group_id, member.id)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self.deadlines.drop(key)
        elif moved or key not in self.deadlines.at:
            self.deadlines.set(key, now.monotonic_ms + max(member.rebalance_timeout_ms, 0))

    def forget_deadlines(self, group_id: str, member_id: str) -> None:
        for kind in KINDS:
            self.deadlines.drop((kind, group_id, member_id))

    def assignment_interval_ms(self, group_id: str) -> int:
        return self._settings().of_consumer_group(group_id, ASSIGNMENT_INTERVAL)

    # --- leaving

    def step_aside(self, group: ConsumerGroup, member: ConsumerMember) -> Decision:
        """A static member leaves for a moment: its partitions are kept for it until its session is
        over. By leaving it has also revoked the partitions that it had to revoke."""
        away = member.copy(
            epoch=LEFT_FOR_A_MOMENT,
            state=MemberState.STABLE,
            revoking={},
            since={topic: dict.fromkeys(found, 0) for topic, found in member.assigned.items()},
        )
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.id, member_epoch=LEFT_FOR_A_MOMENT
        )

        def then() -> None:
            self.deadlines.drop((REVOCATION, group.id, member.id))

        return Decision([kept.current(group.id, away)], response, then)

    def remove(self, group: ConsumerGroup, gone: list[ConsumerMember]) -> Decision:
        """Remove members. The others see the new epoch; they get the partitions at their
        heartbeats."""
        records: list[Record] = []
        for member in gone:
            records += kept.forgotten_member(group.id, member.id)
        if group.patterns:
            gone_ids = {member.id for member in gone}
            left = {one.regex for one in group.members.values() if one.id not in gone_ids}
            records += [
                kept.forgotten_pattern(group.id, regex)
                for regex in group.patterns
                if regex not in left
            ]
        records.append(kept.epoch(group.id, group.epoch + 1, self._hash_without(group, gone)))

        def then() -> None:
            for member in gone:
                self.forget_deadlines(group.id, member.id)

        return Decision(records, None, then)

    def _hash_without(self, group: ConsumerGroup, gone: list[ConsumerMember]) -> int:
        """Returns the hash of the topics that the remaining members read: with the old hash the
        next change of any topic would rebalance them."""
        wishes = dict(group.wishes)
        for member in gone:
            count_wish(wishes, member.wish, -1)
        names = frozenset[str]().union(
            *(names_read(wish.topics, wish.regex, group.patterns) for wish in wishes)
        )
        return metadata_hash(names, self.image())

    # --- assignors

    def assignor_name(self, wishes: Mapping[Wish, int]) -> str:
        """Returns the assignor that most members ask for, else the first of the settings."""
        offered = [name for name in self._settings().consumer_assignors if name in ASSIGNORS]
        asked: dict[str, int] = {}
        for wish, count in wishes.items():
            if wish.assignor in offered:
                asked[wish.assignor] = asked.get(wish.assignor, 0) + count
        default = offered[0] if offered else "uniform"
        return max(sorted(asked), key=asked.__getitem__, default=default)

    def require_assignor(self, name: str | None) -> None:
        offered = self._settings().consumer_assignors
        if name is not None and (name not in offered or name not in ASSIGNORS):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {name} is not supported. Supported assignors: "
                f"{', '.join(offered)}.",
            )


def _take_over(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Takes over the fields of the request; missing fields keep their values."""
    if request.instance_id is not None:
        member.instance_id = request.instance_id
    if request.rack_id is not None:
        member.rack_id = request.rack_id
    if request.rebalance_timeout_ms != -1:
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
    if request.server_assignor is not None:
        member.assignor = request.server_assignor
    if request.subscribed_topic_names is not None:
        member.topics = tuple(sorted(set(request.subscribed_topic_names)))
    if request.subscribed_topic_regex is not None:
        member.regex = request.subscribed_topic_regex or None


def _as_answer(assigned: Assignment) -> messages.Assignment:
    return messages.Assignment(
        [messages.TopicPartitions(topic, sorted(found)) for topic, found in assigned.items()]
    )


def require_sensible(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Checks of a request that do not need its group."""

    def require(holds: bool, otherwise: str) -> None:
        if not holds:
            raise KafkaError(ErrorCode.INVALID_REQUEST, otherwise)

    epoch = request.member_epoch
    require(request.group_id.strip() != "", "GroupId can't be empty.")
    require(request.instance_id != "", "InstanceId can't be empty.")
    require(request.rack_id != "", "RackId can't be empty.")
    require(epoch >= LEFT_FOR_A_MOMENT, "MemberEpoch is invalid.")
    if epoch != JOINS or version >= FIRST_VERSION_WITH_OWN_IDS:
        require(request.member_id.strip() != "", "MemberId can't be empty.")
    if epoch == LEFT_FOR_A_MOMENT:
        require(request.instance_id is not None, "InstanceId can't be null.")
    if epoch == JOINS:
        require(
            request.rebalance_timeout_ms != -1,
            "RebalanceTimeoutMs must be provided in first request.",
        )
        require(
            request.topic_partitions is not None and not request.topic_partitions,
            "TopicPartitions must be empty when (re-)joining.",
        )
        require(
            bool(request.subscribed_topic_names) or bool(request.subscribed_topic_regex),
            "SubscribedTopicNames or SubscribedTopicRegex must be set in first request.",
        )
    if request.subscribed_topic_regex:
        require_valid(request.subscribed_topic_regex)
