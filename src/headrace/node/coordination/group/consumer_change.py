"""The changes of one member's request in a consumer group: the records, and the group after them.

A change is worked out before anything is recorded, so it works on the group as it will be: members,
targets and patterns here are the group's own until something differs, then copies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from headrace.environment import Now
from headrace.node.coordination.group import consumer_records as kept
from headrace.node.coordination.group import subscriptions
from headrace.node.coordination.group.assignors import ALIKE, ASSIGNORS, Assignment, MemberSpec
from headrace.node.coordination.group.consumer_group import (
    LEFT_FOR_A_MOMENT,
    NOTHING,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Wish,
    count_wish,
    names_read,
)
from headrace.node.coordination.group.epochs import JOINS, known_member, require_epoch
from headrace.node.coordination.group.metadata_hash import metadata_hash
from headrace.node.coordination.group.reconciliation import next_step
from headrace.node.coordination.group.subscriptions import Sight
from headrace.node.coordination.records import Record
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

ChooseAssignor = Callable[[Mapping[Wish, int]], str]


class Change:
    __slots__ = (
        "group",
        "image",
        "now",
        "records",
        "members",
        "wishes",
        "targets",
        "patterns",
        "target_epoch",
        "topics_seen",
        "names_seen",
        "replaced",
        "shares_out_in_ms",
        "reads_other",
        "sight",
    )

    def __init__(
        self,
        group: ConsumerGroup,
        image: MetadataImage,
        now: Now,
        sight: Sight = subscriptions.EVERYTHING,
    ) -> None:
        self.group = group
        self.image = image
        self.now = now
        self.sight = sight
        self.records: list[Record] = []
        self.members: Mapping[str, ConsumerMember] = group.members
        self.wishes = group.wishes
        self.targets: Mapping[str, Assignment] = group.target
        self.patterns: Mapping[str, frozenset[str]] = group.patterns
        self.target_epoch = group.target_epoch
        self.topics_seen = group.topics_seen
        self.names_seen = group.names_seen
        self.replaced: str | None = None  # the id that a static member had before
        self.shares_out_in_ms = 0  # more than 0: it is too early for a new assignment
        self.reads_other = False  # the member reads other topics than before

    # --- the member

    def member(
        self,
        request: ConsumerGroupHeartbeatRequest,
        owned: Assignment | None,
        new_id: Callable[[], str],
    ) -> ConsumerMember:
        group, instance_id, epoch = self.group, request.instance_id, request.member_epoch
        member_id = request.member_id or new_id()
        if epoch != JOINS:
            member = known_member(group, member_id, instance_id)
            require_epoch(member, epoch, owned)
            return member
        if instance_id is not None and instance_id in group.static:
            return self._static_member(group.members[group.static[instance_id]], member_id)
        # A known member has lost the answer to its first request, or was fenced: it has given up
        # everything, and gets its assignment again.
        return group.members.get(member_id) or ConsumerMember(member_id)

    def _static_member(self, known: ConsumerMember, member_id: str) -> ConsumerMember:
        # A member that spoke the classic protocol and now speaks this one has been restarted.
        # Otherwise it must have left before, also if it comes with the same id: as in Apache Kafka.
        if known.epoch == LEFT_FOR_A_MOMENT or known.classic is not None:
            return self.replace(known, member_id)
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {known.instance_id} cannot join "
            f"the group because the instance id is owned by {known.id} member.",
        )

    def replace(self, known: ConsumerMember, member_id: str) -> ConsumerMember:
        """The same static member under a new id keeps its target and its partitions."""
        group_id = self.group.id
        new = known.copy(
            id=member_id, epoch=0, previous_epoch=0, state=MemberState.STABLE, revoking={}
        )
        self.replaced = known.id
        target = self.targets.get(known.id, {})
        others = {key: one for key, one in self.members.items() if key != known.id}
        self.members = {**others, member_id: new}
        kept_targets = {key: one for key, one in self.targets.items() if key != known.id}
        self.targets = {**kept_targets, member_id: target}
        self.records += kept.forgotten_member(group_id, known.id)
        self.records += [
            kept.member(group_id, new),
            kept.target(group_id, member_id, target),
            kept.current(group_id, new),
        ]
        return new

    # --- its subscription

    def subscribe(
        self,
        before: ConsumerMember,
        after: ConsumerMember,
        choose: ChooseAssignor,
        interval_ms: int,
    ) -> None:
        """Record the member's fields. If they, or a topic, have changed, compute a new assignment,
        but not sooner than `interval_ms` after the last one: members that join within the interval
        get one assignment."""
        group = self.group
        is_new = before.id not in self.members
        if is_new or after != before:
            self.records.append(kept.member(group.id, after))
            self.members = {**self.members, after.id: after}
            self.wishes = dict(group.wishes)
            if not is_new:
                count_wish(self.wishes, before.wish, -1)
            count_wish(self.wishes, after.wish, 1)
        self.reads_other = after.topics != before.topics or after.regex != before.regex
        changed = is_new or self.reads_other
        epoch, number, topics = group.epoch, group.metadata_hash, self.image.topics
        if changed or group.topics_seen is not topics or group.sight_seen != self.sight.change:
            changed = self._match_patterns() or changed
            number = self._hash()
            changed = changed or number != group.metadata_hash
            self.topics_seen = topics
        if changed:
            epoch += 1
            self.records.append(kept.epoch(group.id, epoch, number))
        if epoch > group.target_epoch:
            since_ms = self.now.wall_ms - group.target_at_ms
            if len(self.members) > 1 and 0 <= since_ms < interval_ms:
                self.shares_out_in_ms = interval_ms - since_ms
            else:
                self._share_out(epoch, choose(self.wishes))

    def _names_read(self, wish: Wish) -> frozenset[str]:
        return names_read(wish.topics, wish.regex, self.patterns)

    def _hash(self) -> int:
        """Returns the hash of the topics that are read now; unchanged if all of them are."""
        group, topics, seen = self.group, self.image.topics, self.group.topics_seen
        names = frozenset[str]().union(*map(self._names_read, self.wishes))
        before, self.names_seen = group.names_seen, names
        if (
            seen is not None
            and names == before
            and (topics is seen or all(topics.get(name) is seen.get(name) for name in names))
        ):
            return group.metadata_hash
        return metadata_hash(names, self.image)

    def _match_patterns(self) -> bool:
        """Returns whether the members' patterns match other topics than before; records it if
        so."""
        known = self.group.patterns
        regexes = sorted({wish.regex for wish in self.wishes if wish.regex})
        new = subscriptions.unseen(self.group, self.image.topics) if regexes else ()
        found = {regex: self._matched(regex, new) for regex in regexes}
        for regex, names in found.items():
            if known.get(regex) != names:
                self.records.append(
                    kept.pattern(self.group.id, regex, names, self.image.offset, self.now.wall_ms)
                )
        gone = known.keys() - found.keys()
        self.records += [kept.forgotten_pattern(self.group.id, regex) for regex in sorted(gone)]
        self.patterns = found
        return found != known

    def _matched(self, regex: str, new: Collection[str]) -> frozenset[str]:
        """A group that has tried the pattern before tries only new topics, unless rights have
        changed."""
        group, topics, sight = self.group, self.image.topics, self.sight
        names = subscriptions.names_to_try(group, regex, topics, new, sight.change)
        if names is topics:
            return sight.matching(regex, topics)
        known = group.patterns[regex]
        if group.topics_seen is topics:
            return known
        return known.intersection(topics) | sight.matching(regex, names)

    # --- assignments

    def _share_out(self, epoch: int, assignor: str) -> None:
        topics, by_id, targets = self.image.topics, self.image.topics_by_id, self.targets
        names_of = {wish: self._names_read(wish) for wish in self.wishes}
        ids_of = {  # many patterns match the same topics
            names: frozenset(topics[name].id for name in names if name in topics)
            for names in set(names_of.values())
        }
        read = {wish: ids_of[names] for wish, names in names_of.items()}
        wanted = frozenset[bytes]().union(*read.values())
        sizes = {topic: len(by_id[topic].partitions) for topic in sorted(wanted)}
        if assignor in ALIKE and all(ids == wanted for ids in read.values()):
            given = ALIKE[assignor]({one: targets.get(one, NOTHING) for one in self.members}, sizes)
        else:
            specs = {
                one.id: MemberSpec(one.instance_id, read[one.wish], targets.get(one.id, NOTHING))
                for one in self.members.values()
            }
            given = ASSIGNORS[assignor](specs, sizes)
        for member_id, target in given.items():
            before = targets.get(member_id)
            if before is not target and before != target:
                self.records.append(kept.target(self.group.id, member_id, target))
        self.records.append(kept.target_epoch(self.group.id, epoch, self.now.wall_ms))
        self.targets = given
        self.target_epoch = epoch

    def reconcile(self, member: ConsumerMember, owned: Assignment | None) -> ConsumerMember:
        """Takes one step of this member towards its target."""
        early = self.shares_out_in_ms > 0
        if member.has_reached(self.target_epoch) and not (early and self.reads_other):
            return member
        own_ids = (member.id, self.replaced or member.id)
        target = self.targets.get(member.id, NOTHING)
        stepped = next_step(
            member,
            self.target_epoch,
            self._still_read(member, target) if early else target,
            owned,
            lambda partition: self.group.is_free(partition, own_ids),
            reads_less=early and self.reads_other,
        )
        if stepped != member:
            self.records.append(kept.current(self.group.id, stepped))
        return stepped

    def _still_read(self, member: ConsumerMember, target: Assignment) -> Assignment:
        """An earlier target may have topics that the member does not read any more: leave them
        out."""
        names = self._names_read(member.wish)
        known = self.image.topics_by_id
        return {
            topic: found
            for topic, found in target.items()
            if topic in known and known[topic].name in names
        }
