"""Three whole nodes that replicate: what is acknowledged survives what happens to one of them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.node.storage.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINTS
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import fetch, produce
from headrace.wire.protocol.record_batch import Record, build, headers_in, walk
from tests.unit.cluster.harness import CLIENTS, FOLDER, Cluster, Member

TOPIC = "orders"


class Replicated(Cluster):
    """With one topic of three replicas."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(default_replication_factor=3, min_insync_replicas=2, **settings)
        self.start()
        at = self.wait_for_controller()
        self.wait(lambda: len(self.alive()) == 3)
        answers = self.create(at, TOPIC)
        self.wait(lambda: answers)
        assert answers[0].topics[0].error_code == 0
        self.wait(lambda: all(self.replica(each) for each in self.members.values()))

    def image(self) -> Any:
        active = self.active()
        return active[0].node.controller.committed_image if len(active) == 1 else None

    def alive(self) -> list[int]:
        image = self.image()
        return [] if image is None else [b.id for b in image.brokers.values() if b.alive]

    def partition(self) -> Any:
        image = self.image()
        return None if image is None else image.topics[TOPIC].partitions[0]

    def leader(self) -> Member | None:
        """The broker that leads and knows it."""
        for member in self.members.values():
            replica = self.replica(member) if member.is_up else None
            found = self.partition()
            if replica is None or found is None or found.leader != member.id:
                continue
            if replica.leads and replica.epoch == found.leader_epoch:
                return member
        return None

    def replica(self, member: Member) -> Any:
        topic = member.node.broker.topics.by_name.get(TOPIC)
        return None if topic is None else topic.replicas[0]

    def values(self, member: Member) -> list[str]:
        log = self.replica(member).log
        found: list[str] = []
        offset = log.start_offset
        while piece := log.read(offset, 1 << 20, up_to=log.end_offset, at_least_one=True):
            data = piece.file.read(piece.length, piece.position)
            for position, header in headers_in(data):
                offset = header.last_offset + 1
                for record in walk(data[position : position + header.size], 1 << 20):
                    assert record.value is not None
                    found.append(record.value.decode())
        return found

    def send(self, *values: str, acks: int = -1, at: Member | None = None, **batch: Any) -> Any:
        """Answers a list that gets the answer of the partition."""
        member = at or self.wait(self.leader)
        records = [Record(None, value.encode(), timestamp=self.world.now.wall_ms)
                   for value in values]  # fmt: skip
        data = build(records, base_offset=0, leader_epoch=-1, **batch)
        part = produce.PartitionProduceData(0, data)
        topic = produce.TopicProduceData(TOPIC, bytes(16), [part])
        answers: list[Any] = []

        def answered(response: Any) -> None:
            answers.append(response.responses[0].partition_responses[0])

        request = produce.ProduceRequest(None, acks, 30_000, [topic])
        member.ask(CLIENTS, produce, request, answered, 12)
        return answers

    def produce(self, *values: str, **options: Any) -> Any:
        """As a client does it: again, where the leader has moved."""
        while True:
            answers = self.send(*values, **options)
            [answer] = self.wait(answers.copy)
            if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return answer
            self.world.run(100)

    def isr(self) -> tuple[int, ...]:
        found = self.partition()
        return () if found is None else tuple(sorted(found.isr))


@pytest.fixture
def cluster() -> Replicated:
    return Replicated()


def test_what_is_acknowledged_is_on_all_three(cluster: Replicated) -> None:
    assert cluster.produce("a", "b").error_code == ErrorCode.NONE
    assert [cluster.values(member) for member in cluster.members.values()] == [["a", "b"]] * 3


@pytest.mark.parametrize("durability", ["page-cache", "disk"])
def test_the_leader_is_killed_and_comes_back(durability: str) -> None:
    cluster = Replicated(headrace_durability=durability)
    assert cluster.produce("a").error_code == ErrorCode.NONE
    old = cluster.leader()
    assert old is not None
    old.kill()
    assert cluster.produce("b").error_code == ErrorCode.NONE
    old.start()
    cluster.wait(lambda: cluster.isr() == (1, 2, 3))
    assert cluster.produce("c").error_code == ErrorCode.NONE
    cluster.world.run(1_000)
    assert [cluster.values(each) for each in cluster.members.values()] == [["a", "b", "c"]] * 3


