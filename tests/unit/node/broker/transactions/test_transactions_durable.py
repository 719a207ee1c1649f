"""Transactions with durability `disk`, one flush at a time: what others ask while an end is on its
way, and ends that must not be waited for for ever."""

import pytest

from headrace.node.process.folders.real_disk import RealFile
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import delete_topics, describe_transactions, end_txn
from tests.unit.node.broker.rig import WAITS
from tests.unit.node.broker.transactions.transaction_rig import TransactionRig

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FEW = {"transaction_state_log_num_partitions": 1, "offsets_topic_num_partitions": 1}


class Flushes(TransactionRig):
    """Work for the other thread waits until it is told to run."""

    def __init__(self, folder):
        super().__init__(folder, headrace_durability="disk", **FEW)

    def flush(self, number=0):
        """Run one of the flushes that wait; what it lets others do is done too."""
        work, done = self.background[number]
        del self.background[number]
        work()
        done(None)
        self.until_idle()

    def ask_to_end(self, producer, *, commit=True):
        """The session on which the answer will come."""
        session = self.connect()
        request = end_txn.EndTxnRequest(
            producer.transactional_id, producer.id, producer.epoch, commit
        )
        assert self.ask(end_txn, request, version=5, session=session) == WAITS
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
def rig(tmp_path):
    rig = Flushes(tmp_path / "data")
    rig.create("orders")
    return rig


@pytest.mark.parametrize("epoch", [0, 32766], ids=["next epoch", "next id"])
def test_who_goes_on_before_the_markers_are_safe_waits(rig, epoch):
    """The producer speaks as it was told to; the coordinator is not there yet."""
    producer = rig.producer()
    machine = rig.node.broker.transactions.machine_of("t", rig.now)
    machine.transactions["t"].epoch = producer.epoch = epoch
    assert producer.send("orders", "first") == NONE
    rig.flushes_wait = True
    session = rig.ask_to_end(producer)
    rig.flush()
    assert rig.ended(session, producer)
    assert rig.list() == {"t": "PrepareCommit"}
    assert producer.send("orders", "too early") == CONCURRENT
    assert producer.commit_offset("g", "orders", 1) == CONCURRENT
    assert producer.abort() == producer.commit() == CONCURRENT
    assert producer.init(expected=True) == CONCURRENT
    rig.flushes_wait = False
    rig.until_idle()
    assert producer.send("orders", "second") == NONE
    assert producer.commit() == NONE
    assert rig.committed("orders") == ["first", "second"]


def test_a_state_that_a_power_cut_could_take_back_is_not_described(rig):
    producer = rig.producer()
    producer.send("orders", "x")
    rig.flushes_wait = True
    ending, looking = rig.ask_to_end(producer), rig.connect()
    request = describe_transactions.DescribeTransactionsRequest(["t"])
    assert rig.ask(describe_transactions, request, session=looking) == WAITS
    rig.flush()
    assert rig.ended(ending, producer)
    [found] = rig.answer_on(looking, describe_transactions).transaction_states
    assert found.transaction_state == "PrepareCommit"


def test_a_flush_that_a_refused_write_made_worthless_is_asked_for_again(rig, monkeypatch):
    """The log was read again meanwhile; nobody must wait until somebody writes to it again."""
    other = rig.producer("other")
    producer = rig.producer()
    producer.send("orders", "x")
    rig.flushes_wait = True
    session = rig.ask_to_end(producer)
    with monkeypatch.context() as full:
        full.setattr(RealFile, "append", no_space)
        assert other.send("orders", "refused") == ErrorCode.NOT_ENOUGH_REPLICAS
    rig.flushes_wait = False
    rig.until_idle()
    assert rig.ended(session, producer)
    assert rig.describe("t").transaction_state == "CompleteCommit"
    assert rig.committed("orders") == ["x"]


def no_space(*_):
    raise OSError(28, "No space left on device")


def test_a_topic_that_is_deleted_is_not_waited_for(rig):
    """Its last flush never comes: the log is closed when it would be asked for."""
    producer = rig.producer()
    producer.send("orders", "x")
    rig.flushes_wait = True
    rig.produce("orders", "plain", acks=1)  # this flush is under way when the marker comes
    session = rig.ask_to_end(producer)
    rig.flush(1)
    assert rig.ended(session, producer)
    request = delete_topics.DeleteTopicsRequest([], ["orders"], 1000)
    rig.ask(delete_topics, request, version=5)
    while len(rig.background) > 1:
        rig.flush(1)
    assert "orders" not in rig.node.broker.topics.by_name
    rig.flushes_wait = False
    rig.until_idle()
    assert rig.list() == {"t": "CompleteCommit"}


def test_a_late_transaction_in_the_last_epoch_of_clients_waits_for_a_block_of_ids(rig):
    producer = rig.producer(timeout_ms=30_000)
    machine = rig.node.broker.transactions.machine_of("t", rig.now)
    machine.transactions["t"].epoch = producer.epoch = 32766
    assert producer.send("orders", "late") == NONE
    ids = rig.node.broker.producer_ids
    ids._next = ids._end  # all are given out
    rig.advance(50_000)
    assert rig.list() == {"t": "Ongoing"}, "the next block is on its way to the disk"
    rig.advance(50_000)
    assert rig.list() == {"t": "CompleteAbort"}
    before = producer.id
    assert producer.abort() == NONE, "as if its answer were lost"
    assert (producer.id != before, producer.epoch) == (True, 0)
    assert producer.send("orders", "next") == NONE
