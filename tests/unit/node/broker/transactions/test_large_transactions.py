"""Transactions over many partitions end between other requests, and as before."""

import pytest

from headrace.node.broker.coordinators import transaction_markers
from headrace.node.coordination.transaction import machine as transaction_machine
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import end_txn
from tests.unit.node.broker.transactions.transaction_rig import TransactionRig

PARTITIONS = 6


@pytest.fixture
def rig(tmp_path, monkeypatch):
    monkeypatch.setattr(transaction_markers, "MARKERS_AT_ONCE", 3)
    monkeypatch.setattr(transaction_markers, "MARKERS_PER_STEP", 2)
    rig = TransactionRig(tmp_path / "data")
    rig.create("wide", PARTITIONS)
    return rig


@pytest.fixture
def markers(monkeypatch):
    """Partitions in the order in which they get their markers."""
    found = []
    write_marker = transaction_markers.TransactionMarkers._write_marker

    def note(self, ending, leader):
        found.append(leader.index)
        return write_marker(self, ending, leader)

    monkeypatch.setattr(transaction_markers.TransactionMarkers, "_write_marker", note)
    return found


def begun(rig, name="t"):
    producer = rig.producer(name)
    for index in range(PARTITIONS):
        assert producer.send("wide", "a", partition=index) == 0
    return producer


def end_only(rig, producer):
    """The request arrives; the turns are the test's."""
    request = end_txn.EndTxnRequest(producer.transactional_id, producer.id, producer.epoch, True)
    return rig.send(end_txn, request, version=5)


def test_markers_of_many_partitions_are_written_between_other_requests(rig, markers):
    """One EndTxn of 32 bytes over 4,000 partitions held the loop for 0.5 s."""
    session = end_only(rig, begun(rig))
    assert rig.answer_on(session, end_txn).error_code == 0
    assert markers == [], "the decision is recorded, that is the answer"
    rig.until_idle()
    assert markers == list(range(PARTITIONS))
    assert all(rig.committed("wide", partition=index) == ["a"] for index in range(PARTITIONS))
    assert rig.describe("t").transaction_state == "CompleteCommit"


def test_each_turn_writes_some_markers_only(rig, markers):
    end_only(rig, begun(rig))
    for _ in range(20):
        before = len(markers)
        rig.node.work(lambda: True)
        assert len(markers) - before <= 2
    assert len(markers) == PARTITIONS


def test_the_next_transaction_waits_until_all_have_their_markers(rig):
    producer = begun(rig)
    end_only(rig, producer)
    rig.slowly = True
    assert producer.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    rig.slowly = False
    rig.until_idle()
    assert producer.init() == 0


def test_a_topic_that_is_deleted_meanwhile_needs_no_markers(rig, markers):
    end_only(rig, begun(rig))
    rig.node.work(lambda: True)
    rig.delete("wide")
    rig.until_idle()
    assert rig.describe("t").transaction_state == "CompleteCommit"


def test_transactions_whose_time_is_over_are_aborted_a_few_at_each_look(rig, monkeypatch):
    """Five of 4,000 partitions that timed out together held the loop for 1.8 s."""
    monkeypatch.setattr(transaction_machine, "PARTITIONS_AT_ONCE", PARTITIONS)
    for name in ("t1", "t2", "t3"):
        begun(rig, name)
    [machines] = [list(rig.node.broker.transactions.machines(rig.now))]
    appended = []
    rig.now.monotonic_ms += 100_000
    rig.now.wall_ms += 100_000
    for shard in rig.node.broker.transactions.shards.values():
        for _ in range(20):
            due_ms = shard.machine.next_due_ms
            if due_ms is None or not shard.machine._ongoing:
                break
            before = len(shard.machine._ongoing)
            rig.now.monotonic_ms = max(rig.now.monotonic_ms, due_ms)
            shard.run_due(rig.now)
            appended.append(before - len(shard.machine._ongoing))
    assert appended.count(1) == 3 and max(appended) == 1
    assert not any(machine._ongoing for machine in machines)
    rig.advance(1_000)
    assert all(rig.committed("wide", partition=index) == [] for index in range(PARTITIONS))


def test_ids_expire_some_at_each_look(rig, monkeypatch):
    monkeypatch.setattr(transaction_machine, "PARTITIONS_AT_ONCE", 2)
    for number in range(9):
        producer = rig.producer(f"id-{number}")
        producer.send("wide", "a")
        assert producer.commit() == 0
    rig.now.wall_ms += 8 * 24 * 3600 * 1000
    for shard in rig.node.broker.transactions.shards.values():
        for _ in range(20):
            if not shard.machine.transactions:
                break
            before = len(shard.machine.transactions)
            rig.now.monotonic_ms = max(rig.now.monotonic_ms, shard.machine.next_due_ms)
            shard.run_due(rig.now)
            assert before - len(shard.machine.transactions) in (0, 1, 2)
    assert rig.list(duration_filter=-1) == {}
