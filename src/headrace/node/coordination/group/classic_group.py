"""A group of the classic protocol: its members, its generation, and the states it may be in.

One record survives a restart, `GroupMetadataValue`, written whenever the leader has sent the
assignment and when the last member has left. Waiting requests do not survive: members of a freshly
loaded group continue with their generation, or join again. Decides nothing: `classic.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from headrace.node.coordination.shard import Later
from headrace.wire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from headrace.wire.protocol.messages import consumer_protocol_subscription
from headrace.wire.protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from headrace.wire.protocol.messages.join_group import JoinGroupResponseMember

CONSUMER = "consumer"  # the protocol type of all groups that share out partitions of topics


class ClassicGroupState(Enum):
    """The values are the names that clients see."""

    EMPTY = "Empty"  # no members; it may have offsets
    PREPARING_REBALANCE = "PreparingRebalance"  # waits for the members to join
    COMPLETING_REBALANCE = "CompletingRebalance"  # waits for the leader's assignment
    STABLE = "Stable"
    DEAD = "Dead"  # does not exist, or not any more


NEXT_STATES: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    ClassicGroupState.EMPTY: frozenset(
        {ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.STABLE: frozenset(
        {ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.DEAD: frozenset(),
}


class ClassicMember:
    __slots__ = ("id", "instance_id", "client_id", "client_host", "session_timeout_ms",
                 "rebalance_timeout_ms", "protocols", "assignment", "joining", "syncing", "is_new",
                 "owes_sync")  # fmt: skip

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: dict[str, bytes],
        assignment: bytes = b"",
    ) -> None:
        self.id = member_id
        self.instance_id = instance_id  # a static member has one and keeps its place by it
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols  # in the order the member prefers
        self.assignment = assignment
        self.joining: Later | None = None  # its JoinGroup, while it waits for the others
        self.syncing: Later | None = None  # its SyncGroup, while it waits for the leader's
        self.is_new = False  # has not been in any generation yet
        self.owes_sync = False  # has got the generation and has not sent SyncGroup

    @property
    def keeps_session_by_waiting(self) -> bool:
        """Returns whether a request of it waits here: then it cannot be expected to send
        heartbeats."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)


