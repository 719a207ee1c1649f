"""A transaction whose partitions, coordinator and group live on different brokers."""

import pytest

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import produce, write_txn_markers
from tests.unit.node.broker.cluster.brokers_by_hand import OFFSETS, STATE, Brokers
from tests.unit.node.broker.rig import WAITS
from tests.unit.node.broker.transactions.transaction_rig import TransactionalProducer

GENERATIONS = pytest.mark.parametrize("bumps", [True, False], ids=["kip-890", "before"])


@pytest.fixture
def brokers(tmp_path):
    """Broker 1 coordinates the transactions, 2 the groups; `orders` has a leader on each."""
    brokers = Brokers(tmp_path)
    brokers.create(STATE, (1,))
    brokers.create(OFFSETS, (2,))
    brokers.create("orders", (1,), (2,), (3,))
    return brokers


def write(producer, *values, partitions=(0, 1, 2)):
    """One value to each partition; the codes."""
    if not producer.bumps:
        producer.add(*[("orders", index) for index in partitions])
    return [
        producer.send("orders", value, partition=index)
        for value, index in zip(values, partitions, strict=True)
    ]


def committed(brokers):
    return [brokers.committed("orders", partition=index) for index in range(3)]


@GENERATIONS
def test_a_transaction_commits_on_three_brokers(brokers, bumps):
    producer = brokers.producer(bumps=bumps)
    assert write(producer, "a", "b", "c") == [0, 0, 0]
    assert committed(brokers) == [[], [], []]
    assert producer.commit() == 0
    assert committed(brokers) == [["a"], ["b"], ["c"]]
    assert brokers.describe("t").transaction_state == "CompleteCommit"
    assert write(producer, "d", "e", "f") == [0, 0, 0]
    assert producer.abort() == 0
    assert brokers.describe("t").transaction_state == "CompleteAbort"
    assert write(producer, "g", "h", "i") == [0, 0, 0]
    assert producer.commit() == 0
    assert committed(brokers) == [["a", "g"], ["b", "h"], ["c", "i"]]


def test_a_transaction_is_complete_when_the_last_broker_has_its_marker(brokers):
    producer = brokers.producer()
    assert write(producer, "a", "b", "c") == [0, 0, 0]
    brokers.down.add(2)
    assert producer.commit() == 0
    assert brokers.describe("t").transaction_state == "PrepareCommit"
    brokers.down.clear()
    assert committed(brokers) == [["a"], [], ["c"]], "the others' readers do not wait"
    brokers.advance(300)
    assert committed(brokers) == [["a"], ["b"], ["c"]]
    assert brokers.describe("t").transaction_state == "CompleteCommit"


def test_a_marker_goes_to_whoever_leads_when_it_is_sent_again(tmp_path):
    brokers = Brokers(tmp_path)
    brokers.create(STATE, (1,))
    brokers.create("orders", (2, 3))
    producer = brokers.producer()
    assert producer.send("orders", "a") == 0
    brokers.stopped.add(2)
    assert producer.commit() == 0
    assert brokers.describe("t").transaction_state == "PrepareCommit"
    brokers.die(2, silently=True)
    brokers.advance(1_000)
    assert brokers.describe("t").transaction_state == "CompleteCommit"
    assert brokers.committed("orders") == ["a"]


def test_a_topic_that_is_deleted_meanwhile_needs_no_marker(brokers):
    brokers.create("short-lived", (3,))
    producer = brokers.producer()
    assert write(producer, "a", "b", partitions=(0, 1)) == [0, 0]
    assert producer.send("short-lived", "x") == 0
    brokers.down.add(3)
    assert producer.commit() == 0
    assert brokers.describe("t").transaction_state == "PrepareCommit"
    brokers.down.clear()
    brokers.delete("short-lived")
    brokers.advance(300)
    assert brokers.describe("t").transaction_state == "CompleteCommit"


def test_a_marker_that_its_replicas_do_not_take_in_time_is_told_so(tmp_path):
    brokers = Brokers(tmp_path, count=2)
    brokers.create(STATE, (1,))
    brokers.create("orders", (2, 3))  # there is no broker 3: nothing is ever committed
    marker = write_txn_markers.WritableTxnMarker(
        7, 0, True, [write_txn_markers.WritableTxnMarkerTopic("orders", [0])], 0, 0
    )
    request = write_txn_markers.WriteTxnMarkersRequest([marker])
    session = brokers.rigs[2].connect()
    assert brokers.ask(write_txn_markers, request, to=2, session=session) == WAITS
    brokers.advance(30_000)
    answer = brokers.rigs[2].answer_on(session, write_txn_markers)
    [part] = answer.markers[0].topics[0].partitions
    assert part.error_code == ErrorCode.REQUEST_TIMED_OUT


