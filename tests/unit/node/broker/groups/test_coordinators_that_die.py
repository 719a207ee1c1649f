"""The broker of a coordinator dies: the next one goes on with what is in the replicated log."""

import pytest

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    add_partitions_to_txn,
    consumer_group_heartbeat,
    end_txn,
    find_coordinator,
    heartbeat,
    join_group,
    offset_commit,
    sync_group,
)
from headrace.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.unit.node.broker.cluster.brokers_by_hand import OFFSETS, STATE, Brokers
from tests.unit.node.broker.rig import WAITS
from tests.unit.node.broker.transactions.transaction_rig import TransactionalProducer


@pytest.fixture
def brokers(tmp_path):
    """Broker 1 coordinates everything, the others have replicas of it; 2 and 3 lead `orders`."""
    brokers = Brokers(tmp_path)
    brokers.create(STATE, (1, 2, 3))
    brokers.create(OFFSETS, (1, 2, 3))
    brokers.create("orders", (2, 3), (3, 2))
    brokers.advance(600)  # fetches that were under way name only what was there before
    return brokers


def die(brokers, number):
    """And the new leaders learn how much of their logs is committed."""
    brokers.die(number)
    brokers.advance(600)


def write(producer, *values):
    if not producer.bumps:
        assert producer.add(("orders", 0), ("orders", 1)) == [0, 0]
    return [producer.send("orders", value, partition=at) for at, value in enumerate(values)]


def committed(brokers):
    return [brokers.committed("orders", partition=index) for index in range(2)]


# --- transactions


@pytest.mark.parametrize("bumps", [True, False], ids=["kip-890", "before"])
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_the_next_coordinator_writes_the_markers_of_a_decision(brokers, bumps, commits):
    producer = brokers.producer(bumps=bumps)
    assert write(producer, "a", "b") == [0, 0]
    hold_markers_back(brokers)
    assert producer.end(commits) == 0
    assert committed(brokers) == [[], []]
    die(brokers, 1)
    brokers.advance(1_000)
    decided = "CompleteCommit" if commits else "CompleteAbort"
    assert brokers.describe("t").transaction_state == decided
    assert committed(brokers) == ([["a"], ["b"]] if commits else [[], []])
    assert write(producer, "c", "d") == [0, 0]
    assert producer.commit() == 0
    brokers.advance(100)
    assert [found[-1] for found in committed(brokers)] == ["c", "d"]


def hold_markers_back(brokers):
    """Broker 1 decides, and dies before a marker has left it."""
    wire = brokers.broker(1).replica_fetching.peers
    ask = wire.ask

    def ask_unless_marker(to, lane, *rest, **how):
        if lane != "transaction-markers":
            ask(to, lane, *rest, **how)

    wire.ask = ask_unless_marker


def test_an_open_transaction_goes_on_with_the_next_coordinator(brokers):
    producer = brokers.producer()
    assert write(producer, "a", "b") == [0, 0]
    die(brokers, 1)
    assert producer.send("orders", "c") == 0
    assert producer.commit() == 0
    brokers.advance(100)
    assert committed(brokers) == [["a", "c"], ["b"]]


def test_one_that_is_left_open_is_aborted_by_the_next_coordinator(brokers):
    producer = brokers.producer(timeout_ms=5_000)
    assert write(producer, "a", "b") == [0, 0]
    die(brokers, 1)
    brokers.advance(16_000)
    assert brokers.describe("t").transaction_state == "CompleteAbort"
    assert producer.commit() == ErrorCode.INVALID_TXN_STATE
    assert committed(brokers) == [[], []]


def test_a_zombie_is_fenced_by_the_next_coordinator_too(brokers):
    zombie = brokers.producer()
    assert write(zombie, "a", "b") == [0, 0]
    die(brokers, 1)
    successor = TransactionalProducer(brokers, "t")
    assert successor.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    brokers.advance(200)
    assert successor.init() == 0
    assert zombie.send("orders", "z") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.commit() == ErrorCode.PRODUCER_FENCED
    assert write(successor, "c", "d") == [0, 0]
    assert successor.commit() == 0
    brokers.advance(100)
    assert committed(brokers) == [["c"], ["d"]]


def test_a_coordinator_that_does_not_know_it_was_deposed_decides_nothing(brokers):
    """It is cut off: what it writes is committed nowhere, and its markers come too late."""
    producer = brokers.producer()
    assert write(producer, "a", "b") == [0, 0]
    brokers.down.add(1)  # hears of no metadata, asks nobody
    session = brokers.rigs[1].connect()
    request = end_txn.EndTxnRequest("t", producer.id, producer.epoch, True)
    assert brokers.ask(end_txn, request, version=5, session=session, to=1) == WAITS
    die(brokers, 1)
    assert producer.abort() == 0
    brokers.advance(200)
    assert committed(brokers) == [[], []]
    brokers.down.clear()
    brokers._tell()
    answer = brokers.rigs[1].answer_on(session, end_txn, 5)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert committed(brokers) == [[], []]