def test_each_node_is_killed_in_turn_under_load(cluster: Replicated) -> None:
    acknowledged = []
    for round_ in range(2):
        for member in list(cluster.members.values()):
            for number in range(3):
                value = f"{round_}-{member.id}-{number}"
                if cluster.produce(value).error_code == ErrorCode.NONE:
                    acknowledged.append(value)
            member.kill()
            value = f"{round_}-{member.id}-while away"
            if cluster.produce(value).error_code == ErrorCode.NONE:
                acknowledged.append(value)
            member.start()
            cluster.wait(lambda: cluster.isr() == (1, 2, 3))
    cluster.world.run(1_000)
    logs = [cluster.values(member) for member in cluster.members.values()]
    assert logs[0] == logs[1] == logs[2]
    assert [value for value in logs[0] if value in acknowledged] == acknowledged
    assert len(acknowledged) == 24


def test_a_leader_that_is_cut_off_truncates_what_it_alone_had(cluster: Replicated) -> None:
    assert cluster.produce("a").error_code == ErrorCode.NONE
    old = cluster.leader()
    assert old is not None
    cluster.network.isolate(old.id, cluster.members, sends=False, hears=False)
    alone = cluster.send("lost", at=old)
    cluster.wait(lambda: cluster.leader() not in (None, old))
    assert cluster.produce("b").error_code == ErrorCode.NONE
    cluster.network.heal()
    cluster.wait(lambda: cluster.isr() == (1, 2, 3))
    assert [cluster.values(member) for member in cluster.members.values()] == [["a", "b"]] * 3
    cluster.wait(lambda: alone)
    assert alone[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_batch_sent_again_after_the_leaders_death_is_recognised(cluster: Replicated) -> None:
    producer = {"producer_id": 7, "producer_epoch": 0}
    assert cluster.produce("a", base_sequence=0, **producer).base_offset == 0
    assert cluster.produce("b", base_sequence=1, **producer).base_offset == 1
    old = cluster.leader()
    assert old is not None
    old.kill()
    again = cluster.produce("b", base_sequence=1, **producer)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 1)
    assert cluster.produce("c", base_sequence=2, **producer).base_offset == 2


def test_a_clean_stop_hands_leadership_over_first(cluster: Replicated) -> None:
    cluster.produce("a")
    old = cluster.leader()
    assert old is not None
    old.stop()
    cluster.wait(lambda: old.node.stopped)
    old.is_up = False
    answer = cluster.produce("b")
    assert answer.error_code == ErrorCode.NONE
    old.start()
    cluster.wait(lambda: cluster.isr() == (1, 2, 3))
    assert cluster.values(old) == ["a", "b"]


def test_a_start_that_never_found_its_quorum_does_not_vouch_for_the_one_before(
    cluster: Replicated,
) -> None:
    """A power cut, then a start without a network that is stopped in an orderly way: who was
    trusted after that could be elected, and lack what it had acknowledged."""
    cluster.produce("a")
    cluster.world.run(61_000)  # the checkpoints speak of the topic
    victim = next(each for each in cluster.members.values() if each is not cluster.leader())
    victim.kill()
    recovery_points = victim.disk.read_file(f"{FOLDER}/{RECOVERY_POINTS}")
    assert TOPIC.encode() in recovery_points
    cluster.network.isolate(victim.id, cluster.members, sends=False, hears=False)
    victim.start()
    cluster.world.run(61_000)
    victim.stop()
    cluster.wait(lambda: victim.node.stopped)
    assert not victim.disk.exists(f"{FOLDER}/{CLEAN_SHUTDOWN}")
    assert victim.disk.read_file(f"{FOLDER}/{RECOVERY_POINTS}") == recovery_points
    cluster.network.heal()
    victim.start()
    cluster.wait(lambda: cluster.isr() == (1, 2, 3))
    assert victim.node.partitions.last_broker_epoch == -1


def test_a_client_reads_what_is_committed_from_any_replica(cluster: Replicated) -> None:
    cluster.produce("a")
    cluster.world.run(1_000)
    for member in cluster.members.values():
        part = fetch.FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(
            max_wait_ms=0, topics=[fetch.FetchTopic(TOPIC, bytes(16), [part])]
        )
        answers: list[Any] = []
        member.ask(CLIENTS, fetch, request, answers.append, 12)
        [found] = answers[0].responses[0].partitions
        assert found.high_watermark == 1 and len(found.records) > 0


def test_followers_of_a_quiet_partition_are_in_sync_soon(cluster: Replicated) -> None:
    """Both may have fetched all before they may join, and nothing makes them fetch again."""
    assert cluster.produce("a").error_code == ErrorCode.NONE
    away = [member for member in cluster.members.values() if member is not cluster.leader()]
    away[0].kill()
    cluster.wait(lambda: len(cluster.isr()) == 2)
    cluster.world.run(20_000)
    begun_ms = cluster.world.now_ms
    away[0].start()
    cluster.wait(lambda: len(cluster.isr()) == 3)
    assert cluster.world.now_ms - begun_ms < 500, "not with the next look, 15 s later"
