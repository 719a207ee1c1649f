"""Consumers of the classic protocol on a rig: they give up only what goes to another (KIP-429).

Their subscriptions and assignments are the real ones, so that a group of them can change to the
newer protocol and back.
"""

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    consumer_protocol_assignment,
    consumer_protocol_subscription,
    join_group,
    sync_group,
)
from headrace.wire.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from headrace.wire.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.unit.node.broker.rig import WAITS

E = ErrorCode
PROTOCOL = "cooperative-sticky"


class ClassicReader:
    def __init__(self, rig, group, *topics, instance=None, eager=False):
        self.rig = rig
        self.group = group
        self.topics = topics
        self.instance = instance
        self.eager = eager  # gives up everything before it joins
        self.id = ""
        self.generation = -1
        self.owned = set()  # of (topic, partition)
        self.leads = False
        self.members = []  # what a leader is told of all of them
        self.session = None

    def join(self, **options):
        if self.eager:
            self.owned = set()
        options = {"protocols": {PROTOCOL: self.subscription()}, **options}
        self.session = self.rig.connect()
        answer = self.rig.join(
            self.group, self.id, instance=self.instance, session=self.session, **options
        )
        if answer != WAITS and answer.error_code == E.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            return self.join(**options)
        return answer if answer == WAITS else self.note(answer)

    def hear(self):
        """The answer to the JoinGroup that had to wait, if it is there."""
        if not self.session.outbox:
            return WAITS
        return self.note(self.rig.answer_on(self.session, join_group, 9))

    def note(self, joined):
        if joined.error_code == E.NONE:
            self.id, self.generation = joined.member_id, joined.generation_id
            self.leads = joined.leader == joined.member_id
            self.members = joined.members
        return joined

    def sync(self, parts=None, **more):
        """`parts`: what the leader gives to each member, as sets of (topic, partition)."""
        given = {name: assignment(mine) for name, mine in (parts or {}).items()}
        self.session = self.rig.connect()
        more = {"protocol_name": PROTOCOL, "group_instance_id": self.instance, **more}
        answer = self.rig.sync(
            self.group, self.id, self.generation, given, session=self.session, **more
        )
        return answer if answer == WAITS else self.take(answer)

    def hear_part(self):
        return self.take(self.rig.answer_on(self.session, sync_group, 5))

    def take(self, synced):
        if synced.error_code == E.NONE:
            self.owned = partitions_of(synced.assignment)
        return synced

    def beat(self):
        return self.rig.heartbeat(self.group, self.id, self.generation, instance=self.instance)

    def follow(self):
        """In a group of the newer protocol: one step, if the server asks for one."""
        if self.beat() == E.NONE:
            return False
        assert self.join().error_code == E.NONE
        code = self.sync().error_code
        assert code in (E.NONE, E.REBALANCE_IN_PROGRESS), code
        return True

    def subscription(self):
        by_topic = {}
        for topic, index in sorted(self.owned):
            by_topic.setdefault(topic, []).append(index)
        owned = [TopicPartition(topic, indexes) for topic, indexes in by_topic.items()]
        message = ConsumerProtocolSubscription(list(self.topics), None, owned)
        return embedded(consumer_protocol_subscription, message)


def assignment(parts):
    by_topic = {}
    for topic, index in sorted(parts):
        by_topic.setdefault(topic, []).append(index)
    found = [
        consumer_protocol_assignment.TopicPartition(topic, indexes)
        for topic, indexes in by_topic.items()
    ]
    return embedded(consumer_protocol_assignment, ConsumerProtocolAssignment(found, None))


def embedded(messages, message):
    pieces = [(1).to_bytes(2, "big")]
    messages.ENCODE[1](message, pieces.append)
    return b"".join(map(bytes, pieces))


def partitions_of(data):
    if not data:
        return set()
    version = int.from_bytes(data[:2], "big")
    found, _ = consumer_protocol_assignment.DECODE[version](memoryview(data), 2)
    return {(one.topic, index) for one in found.assigned_partitions for index in one.partitions}


def stable_group(rig, *readers):
    """All join, the first of them leads and shares out as evenly as can be."""
    for reader in readers:
        reader.join()
    leader = readers[0]
    if len(readers) > 1:
        leader.join()
        for reader in readers[1:]:
            reader.hear()
    assert leader.leads
    topics = rig.node.broker.image.topics
    places = [
        (topic, index) for topic in leader.topics for index in range(len(topics[topic].partitions))
    ]
    parts = {reader.id: set(places[at :: len(readers)]) for at, reader in enumerate(readers)}
    leader.sync(parts)
    for reader in readers[1:]:
        reader.sync()
    assert all(reader.owned == parts[reader.id] for reader in readers)


def owned_in(subscription):
    """What a member says it has, for the leader."""
    found, _ = consumer_protocol_subscription.DECODE[1](memoryview(subscription), 2)
    return {(one.topic, index) for one in found.owned_partitions for index in one.partitions}


def share_out(members, places):
    """As CooperativeSticky does: what one has beyond its share is given to nobody until it is
    given up; what nobody has goes to those that have least."""
    owned = {member.member_id: owned_in(member.metadata) for member in members}
    least, extra = divmod(len(places), len(owned))
    free = sorted(set(places).difference(*owned.values()))
    parts = {}
    for name in sorted(owned, key=lambda name: len(owned[name]), reverse=True):
        share = least + (extra > 0)
        extra -= 1
        kept = sorted(owned[name])[:share]
        wanted = share - len(kept)
        parts[name] = {*kept, *free[:wanted]}
        free = free[wanted:]
    return parts