@pytest.mark.parametrize("version", [3, 4], ids=["client", "broker"])
def test_what_is_added_at_a_deposed_coordinator_is_not_taken_for_added(brokers, version):
    """An answer that names no partition would say so: clients look for errors only."""
    producer = brokers.producer(bumps=False)
    brokers.down.add(1)
    session = brokers.rigs[1].connect()
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic("orders", [0])]
    who = "t", producer.id, producer.epoch
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        [add_partitions_to_txn.AddPartitionsToTxnTransaction(*who, False, topics)], *who, topics
    )
    how = {"version": version, "session": session, "to": 1}
    assert brokers.ask(add_partitions_to_txn, request, **how) == WAITS
    die(brokers, 1)
    brokers.down.clear()
    brokers._tell()
    answer = brokers.rigs[1].answer_on(session, add_partitions_to_txn, version)
    results = answer.results_by_topic_v3_and_below
    if version > 3:
        results = answer.results_by_transaction[0].topic_results
    codes = [part.partition_error_code for part in results[0].results_by_partition]
    assert codes == [ErrorCode.NOT_COORDINATOR]


# --- groups


def commit_offset(brokers, group, offset, **membership):
    part = offset_commit.OffsetCommitRequestPartition(0, offset)
    topic = offset_commit.OffsetCommitRequestTopic("orders", partitions=[part])
    request = offset_commit.OffsetCommitRequest(group, topics=[topic], **membership)
    return brokers.ask(offset_commit, request, version=9).topics[0].partitions[0].error_code


def test_a_classic_group_goes_on_with_its_members_and_offsets(brokers):
    subscription = b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"
    protocol = join_group.JoinGroupRequestProtocol("range", subscription)
    request = join_group.JoinGroupRequest(
        "billing", 10_000, 30_000, "", None, "consumer", [protocol]
    )
    request.member_id = brokers.ask(join_group, request, version=5).member_id
    joined = brokers.ask(join_group, request, version=5)
    given = sync_group.SyncGroupRequestAssignment(request.member_id, b"all of it")
    request = sync_group.SyncGroupRequest(
        "billing", joined.generation_id, request.member_id, None, "consumer", "range", [given]
    )
    assert brokers.ask(sync_group, request).error_code == 0
    member = {
        "generation_id_or_member_epoch": joined.generation_id,
        "member_id": request.member_id,
    }
    assert commit_offset(brokers, "billing", 5, **member) == 0
    die(brokers, 1)
    assert brokers.offset_of("billing", "orders") == (5, 0)
    alive = heartbeat.HeartbeatRequest("billing", joined.generation_id, request.member_id)
    assert brokers.ask(heartbeat, alive).error_code == 0, "nobody has to join anew"
    assert commit_offset(brokers, "billing", 6, **member) == 0
    brokers.advance(11_000)
    assert brokers.ask(heartbeat, alive).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_of_the_consumer_protocol_goes_on_with_its_members_and_offsets(brokers):
    def beat(epoch, owned=None):
        request = ConsumerGroupHeartbeatRequest("billing", "member-1", epoch)
        request.rebalance_timeout_ms = 30_000
        if epoch == 0:
            request.subscribed_topic_names, request.topic_partitions = ["orders"], []
        if owned is not None:
            request.topic_partitions = owned
        return brokers.ask(consumer_group_heartbeat, request)

    joined = beat(0)
    assert joined.error_code == 0 and joined.member_epoch > 0
    [assigned] = joined.assignment.topic_partitions
    assert assigned.partitions == [0, 1]
    member = {
        "generation_id_or_member_epoch": joined.member_epoch,
        "member_id": "member-1",
    }
    assert commit_offset(brokers, "billing", 5, **member) == 0
    die(brokers, 1)
    again = beat(joined.member_epoch)
    assert (again.error_code, again.member_epoch) == (0, joined.member_epoch)
    assert brokers.offset_of("billing", "orders") == (5, 0)
    assert commit_offset(brokers, "billing", 6, **member) == 0


def test_every_broker_names_the_same_coordinator(brokers):
    def found(to):
        request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["billing"])
        [answer] = brokers.ask(find_coordinator, request, to=to).coordinators
        return answer.node_id, answer.port, answer.error_code

    assert found(2) == (1, 9_001, 0) and found(3) == (1, 9_001, 0)
    die(brokers, 1)
    assert found(3) == (2, 9_002, 0)
    die(brokers, 2)
    assert found(3)[0] == 3
    brokers.lead(OFFSETS, 0, -1)
    assert found(3) == (-1, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