class ClassicGroup:
    __slots__ = ("id", "state", "previous_state", "since_ms", "generation", "protocol_type",
                 "protocol", "leader", "members", "static", "promised", "members_joined",
                 "delay_left_ms", "subscribed_topics", "_votes", "joining",
                 "is_recorded")  # fmt: skip

    def __init__(self, group_id: str, since_ms: int = -1) -> None:
        self.id = group_id
        self.state = ClassicGroupState.EMPTY
        self.previous_state = ClassicGroupState.DEAD
        self.since_ms = since_ms  # wall clock: when this state began, for the expiry of offsets
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None  # the one of the members' protocols that was chosen
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static: dict[str, str] = {}  # instance id -> member id
        self.promised: set[str] = set()  # ids that were given out and have not joined yet
        self.members_joined = False  # during the delay of the first rebalance: extend it
        self.delay_left_ms = 0  # how much longer that delay may become
        self.subscribed_topics: frozenset[str] | None = None  # None: not known
        self.joining = 0  # members whose JoinGroup waits
        self.is_recorded = False  # the log has this group
        self._votes: dict[str, int] = {}  # protocol -> how many members know it

    # --- members

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.id
        self._count(member.protocols, 1)
        self.promised.discard(member.id)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self.promised.discard(member_id)
        if member is None:
            return
        self._count(member.protocols, -1)
        if member.joining is not None:
            self.joining -= 1
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def replace_static(self, old_id: str, new_id: str) -> ClassicMember:
        """Give the same member a new id after its restart. Its place in the order stays."""
        old = self.members[old_id]
        assert old.instance_id is not None
        new = ClassicMember(
            new_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.session_timeout_ms,
            old.rebalance_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.members = {
            new_id if key == old_id else key: new if key == old_id else member
            for key, member in self.members.items()
        }
        if self.leader == old_id:
            self.leader = new_id
        self.static[old.instance_id] = new_id
        return new

    def put_back(self, old: ClassicMember, new_id: str) -> None:
        """Undo `replace_static`, which could not be recorded."""
        self.set_protocols(self.members[new_id], old.protocols)
        self.members = {
            old.id if key == new_id else key: old if key == new_id else member
            for key, member in self.members.items()
        }
        if self.leader == new_id:
            self.leader = old.id
        assert old.instance_id is not None
        self.static[old.instance_id] = old.id

    def set_protocols(self, member: ClassicMember, protocols: dict[str, bytes]) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def _count(self, protocols: Iterable[str], by: int) -> None:
        for name in protocols:
            self._votes[name] = self._votes.get(name, 0) + by
            if not self._votes[name]:
                del self._votes[name]

    def require_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def has_room_for(self, member_id: str, most: int) -> bool:
        """Returns whether the member fits: at most `most` members, or in a rebalance at most as
        many that have joined it."""
        if self.state is ClassicGroupState.EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            return (member is not None and member.joining is not None) or self.joining < most
        return member is not None or len(self.members) < most

    @property
    def all_have_joined(self) -> bool:
        return self.joining == len(self.members) and not self.promised

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # --- protocols

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Returns whether a member with these protocols could be in one group with all others."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        everybody = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._votes.get(name, 0) == everybody for name in names
        )

    def choose_protocol(self) -> str:
        """Returns the protocol that most members prefer, among those that all members support."""
        everybody = len(self.members)
        candidates = {name for name, votes in self._votes.items() if votes == everybody}
        votes: dict[str, int] = {}
        for member in self.members.values():
            first = next(name for name in member.protocols if name in candidates)
            votes[first] = votes.get(first, 0) + 1
        return max(votes, key=votes.__getitem__)

    def find_subscribed_topics(self) -> frozenset[str] | None:
        """Returns the topics of the members; None if this is not a group of consumers or a
        subscription cannot be read."""
        if self.protocol_type != CONSUMER:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(subscription_topics(member.protocols[self.protocol]))
        except MalformedMessage:
            return None
        return frozenset(topics)

    def reads(self, topic: str) -> bool:
        """Returns whether offsets of this topic are in use."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed_topics

    # --- states

    def become(self, state: ClassicGroupState, wall_ms: int) -> None:
        assert state in NEXT_STATES[self.state], f"{self.id}: {self.state} -> {state}"
        self.previous_state, self.state = self.state, state
        self.since_ms = wall_ms

    def begin_generation(self, wall_ms: int) -> None:
        self.generation += 1
        self.protocol = self.choose_protocol() if self.members else None
        self.subscribed_topics = self.find_subscribed_topics()
        self.become(
            ClassicGroupState.COMPLETING_REBALANCE if self.members else ClassicGroupState.EMPTY,
            wall_ms,
        )

    def elect_leader_who_joined(self) -> bool:
        """Returns False if no member has joined, so none can lead."""
        if self.leader is None:
            return False
        if self.members[self.leader].joining is not None:
            return True
        for member in self.members.values():
            if member.joining is not None:
                self.leader = member.id
                return True
        return False

    # --- the public view

    def metadata_for_leader(self) -> list[JoinGroupResponseMember]:
        assert self.protocol is not None
        return [
            JoinGroupResponseMember(member.id, member.instance_id, member.protocols[self.protocol])
            for member in self.members.values()
        ]

    def as_record(self, assignments: dict[str, bytes]) -> GroupMetadataValue:
        return GroupMetadataValue(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            self.since_ms,
            [
                MemberMetadata(
                    member.id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.protocols.get(self.protocol or "", b""),
                    assignments.get(member.id, b""),
                )
                for member in self.members.values()
            ],
        )

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        group = cls(group_id, value.current_state_timestamp)
        group.is_recorded = True
        for found in value.members:
            timeout_ms = found.rebalance_timeout
            group.add(
                ClassicMember(
                    found.member_id,
                    found.group_instance_id,
                    found.client_id,
                    found.client_host,
                    found.session_timeout,
                    found.session_timeout if timeout_ms == -1 else timeout_ms,
                    {value.protocol or "": found.subscription},
                    found.assignment,
                ),
                value.protocol_type,
            )
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol if group.members else None
        group.leader = value.leader if value.leader in group.members else group.leader
        group.state = ClassicGroupState.STABLE if group.members else ClassicGroupState.EMPTY
        group.subscribed_topics = group.find_subscribed_topics()
        return group


def subscription_topics(metadata: bytes) -> list[str]:
    """Returns the topics in a consumer's subscription; every version begins as version 0 does."""
    if len(metadata) < 2:
        raise MalformedMessage("a subscription without a version")
    found, _ = consumer_protocol_subscription.DECODE[0](memoryview(metadata), 2)
    return list(found.topics)
