"""Transactions with durability `disk`, one flush at a time: what others ask while an end is on its
way, and ends that must not be waited for for ever."""

import pytest

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import delete_topics, describe_transactions, end_txn
from headrace.server.real_disk import RealFile
from tests.unit.broker.bench import PARKED
from tests.unit.broker.transaction_bench import TransactionBench

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FEW = {"transaction_state_log_num_partitions": 1, "offsets_topic_num_partitions": 1}


class Flushes(TransactionBench):
    """Work for the other thread waits until it is told to run."""

    def __init__(self, folder):
        super().__init__(folder, headrace_durability="disk", **FEW)

    def flush(self, number=0):
        """Run one of the flushes that wait; what it lets others do is done too."""
        work, done = self.background[number]
        del self.background[number]
        work()
        done(None)
        self.settle()

    def ask_to_end(self, producer, *, commit=True):
        """The session on which the answer will come."""
        session = self.connect()
        request = end_txn.EndTxnRequest(
            producer.transactional_id, producer.id, producer.epoch, commit
        )
        assert self.ask(end_txn, request, version=5, session=session) == PARKED
        return session

    def ended(self, session, producer):
        """Whether the answer is there; the producer takes what it is given."""
        if not session.outbox:
            return False
        answer = self.answer_on(session, end_txn, 5)
        assert answer.error_code == NONE
        producer.id, producer.epoch = answer.producer_id, answer.producer_epoch
        producer.sequences = {}
        return True


@pytest.fixture
def bench(tmp_path):
    bench = Flushes(tmp_path / "data")
    bench.create("orders")
    return bench


@pytest.mark.parametrize("epoch", [0, 32766], ids=["next epoch", "next id"])
def test_who_goes_on_before_the_markers_are_safe_waits(bench, epoch):
    """The producer speaks as it was told to; the coordinator is not there yet."""
    producer = bench.producer()
    machine = bench.node.broker.transactions.machine_of("t", bench.now)
    machine.transactions["t"].epoch = producer.epoch = epoch
    assert producer.send("orders", "first") == NONE
    bench.flushes_wait = True
    session = bench.ask_to_end(producer)
    bench.flush()
    assert bench.ended(session, producer)
    assert bench.list() == {"t": "PrepareCommit"}
    assert producer.send("orders", "too early") == CONCURRENT
    assert producer.commit_offset("g", "orders", 1) == CONCURRENT
    assert producer.abort() == producer.commit() == CONCURRENT
    assert producer.init(expected=True) == CONCURRENT
    bench.flushes_wait = False
    bench.settle()
    assert producer.send("orders", "second") == NONE
    assert producer.commit() == NONE
    assert bench.committed("orders") == ["first", "second"]


def test_a_state_that_a_power_cut_could_take_back_is_not_described(bench):
    producer = bench.producer()
    producer.send("orders", "x")
    bench.flushes_wait = True
    ending, looking = bench.ask_to_end(producer), bench.connect()
    request = describe_transactions.DescribeTransactionsRequest(["t"])
    assert bench.ask(describe_transactions, request, session=looking) == PARKED
    bench.flush()
    assert bench.ended(ending, producer)
    [found] = bench.answer_on(looking, describe_transactions).transaction_states
    assert found.transaction_state == "PrepareCommit"


def test_a_flush_that_a_refused_write_made_worthless_is_asked_for_again(bench, monkeypatch):
    """The log was read again meanwhile; nobody must wait until somebody writes to it again."""
    other = bench.producer("other")
    producer = bench.producer()
    producer.send("orders", "x")
    bench.flushes_wait = True
    session = bench.ask_to_end(producer)
    with monkeypatch.context() as full:
        full.setattr(RealFile, "append", no_space)
        assert other.send("orders", "refused") == ErrorCode.NOT_ENOUGH_REPLICAS
    bench.flushes_wait = False
    bench.settle()
    assert bench.ended(session, producer)
    assert bench.describe("t").transaction_state == "CompleteCommit"
    assert bench.committed("orders") == ["x"]


def no_space(*_):
    raise OSError(28, "No space left on device")


def test_a_topic_that_is_deleted_is_not_waited_for(bench):
    """Its last flush never comes: the log is closed when it would be asked for."""
    producer = bench.producer()
    producer.send("orders", "x")
    bench.flushes_wait = True
    bench.produce("orders", "plain", acks=1)  # this flush is under way when the marker comes
    session = bench.ask_to_end(producer)
    bench.flush(1)
    assert bench.ended(session, producer)
    request = delete_topics.DeleteTopicsRequest([], ["orders"], 1000)
    bench.ask(delete_topics, request, version=5)
    while len(bench.background) > 1:
        bench.flush(1)
    assert "orders" not in bench.node.broker.topics.by_name
    bench.flushes_wait = False
    bench.settle()
    assert bench.list() == {"t": "CompleteCommit"}


def test_a_late_transaction_in_the_last_epoch_of_clients_waits_for_a_block_of_ids(bench):
    producer = bench.producer(timeout_ms=30_000)
    machine = bench.node.broker.transactions.machine_of("t", bench.now)
    machine.transactions["t"].epoch = producer.epoch = 32766
    assert producer.send("orders", "late") == NONE
    ids = bench.node.broker.producer_ids
    ids._next = ids._end  # all are given out
    bench.advance(50_000)
    assert bench.list() == {"t": "Ongoing"}, "the next block is on its way to the disk"
    bench.advance(50_000)
    assert bench.list() == {"t": "CompleteAbort"}
    before = producer.id
    assert producer.abort() == NONE, "as if its answer were lost"
    assert (producer.id != before, producer.epoch) == (True, 0)
    assert producer.send("orders", "next") == NONE
