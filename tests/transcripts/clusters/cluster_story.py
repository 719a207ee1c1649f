"""Stories of whole nodes in virtual time: what is done, and what is then true.

    crash 1
    run 15s                 -> broker 2 leads; ISR: 2, 3

Lines that begin with # are comments. `cluster of 3` begins a story: each node is broker and
controller, with Kafka's own times (a session ends after 9 s, a follower lags after 30 s). Partition
0 of `orders` has its replicas on brokers 1, 2 and 3, in this order, and needs two in sync; so has
the only partition of `__consumer_offsets`, where the group `billing` has its offset. A `crash` is a
machine that loses what was not flushed, as the seed decides; a `kill` ends the process alone. What
may stand on the left is in COMMANDS, on the right in FACTS; both are matched as whole lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.node.metadata.image import PartitionImage
from headrace.node.simulator.cluster.consumers import values_in
from headrace.node.simulator.cluster.scripts import OFFSETS
from headrace.node.simulator.cluster.transactions import BY_NAME, offset_request, offsets_of
from headrace.node.simulator.whole_nodes import CLIENTS, CLUSTER_ID, Cluster, Member
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    add_raft_voter,
    create_topics,
    elect_leaders,
    offset_commit,
    offset_fetch,
    produce,
    remove_raft_voter,
)
from headrace.wire.protocol.record_batch import Record, build
from tests.transcripts.text_story import Phrases, milliseconds, numbers, tell_story

TOPIC, GROUP = "orders", "billing"
NOT_YET = "no answer yet"


class Story:
    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self._cluster: Cluster | None = None
        self._disks = 0

    @property
    def cluster(self) -> Cluster:
        assert self._cluster is not None, "a story begins with `cluster of 3`"
        return self._cluster

    def member(self, node: str) -> Member:
        return self.cluster.members[int(node)]

    @property
    def partition(self) -> PartitionImage:
        """By the newest metadata that any node has."""
        images = [m.node.broker.image for m in self.cluster.members.values() if m.is_up]
        newest = max(images, key=lambda image: image.offset)
        return newest.topics[TOPIC].partitions[0]

    # The left side

    def begin(self, durability: str | None, seed: str | None) -> None:
        self._cluster = Cluster(
            3,
            int(seed or 1),
            min_insync_replicas=2,
            default_replication_factor=3,
            offsets_topic_num_partitions=1,
            headrace_durability=durability or "page-cache",
        )
        self.cluster.start()
        self.cluster.wait_until_ready()
        assigned = create_topics.CreatableReplicaAssignment(0, [1, 2, 3])
        topics = [
            create_topics.CreatableTopic(name, -1, -1, [assigned]) for name in (TOPIC, OFFSETS)
        ]
        request = create_topics.CreateTopicsRequest(topics, 5_000)
        answers: list[Any] = []
        self.member("1").ask(CLIENTS, create_topics, request, answers.append)
        self.cluster.wait(lambda: answers)
        self.cluster.wait(lambda: len(self.partition.isr) == 3)

    def run(self, seconds: str) -> None:
        self.cluster.world.run(milliseconds(seconds))

    def produce(self, name: str, acks: str, node: str | None) -> None:
        target = self.member(node or str(self.partition.leader))
        assert target.is_up, f"node {target.id} is down"
        topic_id = target.node.broker.image.topics[TOPIC].id
        batch = build([Record(None, name.encode(), timestamp=self.cluster.world.now.wall_ms)])
        part = produce.PartitionProduceData(0, batch)
        named = produce.TopicProduceData(topic_id=topic_id, partition_data=[part])
        request = produce.ProduceRequest(None, -1 if acks == "all" else 1, 60_000, [named])
        self.answers[name] = NOT_YET

        def answered(response: Any) -> None:
            code = response.responses[0].partition_responses[0].error_code
            self.answers[name] = CODES[code]

        target.ask(CLIENTS, produce, request, answered)

    def commit(self, offset: str, name: str, node: str) -> None:
        part = offset_commit.OffsetCommitRequestPartition(0, int(offset))
        topic = offset_commit.OffsetCommitRequestTopic(TOPIC, partitions=[part])
        request = offset_commit.OffsetCommitRequest(GROUP, -1, "", topics=[topic])
        self.answers[name] = NOT_YET

        def answered(response: Any) -> None:
            self.answers[name] = CODES[response.topics[0].partitions[0].error_code]

        self.member(node).ask(CLIENTS, offset_commit, request, answered, BY_NAME)

    def ask_for_offset(self, node: str, name: str) -> None:
        self.answers[name] = NOT_YET

        def answered(response: Any) -> None:
            found = offsets_of(response)
            code = CODES[response.groups[0].error_code]
            self.answers[name] = code if found is None else f"offset {found[0]}"

        request = offset_request(GROUP, TOPIC, [0])
        self.member(node).ask(CLIENTS, offset_fetch, request, answered, BY_NAME)

    def crash(self, nodes: str) -> None:
        for node in numbers(nodes):
            self.cluster.members[node].kill()

    def kill(self, node: str) -> None:
        self.member(node).kill(loses=False)

    def stop(self, node: str) -> None:
        self.member(node).stop()

    def start(self, nodes: str) -> None:
        for node in numbers(nodes):
            assert not self.cluster.members[node].is_up, f"node {node} runs"
            self.cluster.members[node].start()

    def pause(self, node: str, seconds: str) -> None:
        self.member(node).pause(milliseconds(seconds))

    def cut(self, node: str) -> None:
        self.cluster.network.isolate(int(node), self.cluster.members, sends=False, hears=False)

    def deafen(self, node: str) -> None:
        self.cluster.network.isolate(int(node), self.cluster.members, sends=True, hears=False)

    def silence(self, node: str) -> None:
        self.cluster.network.isolate(int(node), self.cluster.members, sends=False, hears=True)

    def heal(self) -> None:
        self.cluster.network.heal()

    def lose_disk(self, node: str) -> None:
        self._disks += 1
        self.member(node).lose_disk(f"disk {self._disks} of {node}".encode().ljust(16))

    def replace_voter(self, node: str) -> None:
        """The voter of the lost disk goes, that of the new one comes."""
        member = self.member(node)
        lost = next(v for v in self.cluster.voters if v.id == member.id)
        self._ask(
            remove_raft_voter,
            remove_raft_voter.RemoveRaftVoterRequest(CLUSTER_ID, lost.id, lost.directory_id),
        )
        points = [add_raft_voter.Listener(p.listener, p.host, p.port) for p in lost.endpoints]
        self._ask(
            add_raft_voter,
            add_raft_voter.AddRaftVoterRequest(
                CLUSTER_ID, 5_000, lost.id, member.voter.directory_id, points
            ),
        )

    def elect_preferred(self) -> None:
        self._ask(elect_leaders, elect_leaders.ElectLeadersRequest(0, None, 5_000))

    def _ask(self, messages: Any, request: Any) -> None:
        answers: list[Any] = []
        at = next(m for m in self.cluster.members.values() if m.is_up)
        at.ask(CLIENTS, messages, request, answers.append)
        self.cluster.wait(lambda: answers)
        assert answers[0].error_code == ErrorCode.NONE, answers[0]

    # The right side

    def leads(self, node: str) -> None:
        assert self.partition.leader == int(node), self.partition

    def has_no_leader(self) -> None:
        assert self.partition.leader == -1, self.partition

    def isr_is(self, nodes: str) -> None:
        assert sorted(self.partition.isr) == numbers(nodes), self.partition

    def eligible_are(self, nodes: str) -> None:
        eligible = sorted(self.partition.eligible_leader_replicas)
        assert eligible == numbers(nodes), self.partition

    def controls(self, node: str) -> None:
        assert [m.id for m in self.cluster.active()] == [int(node)]

    def believe_to_control(self, nodes: str) -> None:
        assert sorted(m.id for m in self.cluster.active()) == numbers(nodes)

    def answered(self, name: str, code: str) -> None:
        assert self.answers[name] == code, self.answers[name]

    def acknowledged(self, name: str, negated: str | None) -> None:
        assert (self.answers[name] == "NONE") is (negated is None), self.answers[name]

    def told(self, name: str, offset: str) -> None:
        assert self.answers[name] == f"offset {offset}", self.answers[name]

    def waits(self, name: str) -> None:
        assert self.answers[name] == NOT_YET, self.answers[name]

    def has(self, node: str, verb: str, name: str) -> None:
        assert (name.encode() in self._values(self.member(node))) is (verb == "has")

    def is_down(self, node: str) -> None:
        assert not self.member(node).is_up

    def all_are_equal(self) -> None:
        found = [self._values(member) for member in self.cluster.members.values()]
        assert found[0] == found[1] == found[2], found

    def _values(self, member: Member) -> list[bytes]:
        topic = member.node.broker.topics.by_name.get(TOPIC)
        replica = None if topic is None else topic.replicas[0]
        if replica is None:
            return []
        log = replica.log
        piece = log.read(0, 1 << 20, up_to=log.end_offset, at_least_one=True)
        if piece is None:
            return []
        return [value for _, value in values_in(piece.file.read(piece.length, piece.position))]


CODES = {int(code): code.name for code in ErrorCode}


COMMANDS: Phrases = (
    (r"cluster of 3(?: with durability (disk))?(?:, seed (\d+))?", Story.begin),
    (r"run ([\d.]+)s", Story.run),
    (r"produce (\w+) acks=(all|1)(?: at (\d))?", Story.produce),
    (r"commit (\d+) as (\w+) at (\d)", Story.commit),
    (r"ask (\d) for the offset as (\w+)", Story.ask_for_offset),
    (r"crash ([\d, ]+)", Story.crash),
    (r"kill (\d)", Story.kill),
    (r"stop (\d)", Story.stop),
    (r"start ([\d, ]+)", Story.start),
    (r"pause (\d) for ([\d.]+)s", Story.pause),
    (r"cut (\d)", Story.cut),
    (r"(\d) hears nothing", Story.deafen),
    (r"nobody hears (\d)", Story.silence),
    (r"heal", Story.heal),
    (r"lose the disk of (\d)", Story.lose_disk),
    (r"replace the voter (\d)", Story.replace_voter),
    (r"elect preferred leaders", Story.elect_preferred),
)
FACTS: Phrases = (
    (r"broker (\d) leads", Story.leads),
    (r"nobody leads", Story.has_no_leader),
    (r"ISR: ([\d, ]+|nobody)", Story.isr_is),
    (r"ELR: ([\d, ]+|nobody)", Story.eligible_are),
    (r"node (\d) is the controller", Story.controls),
    (r"nodes ([\d, ]+) believe to be the controller", Story.believe_to_control),
    (r"(\w+) is answered (\w+)", Story.answered),
    (r"(\w+) is (not )?acknowledged", Story.acknowledged),
    (r"(\w+) is told (-?\d+)", Story.told),
    (r"(\w+) waits", Story.waits),
    (r"node (\d) (has|lacks) (\w+)", Story.has),
    (r"node (\d) is down", Story.is_down),
    (r"all logs are equal", Story.all_are_equal),
)


def tell(path: Path) -> None:
    tell_story(path, Story(), commands=COMMANDS, facts=FACTS)
