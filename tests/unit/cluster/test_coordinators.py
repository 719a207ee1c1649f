"""Groups and transactions on three whole nodes, of which one is killed: nothing of them is lost."""

from typing import Any

import pytest

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    consumer_group_heartbeat,
    create_topics,
    find_coordinator,
    heartbeat,
    join_group,
    offset_commit,
    sync_group,
)
from headrace.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.unit.cluster.harness import CLIENTS, Cluster
from tests.unit.node.broker.cluster.brokers_by_hand import OFFSETS, STATE, leader_of
from tests.unit.node.broker.transactions.transaction_rig import (
    TransactionalProducer,
    TransactionRig,
)

# A broker that falls silent is fenced after 9 s; then others lead.
WITHIN_MS = 30_000
PATIENCE_MS = 2_000
# What clients try again, at whoever leads then.
NO_ANSWER = "no answer"
TRY_AGAIN = {
    NO_ANSWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class NoAnswer(Exception):
    pass


class Clients:
    """All clients of the cluster: they ask whoever leads by the newest metadata."""

    def __init__(self, **settings):
        self.cluster = Cluster(
            offsets_topic_num_partitions=1,
            transaction_state_log_num_partitions=1,
            group_initial_rebalance_delay_ms=0,
            offsets_topic_replication_factor=3,
            transaction_state_log_replication_factor=3,
            transaction_state_log_min_isr=2,
            min_insync_replicas=2,
            **settings,
        )
        self.cluster.start()
        self.cluster.wait_until_ready()
        self.now = self.member(1).node.now
        self._create("orders", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        for key_type in (0, 1):
            request = find_coordinator.FindCoordinatorRequest("", key_type, ["any"])
            self.until(lambda request=request: self._found(request))

    def _create(self, name, partitions):
        replicas = [
            create_topics.CreatableReplicaAssignment(index, ids)
            for index, ids in enumerate(partitions)
        ]
        topic = create_topics.CreatableTopic(name, -1, -1, replicas)
        request = create_topics.CreateTopicsRequest([topic], 5_000)
        [result] = self.ask(create_topics, request, to=1).topics
        assert result.error_code == 0, result.error_message

    def _found(self, request):
        return self.ask(find_coordinator, request, to=1).coordinators[0].error_code

    def member(self, node_id):
        return self.cluster.members[node_id]

    @property
    def image(self):
        """The newest that any node has."""
        images = [m.node.broker.image for m in self.cluster.members.values() if m.is_up]
        return max(images, key=lambda image: image.offset)

    def leader(self, topic, index=0):
        return self.image.topics[topic].partitions[index].leader

    def ask(self, messages, request, *, version=None, session=None, to=None):
        found = self.member(to or leader_of(self.image, messages, request))
        if not found.is_up:
            self.cluster.world.run(100)
            raise NoAnswer
        answers = []
        found.ask(CLIENTS, messages, request, answers.append, version)
        end_ms = self.cluster.world.now_ms + PATIENCE_MS
        while not answers:
            if self.cluster.world.now_ms >= end_ms or not found.is_up:
                raise NoAnswer
            self.cluster.world.run(10)
        return answers[0]

    def until(self, attempt):
        """Try as a client does, until the code is none that says: again."""
        end_ms = self.cluster.world.now_ms + WITHIN_MS
        while True:
            try:
                code = attempt()
            except NoAnswer:
                code = NO_ANSWER
            if code not in TRY_AGAIN:
                return code
            assert self.cluster.world.now_ms < end_ms, code
            self.cluster.world.run(100)

    def found(self, look):
        """What `look` answers once the broker that it asks is there."""
        answers = []

        def attempt():
            answers.append(look())

        self.until(attempt)
        return answers[-1]

    def producer(self, transactional_id="t", **how):
        producer = TransactionalProducer(self, transactional_id, **how)
        assert self.until(producer.init) == 0
        return producer

    def kill(self, node_id):
        """And what it leads is led by others."""
        self.member(node_id).kill()
        self.cluster.wait(self._is_led_by_the_living, WITHIN_MS)

    def _is_led_by_the_living(self):
        return all(
            part.leader > 0 and self.member(part.leader).is_up
            for topic in self.image.topics.values()
            for part in topic.partitions
        )

    committed: Any = TransactionRig.committed
    committed_records: Any = TransactionRig.committed_records
    fetch_committed: Any = TransactionRig.fetch_committed
    describe: Any = TransactionRig.describe
    offset_of: Any = TransactionRig.offset_of


def write(clients, producer, *values):
    """One value to each partition, each tried until it is taken."""
    if not producer.bumps:
        places = [("orders", index) for index in range(len(values))]
        assert clients.until(lambda: max(producer.add(*places))) == 0
    for index, value in enumerate(values):
        code = clients.until(lambda index=index, value=value: send(producer, value, index))
        assert code == 0


def send(producer, value, index):
    return producer.send("orders", value, partition=index)


def committed(clients):
    return [
        clients.found(lambda index=index: clients.committed("orders", partition=index))
        for index in range(3)
    ]


def state(clients):
    return clients.found(lambda: clients.describe("t").transaction_state)


def wait_for_state(clients, expected):
    clients.cluster.wait(lambda: state(clients) == expected, WITHIN_MS)


# --- transactions


@pytest.mark.parametrize("bumps", [True, False], ids=["kip-890", "before"])
def test_a_transaction_spans_three_leaders_and_outlives_each_broker_in_turn(bumps):
    clients = Clients()
    producer = clients.producer(bumps=bumps)
    expected = [[], [], []]
    for victim, commits in ((1, True), (2, False), (3, True)):
        write(clients, producer, f"a{victim}", f"b{victim}", f"c{victim}")
        clients.kill(victim)
        write(clients, producer, f"d{victim}", f"e{victim}", f"f{victim}")
        assert clients.until(lambda commits=commits: producer.end(commits)) == 0
        wait_for_state(clients, "CompleteCommit" if commits else "CompleteAbort")
        if commits:
            for found, first, second in zip(expected, "abc", "def", strict=True):
                found += [f"{first}{victim}", f"{second}{victim}"]
        assert committed(clients) == expected
        clients.member(victim).start()
        clients.cluster.wait_until_ready()
        clients.cluster.wait(lambda: is_in_sync(clients), WITHIN_MS)


def is_in_sync(clients):
    return all(
        len(part.isr) == len(part.replicas)
        for topic in clients.image.topics.values()
        for part in topic.partitions
    )


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_the_next_coordinator_finishes_what_was_decided(commits):
    clients = Clients()
    producer = clients.producer()
    write(clients, producer, "a", "b", "c")
    victim = clients.leader(STATE)
    hold_markers_back(clients.member(victim))
    assert clients.until(lambda: producer.end(commits)) == 0
    assert state(clients) == ("PrepareCommit" if commits else "PrepareAbort")
    clients.kill(victim)
    wait_for_state(clients, "CompleteCommit" if commits else "CompleteAbort")
    assert committed(clients) == ([["a"], ["b"], ["c"]] if commits else [[], [], []])
    write(clients, producer, "d", "e", "f")
    assert clients.until(producer.commit) == 0
    wait_for_state(clients, "CompleteCommit")
    assert [found[-1] for found in committed(clients)] == ["d", "e", "f"]


def hold_markers_back(member):
    """It decides, and dies before a marker has left it."""
    peers = member.node.broker.replica_fetching.peers
    ask = peers.ask

    def ask_unless_marker(to, lane, *rest, **how):
        if lane != "transaction-markers":
            ask(to, lane, *rest, **how)

    peers.ask = ask_unless_marker


def test_a_zombie_is_fenced_by_the_next_coordinator():
    clients = Clients()
    zombie = clients.producer()
    write(clients, zombie, "a", "b", "c")
    clients.kill(clients.leader(STATE))
    successor = clients.producer()
    assert clients.until(lambda: send(zombie, "z", 1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert clients.until(zombie.commit) == ErrorCode.PRODUCER_FENCED
    write(clients, successor, "d", "e", "f")
    assert clients.until(successor.commit) == 0
    wait_for_state(clients, "CompleteCommit")
    assert committed(clients) == [["d"], ["e"], ["f"]]


def test_a_coordinator_s_topic_waits_for_as_many_brokers_as_it_needs(caplog):
    cluster = Cluster(offsets_topic_replication_factor=3, offsets_topic_num_partitions=1)
    for member in cluster.members.values():
        member.format(cluster.voters)
    cluster.members[1].start()
    cluster.members[2].start()
    cluster.wait_until_ready()
    first = cluster.members[1]

    def found():
        request = find_coordinator.FindCoordinatorRequest("", 0, ["billing"])
        answers = []
        first.ask(CLIENTS, find_coordinator, request, answers.append)
        return cluster.wait(lambda: answers)[0].coordinators[0].error_code

    assert found() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert OFFSETS not in first.node.broker.image.topics
    assert "3 replicas, and 2 brokers are registered" in caplog.text
    cluster.members[3].start()
    cluster.wait(lambda: found() == 0, WITHIN_MS)
    assert len(first.node.broker.image.topics[OFFSETS].partitions[0].replicas) == 3


# --- groups


def commit_offset(clients, offset, **membership):
    part = offset_commit.OffsetCommitRequestPartition(0, offset)
    topic = offset_commit.OffsetCommitRequestTopic("orders", partitions=[part])
    request = offset_commit.OffsetCommitRequest("billing", topics=[topic], **membership)
    answer = clients.ask(offset_commit, request, version=9)
    return answer.topics[0].partitions[0].error_code


def test_a_classic_group_goes_on_after_its_coordinator_died():
    clients = Clients()
    subscription = b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"
    protocol = join_group.JoinGroupRequestProtocol("range", subscription)
    join = join_group.JoinGroupRequest("billing", 30_000, 30_000, "", None, "consumer", [protocol])
    join.member_id = clients.ask(join_group, join, version=5).member_id
    generation = clients.ask(join_group, join, version=5).generation_id
    given = sync_group.SyncGroupRequestAssignment(join.member_id, b"all of it")
    sync = sync_group.SyncGroupRequest(
        "billing", generation, join.member_id, None, "consumer", "range", [given]
    )
    assert clients.until(lambda: clients.ask(sync_group, sync).error_code) == 0
    member = {"generation_id_or_member_epoch": generation, "member_id": join.member_id}
    assert clients.until(lambda: commit_offset(clients, 5, **member)) == 0
    clients.kill(clients.leader(OFFSETS))
    alive = heartbeat.HeartbeatRequest("billing", generation, join.member_id)
    assert clients.until(lambda: clients.ask(heartbeat, alive).error_code) == 0
    assert clients.found(lambda: clients.offset_of("billing", "orders")) == (5, 0)
    assert clients.until(lambda: commit_offset(clients, 6, **member)) == 0


def test_a_consumer_group_goes_on_after_its_coordinator_died():
    clients = Clients()

    def beat(epoch):
        request = ConsumerGroupHeartbeatRequest("billing", "member-1", epoch)
        request.rebalance_timeout_ms = 30_000
        if epoch == 0:
            request.subscribed_topic_names, request.topic_partitions = ["orders"], []
        return clients.ask(consumer_group_heartbeat, request)

    joined = beat(0)
    assert joined.error_code == 0
    member = {"generation_id_or_member_epoch": joined.member_epoch, "member_id": "member-1"}
    assert clients.until(lambda: commit_offset(clients, 5, **member)) == 0
    clients.kill(clients.leader(OFFSETS))
    assert clients.until(lambda: beat(joined.member_epoch).error_code) == 0
    assert clients.found(lambda: clients.offset_of("billing", "orders")) == (5, 0)
    assert clients.until(lambda: commit_offset(clients, 6, **member)) == 0
