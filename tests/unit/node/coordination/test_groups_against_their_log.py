"""Whatever members do, in whatever order: the log alone gives the same groups again."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.environment import Now
from headrace.node.coordination.group import offset_rules
from headrace.node.coordination.group.classic_answers import Client
from headrace.node.coordination.group.classic_group import ClassicGroup, ClassicGroupState
from headrace.node.coordination.group.machine import GroupMachine
from headrace.node.coordination.group.settings import GroupSettings
from headrace.node.coordination.shard import Later, Shard
from headrace.node.metadata.image import MetadataImage, PartitionImage, TopicImage
from headrace.wire.protocol.errors import KafkaError
from headrace.wire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.protocol.messages.heartbeat import HeartbeatRequest
from headrace.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.wire.protocol.messages.offset_commit import OffsetCommitRequest
from headrace.wire.protocol.messages.offset_commit_value import OffsetCommitValue
from headrace.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.effort import examples
from tests.unit.node.coordination.a_journal import MemoryJournal

TOPIC = b"t" * 16
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
ASSIGNMENT = b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
CLIENT = Client("c", "/h", 5)


def an_image():
    partition = PartitionImage(
        leader=1, leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,), directories=(TOPIC,)
    )
    topic = TopicImage("t", TOPIC, (partition,) * 4)
    return MetadataImage(cluster_id="c", topics={"t": topic}, topics_by_id={TOPIC: topic})


class Play:
    """One shard and the clients of a group, who know what they were last told."""

    def __init__(self, delay_ms):
        self.now = Now(1_000, 1_700_000_000_000)
        self.journal = MemoryJournal()
        self.settings = GroupSettings(initial_rebalance_delay_ms=delay_ms)
        self.ids = 0
        self.shard = self.loaded()
        self.generation = {}
        self.owned = {}
        self.given = {}  # place in the play -> the id that a classic member got

    def loaded(self):
        def new_id():
            self.ids += 1
            return str(self.ids)

        image = an_image()
        shard = Shard(
            self.journal,
            lambda answered: GroupMachine(answered, lambda: self.settings, new_id, lambda: image),
        )
        shard.load(self.now)
        return shard

    def ask(self, decide, *arguments):
        try:
            answer = self.shard.run(self.now, decide, *arguments)
        except KafkaError:
            return None
        self.shard.answered.clear()
        return None if isinstance(answer, Later) else answer

    # what members do

    def join(self, who, instance):
        request = JoinGroupRequest(
            "g", 10_000, 20_000, self.given.get(who, ""), instance, "consumer"
        )
        request.protocols = [JoinGroupRequestProtocol("range", SUBSCRIPTION)]
        answer = self.ask(GroupMachine.join, request, CLIENT, self.now)
        if answer is not None and answer.member_id:
            self.given[who] = answer.member_id
            self.generation[who] = answer.generation_id

    def sync(self, who, _):
        group = self.shard.machine.groups.get("g")
        member = self.given.get(who, "nobody")
        request = SyncGroupRequest("g", self.generation.get(who, 0), member)
        if isinstance(group, ClassicGroup):
            request.generation_id = group.generation
            request.assignments = [
                SyncGroupRequestAssignment(one, ASSIGNMENT) for one in group.members
            ]
        self.ask(GroupMachine.sync, request, CLIENT, self.now)

    def heartbeat(self, who, instance):
        request = HeartbeatRequest(
            "g", self.generation.get(who, 0), self.given.get(who, ""), instance
        )
        self.ask(GroupMachine.heartbeat, request, CLIENT, self.now)

    def leave(self, who, instance):
        identity = MemberIdentity(self.given.get(who, "x"), instance)
        self.ask(GroupMachine.leave, LeaveGroupRequest("g", members=[identity]), CLIENT, self.now)

    def consume(self, who, instance):
        """A heartbeat of the newer protocol; joins if it has to."""
        epoch, owned = self.generation.get(f"k{who}", 0), self.owned.get(who, [])
        request = ConsumerGroupHeartbeatRequest("g", f"k{who}", epoch, instance)
        request.topic_partitions = [TopicPartitions(TOPIC, owned)] if owned else []
        if epoch == 0:
            request.rebalance_timeout_ms = 20_000
            request.subscribed_topic_names = ["t"] if who else ["t", "unknown"]
            request.topic_partitions = []
        answer = self.ask(GroupMachine.consumer_heartbeat, request, Client("c", "/h", 1), self.now)
        if answer is None:
            self.generation[f"k{who}"], self.owned[who] = 0, []
            return
        self.generation[f"k{who}"] = answer.member_epoch
        if answer.assignment is not None:
            parts = answer.assignment.topic_partitions
            self.owned[who] = sorted(p for part in parts for p in part.partitions)

    def stop_consuming(self, who, instance):
        request = ConsumerGroupHeartbeatRequest("g", f"k{who}", -1, instance)
        self.ask(GroupMachine.consumer_heartbeat, request, Client("c", "/h", 1), self.now)
        self.generation[f"k{who}"], self.owned[who] = 0, []

    def go_for_a_moment(self, who, instance):
        """A static member says that it will be back."""
        request = ConsumerGroupHeartbeatRequest("g", f"k{who}", -2, instance or "i")
        self.ask(GroupMachine.consumer_heartbeat, request, Client("c", "/h", 1), self.now)
        self.generation[f"k{who}"], self.owned[who] = 0, []

    def start_again(self, who, _):
        """It has forgotten which id it had, and what it owned; in either protocol."""
        self.given.pop(who, None)
        self.generation[f"k{who}"], self.owned[who] = 0, []

    def commit(self, who, _):
        member = self.given.get(who, "")
        request = OffsetCommitRequest("g", self.generation.get(who, -1), member)
        commits = [("t", who, OffsetCommitValue(who, -1, "", self.now.wall_ms))]
        self.ask(offset_rules.commit, request, commits, True, 9, self.now)

    def wait(self, who, _):
        self.now.monotonic_ms += 3_000 * (who + 1)
        self.now.wall_ms += 3_000 * (who + 1)
        self.shard.run_due(self.now)
        self.shard.answered.clear()

    # what must hold

    def check(self):
        again = self.loaded()
        assert kept(again.machine) == kept(self.shard.machine)
        group = self.shard.machine.groups.get("g")
        if group is not None and not isinstance(group, ClassicGroup):
            owned = [
                (member, topic, index)
                for member in group.members.values()
                for parts in (member.assigned, member.revoking)
                for topic, indexes in parts.items()
                for index in indexes
            ]
            places = [(topic, index) for _, topic, index in owned]
            assert len(places) == len(set(places))
            assert set(places) == set(group.owners)
            assert group.wishes == Counter(member.wish for member in group.members.values())
            for member, topic, index in owned:
                assert 0 <= member.since[topic][index] <= group.target_epoch


def kept(machine):
    """What the log must give again; a classic group in a rebalance is only known to its members."""
    group = machine.groups.get("g")
    offsets = {place: value.offset for place, value in machine.offsets.of("g").items()}
    if isinstance(group, ClassicGroup):
        if group.state is not ClassicGroupState.STABLE:
            return offsets, "classic"
        members = {m.id: (m.instance_id, m.assignment) for m in group.members.values()}
        return offsets, group.generation, group.protocol, members
    if group is None:
        return offsets, "classic"  # one that never got to an assignment leaves no record
    return offsets, group.epoch, group.target_epoch, group.members, group.target, group.owners


ACTIONS = ("join", "join", "sync", "heartbeat", "leave", "commit", "wait", "consume", "consume",
           "stop_consuming", "go_for_a_moment", "start_again")  # fmt: skip
steps = st.lists(
    st.tuples(
        st.sampled_from(ACTIONS), st.integers(0, 3), st.sampled_from([None, None, None, "i"])
    ),
    min_size=20,
    max_size=60,
)


@settings(max_examples=examples(40), deadline=None)
@given(steps, st.sampled_from([0, 3_000]))
def test_the_log_gives_the_same_groups_again(actions, delay_ms):
    play = Play(delay_ms)
    for number, (action, who, instance) in enumerate(actions, start=1):
        getattr(play, action)(who, instance)
        group = play.shard.machine.groups.get("g")
        at_rest = not isinstance(group, ClassicGroup) or group.state is ClassicGroupState.STABLE
        if at_rest and (number % 7 == 0 or number == len(actions)):
            play.check()