# --- admission by a coordinator elsewhere


def test_a_partition_elsewhere_asks_whether_the_transaction_knows_it(brokers):
    producer = brokers.producer(bumps=False)
    assert producer.send("orders", "a", partition=1) == ErrorCode.INVALID_TXN_STATE
    assert producer.send("orders", "a", partition=1, version=11) == ErrorCode.TRANSACTION_ABORTABLE
    assert producer.add(("orders", 1)) == [0]
    assert producer.send("orders", "a", partition=1) == 0
    assert producer.send("orders", "b", partition=1) == 0, "and asks once"


def test_without_its_coordinator_a_partition_takes_no_transaction(brokers):
    producer = brokers.producer()
    brokers.down.add(1)
    assert producer.send("orders", "a", partition=1) == ErrorCode.NOT_ENOUGH_REPLICAS
    brokers.down.clear()
    assert producer.send("orders", "a", partition=1) == 0
    assert producer.commit() == 0
    assert brokers.committed("orders", partition=1) == ["a"]


def test_a_coordinator_that_does_not_answer_is_not_waited_for_when_it_is_fenced(brokers):
    producer = brokers.producer()
    brokers.stopped.add(1)
    session = brokers.rigs[2].connect()
    assert producer.send("orders", "a", partition=1, session=session) == WAITS
    brokers.die(1, silently=True)
    brokers.advance(200)
    answer = brokers.rigs[2].answer_on(session, produce, 12)
    code = answer.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_zombie_is_refused_by_partitions_elsewhere(brokers):
    zombie = brokers.producer()
    assert zombie.send("orders", "a", partition=1) == 0
    successor = TransactionalProducer(brokers, "t")
    assert successor.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    brokers.advance(100)
    assert successor.init() == 0
    assert zombie.send("orders", "b", partition=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.send("orders", "b", partition=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert successor.send("orders", "c", partition=1) == 0
    assert successor.commit() == 0
    assert brokers.committed("orders", partition=1) == ["c"]


def test_a_record_is_refused_when_its_transaction_ends_while_the_coordinator_answers(brokers):
    """Else it would stand in the log as a transaction that nobody ends."""
    producer = brokers.producer(bumps=False, timeout_ms=1_000)
    assert producer.add(("orders", 1)) == [0]
    brokers.mute.add(1)  # says yes, and the answer is long on its way
    session = brokers.rigs[2].connect()
    assert producer.send("orders", "late", partition=1, session=session) == WAITS
    marker = write_txn_markers.WritableTxnMarker(
        producer.id,
        producer.epoch,
        False,
        [write_txn_markers.WritableTxnMarkerTopic("orders", [1])],
        0,
        0,
    )
    request = write_txn_markers.WriteTxnMarkersRequest([marker])
    answer = brokers.ask(write_txn_markers, request, to=2)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0
    brokers.mute.clear()
    brokers.until_idle()
    answer = brokers.rigs[2].answer_on(session, produce, 10)
    code = answer.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.INVALID_TXN_STATE
    log = brokers.broker(2).topics.by_name["orders"].replicas[1].log
    assert not log.producers.open_transactions


# --- offsets of a group that another broker keeps


@GENERATIONS
def test_offsets_of_a_group_elsewhere_count_when_the_transaction_commits(brokers, bumps):
    producer = brokers.producer(bumps=bumps)
    for commits, offset in ((True, 5), (False, 6), (True, 7)):
        if not bumps:
            assert producer.add_offsets("billing") == 0
        before = brokers.offset_of("billing", "orders")
        assert producer.commit_offset("billing", "orders", offset) == 0
        assert brokers.offset_of("billing", "orders") == before
        unstable = brokers.offset_of("billing", "orders", require_stable=True)
        assert unstable == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert producer.end(commits) == 0
        expected = (offset, 0) if commits else before
        assert brokers.offset_of("billing", "orders", require_stable=True) == expected


def test_offsets_are_refused_without_the_coordinator_of_their_transaction(brokers):
    producer = brokers.producer()
    brokers.down.add(1)
    refused = producer.commit_offset("billing", "orders", 5)
    assert refused == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    brokers.down.clear()
    assert producer.commit_offset("billing", "orders", 5) == 0
