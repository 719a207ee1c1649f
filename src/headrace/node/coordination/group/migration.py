"""Changes a live group between the classic and the consumer protocol, member by member.

A member of the consumer protocol that joins a classic group of consumers turns it into a consumer
group; the others continue with the classic protocol in it: JoinGroup takes one step towards their
target, SyncGroup returns their partitions. When the last member of the consumer protocol has gone,
the group turns back. `group.consumer.migration.policy` allows either direction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.environment import Now
from headrace.node.coordination.group import consumer_records as kept
from headrace.node.coordination.group import embedded, records
from headrace.node.coordination.group.assignors import Assignment
from headrace.node.coordination.group.classic import FIRST_VERSION_WITH_REQUIRED_ID, ClassicGroups
from headrace.node.coordination.group.classic_answers import (
    UNKNOWN,
    Client,
    answered,
    join_refused,
    rebalance_timeout_ms,
)
from headrace.node.coordination.group.classic_group import (
    CONSUMER,
    ClassicGroup,
    ClassicGroupState,
    ClassicMember,
)
from headrace.node.coordination.group.consumer import REJOIN, SYNC, ConsumerGroups
from headrace.node.coordination.group.consumer_change import Change
from headrace.node.coordination.group.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from headrace.node.coordination.group.epochs import known_member
from headrace.node.coordination.group.metadata_hash import metadata_hash
from headrace.node.coordination.group.settings import GroupSettings
from headrace.node.coordination.records import Record
from headrace.node.coordination.shard import Decision
from headrace.wire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from headrace.wire.protocol.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
)
from headrace.wire.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from headrace.wire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.wire.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from headrace.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class Migration:
    __slots__ = ("classic", "consumer", "_settings", "_new_id")

    def __init__(
        self,
        classic: ClassicGroups,
        consumer: ConsumerGroups,
        settings: Callable[[], GroupSettings],
        new_id: Callable[[], str],
    ) -> None:
        self.classic = classic
        self.consumer = consumer
        self._settings = settings
        self._new_id = new_id

    # --- from classic to consumer

    def may_upgrade(self, group: ClassicGroup) -> bool:
        settings = self._settings()
        return (
            settings.consumer_migration_policy in ("upgrade", "bidirectional")
            and group.protocol_type == CONSUMER
            and len(group.members) <= settings.consumer_max_size
        )

    def upgrade(self, group: ClassicGroup, now: Now) -> tuple[ConsumerGroup, list[Record]]:
        """Returns the group as it will be, and the records that make it so."""
        new = ConsumerGroup(group.id, epoch=group.generation, target_epoch=group.generation)
        for member in group.members.values():
            converted = self._converted(group, member)
            converted.assigned = _not_yet_owned(converted.assigned, new)
            new.add(converted)
            new.target[member.id] = converted.assigned
            if member.instance_id is not None:
                new.static[member.instance_id] = member.id
            for topic, indexes in converted.assigned.items():
                new.owners.update(dict.fromkeys(((topic, index) for index in indexes), member.id))
        members = new.members.values()
        names = frozenset[str]().union(*(one.topics for one in members))
        new.metadata_hash = metadata_hash(names, self.consumer.image())
        return new, [
            records.forgotten_group(group.id),
            *(kept.member(group.id, one) for one in members),
            kept.epoch(group.id, new.epoch, new.metadata_hash),
            *(kept.target(group.id, one.id, one.assigned) for one in members),
            kept.target_epoch(group.id, new.epoch, now.wall_ms),
            *(kept.current(group.id, one) for one in members),
        ]

    def _converted(self, group: ClassicGroup, member: ClassicMember) -> ConsumerMember:
        try:
            first = next(iter(member.protocols.values()))
            subscription = embedded.read_subscription(first)
            assigned = embedded.read_assignment(member.assignment, self.consumer.image())
        except MalformedMessage as malformed:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade the classic group {group.id} to a consumer group: {malformed}.",
            ) from malformed
        return ConsumerMember(
            member.id,
            member.instance_id,
            subscription.rack_id,
            member.client_id,
            member.client_host,
            tuple(sorted(set(subscription.topics))),
            None,
            member.rebalance_timeout_ms,
            None,
            _classic_part(member.session_timeout_ms, member.protocols),
            group.generation,
            group.generation,
            MemberState.STABLE,
            assigned,
            {},
            {topic: dict.fromkeys(found, group.generation) for topic, found in assigned.items()},
        )

    def upgraded(self, group: ClassicGroup, new: ConsumerGroup, now: Now) -> None:
        """Call once it is recorded: waiting members have to rejoin, sessions continue."""
        self.classic.end(group, ErrorCode.REBALANCE_IN_PROGRESS)
        for member in new.members.values():
            self.consumer.keep_session(new.id, member, now)

    # --- from consumer to classic

    def remove(self, group: ConsumerGroup, gone: list[ConsumerMember], now: Now) -> Decision:
        """Remove members; if only classic ones are left, the group becomes a classic group
        again."""
        ids = {member.id for member in gone}
        left = [member for member in group.members.values() if member.id not in ids]
        if left and self._may_downgrade(left, gone):
            classic = self._as_classic(group, left, group.target, now)
            return self._downgrade(group, classic, now, rebalances=True)
        return self.consumer.remove(group, gone)

    def _may_downgrade(self, left: list[ConsumerMember], gone: list[ConsumerMember]) -> bool:
        settings = self._settings()
        return (
            all(member.classic is not None for member in left)
            and any(member.classic is None for member in gone)
            and settings.consumer_migration_policy in ("downgrade", "bidirectional")
            and len(left) <= settings.max_size
        )

    def _as_classic(
        self,
        group: ConsumerGroup,
        left: list[ConsumerMember],
        targets: Mapping[str, Assignment],
        now: Now,
    ) -> ClassicGroup:
        classic = ClassicGroup(group.id, now.wall_ms)
        classic.state = ClassicGroupState.STABLE
        classic.generation = group.epoch
        classic.is_recorded = True
        image = self.consumer.image()
        for member in left:
            protocols = _protocols(member)
            version = embedded.version_of(next(iter(protocols.values())), 3)
            assignment = embedded.write_assignment(targets.get(member.id, {}), image, version)
            classic.add(
                ClassicMember(
                    member.id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.session_timeout_ms or 0,
                    member.rebalance_timeout_ms,
                    protocols,
                    assignment,
                ),
                CONSUMER,
            )
        classic.protocol = classic.choose_protocol()
        classic.subscribed_topics = classic.find_subscribed_topics()
        return classic

    def _downgrade(
        self, group: ConsumerGroup, classic: ClassicGroup, now: Now, *, rebalances: bool
    ) -> Decision:
        assignments = {one.id: one.assignment for one in classic.members.values()}
        changes = kept.forgotten_group(group)
        changes.append(records.group_metadata(group.id, classic.as_record(assignments)))
        before = list(group.members)

        def downgraded() -> None:
            for member_id in before:
                self.consumer.forget_deadlines(group.id, member_id)
            self.classic.take_over(classic, now, rebalances=rebalances)

        return Decision(changes, None, downgraded)

    # --- classic members of a consumer group

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, client: Client, now: Now
    ) -> Decision:
        member_id, instance_id = request.member_id, request.group_instance_id
        self.consumer.require_room(group, member_id)
        protocols = {protocol.name: protocol.metadata for protocol in request.protocols}
        subscription = self._supported(group, request, protocols)
        new_id = f"{instance_id or client.id}-{self._new_id()}"
        if (
            member_id == UNKNOWN
            and instance_id is None
            and client.version >= FIRST_VERSION_WITH_REQUIRED_ID
        ):
            return Decision(response=join_refused(new_id, ErrorCode.MEMBER_ID_REQUIRED))
        change = Change(group, self.consumer.image(), now, client.sight)
        before = self._joining(change, request, member_id or new_id)
        after = before.copy(
            instance_id=instance_id or before.instance_id,
            rack_id=subscription.rack_id,
            client_id=client.id,
            client_host=client.host,
            topics=tuple(sorted(set(subscription.topics))),
            regex=None,
            rebalance_timeout_ms=rebalance_timeout_ms(request, client),
            assignor=None,
            classic=_classic_part(request.session_timeout_ms, protocols),
        )
        interval_ms = self.consumer.assignment_interval_ms(group.id)
        change.subscribe(before, after, self.consumer.assignor_name, interval_ms)
        if change.replaced is not None:
            replaced = group.members[change.replaced]
            others = [one for one in group.members.values() if one is not replaced]
            if self._may_downgrade([*others, after], [replaced]):
                return self._join_as_classic_again(group, change, others, after, now)
        owned = embedded.by_id(
            ((one.topic, one.partitions) for one in subscription.owned_partitions), change.image
        )
        changed = change.reconcile(after, owned)

        def then() -> None:
            if change.replaced is not None:
                self.consumer.forget_deadlines(group.id, change.replaced)
            self.consumer.note_topics(group.id, change)
            self.consumer.deadlines.drop((REJOIN, group.id, changed.id))
            self.consumer.keep_session(group.id, changed, now)
            within_ms = max(changed.rebalance_timeout_ms, 0)
            self.consumer.deadlines.set((SYNC, group.id, changed.id), now.monotonic_ms + within_ms)

        answer = _joined(changed.epoch, next(iter(protocols)), changed.id)
        return Decision(change.records, answer, then)

    def _joining(self, change: Change, request: JoinGroupRequest, member_id: str) -> ConsumerMember:
        group, instance_id = change.group, request.group_instance_id
        if instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if request.member_id != UNKNOWN:
            return known_member(group, member_id, instance_id)
        known = group.static.get(instance_id)
        if known is None:
            return ConsumerMember(member_id)
        return change.replace(group.members[known], member_id)

    def _join_as_classic_again(
        self,
        group: ConsumerGroup,
        change: Change,
        others: list[ConsumerMember],
        joins: ConsumerMember,
        now: Now,
    ) -> Decision:
        """The last static member of the consumer protocol has restarted as a classic one. No
        partition moves for that, unless it reads other topics now or a move was under way."""
        targets = {**group.target, joins.id: group.target.get(change.replaced or "", {})}
        classic = self._as_classic(group, [*others, joins], targets, now)
        done = group.epoch == group.target_epoch and all(
            one.has_reached(group.target_epoch) for one in others
        )
        decision = self._downgrade(group, classic, now, rebalances=change.reads_other or not done)
        return answered(decision, _joined(classic.generation, classic.protocol or "", joins.id))

    def _supported(
        self, group: ConsumerGroup, request: JoinGroupRequest, protocols: dict[str, bytes]
    ) -> ConsumerProtocolSubscription:
        refusal = KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        shared = set(protocols)  # including the protocols that it offers itself
        for member in group.members.values():
            if member.classic is not None:
                shared &= {protocol.name for protocol in member.classic.supported_protocols}
        if request.protocol_type != CONSUMER or not shared:
            raise refusal
        try:
            return embedded.read_subscription(next(iter(protocols.values())))
        except MalformedMessage as malformed:
            raise refusal from malformed

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, now: Now) -> Decision:
        member = self._classic_member(group, request.member_id, request.group_instance_id)
        if request.generation_id != member.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        protocols = _protocols(member)
        names = {request.protocol_name, next(iter(protocols))} - {None}
        if request.protocol_type not in (None, CONSUMER) or len(names) > 1:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_rejoin(group, member, now)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self.consumer.deadlines.drop((SYNC, group.id, member.id))
        self.consumer.keep_session(group.id, member, now)
        version = embedded.version_of(next(iter(protocols.values())), 3)
        assignment = embedded.write_assignment(member.assigned, self.consumer.image(), version)
        return Decision(
            response=SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=assignment,
            )
        )

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now: Now) -> Decision:
        member = self._classic_member(group, request.member_id, request.group_instance_id)
        if request.generation_id != member.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self.consumer.keep_session(group.id, member, now)
        if (
            member.epoch < group.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (
                member.state is MemberState.UNRELEASED_PARTITIONS
                and not self._waits_for_others(group, member)
            )
        ):
            self._expect_rejoin(group, member, now)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return Decision(response=HeartbeatResponse())

    def _waits_for_others(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        return any(
            group.owners.get((topic, index), member.id) != member.id
            for topic, indexes in group.target.get(member.id, {}).items()
            for index in indexes
        )

    def _expect_rejoin(self, group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
        key = (REJOIN, group.id, member.id)
        if key not in self.consumer.deadlines.at:
            timeout_ms = max(member.rebalance_timeout_ms, 0)
            self.consumer.deadlines.set(key, now.monotonic_ms + timeout_ms)

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest, now: Now) -> Decision:
        gone: dict[str, ConsumerMember] = {}
        answers = [self._leave_one(group, one, gone) for one in request.members]
        response = LeaveGroupResponse(members=answers)
        if not gone:
            return Decision(response=response)
        return answered(self.remove(group, list(gone.values()), now), response)

    def _leave_one(
        self, group: ConsumerGroup, one: MemberIdentity, gone: dict[str, ConsumerMember]
    ) -> MemberResponse:
        answer = MemberResponse(one.member_id, one.group_instance_id)
        member_id = one.member_id
        if member_id == UNKNOWN and one.group_instance_id is not None:
            member_id = group.static.get(one.group_instance_id, UNKNOWN)
        try:
            member = known_member(group, member_id, one.group_instance_id)
        except KafkaError as refusal:
            answer.error_code = refusal.code
        else:
            gone[member.id] = member
        return answer

    def _classic_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> ConsumerMember:
        member = known_member(group, member_id, instance_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member


def _joined(epoch: int, protocol: str, member_id: str) -> JoinGroupResponse:
    """The answer has no leader: the server assigns the partitions."""
    return JoinGroupResponse(
        generation_id=epoch, protocol_type=CONSUMER, protocol_name=protocol, member_id=member_id
    )


def _classic_part(session_timeout_ms: int, protocols: dict[str, bytes]) -> ClassicMemberMetadata:
    named = [ClassicProtocol(name, metadata) for name, metadata in protocols.items()]
    return ClassicMemberMetadata(session_timeout_ms, named)


def _not_yet_owned(assigned: Assignment, group: ConsumerGroup) -> Assignment:
    """A classic leader may give a partition to two members; here it has one owner."""
    free = {
        topic: frozenset(index for index in indexes if (topic, index) not in group.owners)
        for topic, indexes in assigned.items()
    }
    return {topic: indexes for topic, indexes in free.items() if indexes}


def _protocols(member: ConsumerMember) -> dict[str, bytes]:
    assert member.classic is not None
    return {one.name: one.metadata for one in member.classic.supported_protocols}
