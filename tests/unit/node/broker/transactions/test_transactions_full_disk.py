"""A disk that is full for a while, at any write of a transaction: when there is room again all ends
as it was decided, without a restart, and meanwhile nobody is cut off who has lost nothing."""

import pytest

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import init_producer_id, produce
from tests.effort import every
from tests.unit.node.broker.folders.filling_disk import make_room_for_rigs
from tests.unit.node.broker.rig import CutOff, build
from tests.unit.node.broker.transactions.transaction_rig import (
    TransactionalProducer,
    TransactionRig,
)

NONE = ErrorCode.NONE
FEW = {"transaction_state_log_num_partitions": 1, "offsets_topic_num_partitions": 1}


class FillingRig(TransactionRig):
    def patiently(self, step):
        """As clients do it: again, for as long as the refusal may pass."""
        for _ in range(30):
            try:
                code = step()
            except CutOff:
                code = ErrorCode.NETWORK_EXCEPTION
            if code == NONE:
                return
            assert ErrorCode(code).retriable, ErrorCode(code)
            self.advance(1_000)
        raise AssertionError("it is never taken")


@pytest.fixture
def room(monkeypatch):
    return make_room_for_rigs(monkeypatch)


def new_rig(folder):
    rig = FillingRig(folder, **FEW)
    rig.create("orders", 2)
    rig.create("input")
    return rig


def run(rig, *, commit, bumps):
    """Two transactions over two partitions and a group's offsets; the first is committed."""
    producer = TransactionalProducer(rig, "t", bumps=bumps)
    rig.patiently(producer.init)
    for number in (1, 2):
        if not bumps:
            rig.patiently(lambda: max(producer.add(("orders", 0), ("orders", 1))))
            rig.patiently(lambda: producer.add_offsets("g"))
        for partition in (0, 1):
            rig.patiently(
                lambda n=number, p=partition: producer.send("orders", f"{n}{'ab'[p]}", partition=p)
            )
        rig.patiently(lambda n=number: producer.commit_offset("g", "input", n))
        rig.patiently(lambda n=number: producer.end(True if n == 1 else commit))


def seen(rig):
    return (
        rig.list(),
        rig.committed("orders"),
        rig.committed("orders", partition=1),
        rig.offset_of("g", "input", require_stable=True),
    )


@pytest.mark.parametrize("bumps", [True, False], ids=["since KIP-890", "before KIP-890"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_full_at_any_write_and_for_some_time(tmp_path, room, commit, bumps):
    if commit:
        expected = {"t": "CompleteCommit"}, ["1a", "2a"], ["1b", "2b"], (2, NONE)
    else:
        expected = {"t": "CompleteAbort"}, ["1a"], ["1b"], (1, NONE)
    for first in range((2 * commit + bumps) % every(3), 60, every(3)):
        room.refuses, room.asked, room.refused = (lambda path: False), 0, 0
        folder = tmp_path / str(first)
        rig = new_rig(folder)
        rig.producer("another")  # a block of producer ids is there
        before = room.asked
        room.refuses = lambda path, n=first, b=before: n <= room.asked - b - 1 < n + 3
        run(rig, commit=commit, bumps=bumps)
        for _ in range(3):
            rig.advance(10_000)
        was_full, room.refuses = room.refused, lambda path: False
        found = seen(rig)
        assert (found[0].pop("another"), *found) == ("Empty", *expected), f"from write {first} on"
        rig.produce("orders", "after")
        assert rig.committed("orders")[-1] == "after"
        again = seen(FillingRig(folder, **FEW))
        assert again[1][:-1] == expected[1] and again[3] == expected[3]
        if not was_full:
            break
    assert first > 15 and not was_full, "the story has more writes than were tried"


def test_markers_that_find_no_room_cut_nobody_off_and_are_not_tried_all_the_time(tmp_path, room):
    rig = new_rig(tmp_path)
    producer = rig.producer()
    for partition in (0, 1):
        assert producer.send("orders", "x", partition=partition) == NONE
    room.refuses = lambda path: "/orders-0/" in path
    assert producer.commit() == NONE
    for _ in range(100):
        rig.advance(100)  # the coordinators look each time
        assert rig.list() == {"t": "PrepareCommit"}
    assert room.refused < 10
    assert rig.committed("orders", partition=1) == ["x"]
    assert rig.produce("input", "others go on").error_code == NONE
    room.refuses = lambda path: False
    rig.advance(10_000)
    assert rig.list() == {"t": "CompleteCommit"}
    assert rig.committed("orders") == ["x"]


def test_an_end_that_cannot_be_recorded_writes_no_more_markers(tmp_path, room):
    rig = new_rig(tmp_path)
    producer = rig.producer()
    assert producer.send("orders", "x") == NONE
    decided = room.asked + 1
    room.refuses = lambda path: "/__transaction_state" in path and room.asked > decided
    assert producer.commit() == NONE
    for _ in range(20):
        rig.advance(1_000)
    assert rig.list() == {"t": "PrepareCommit"}
    assert rig.end_offset("orders") == 2
    assert producer.send("orders", "next") == ErrorCode.CONCURRENT_TRANSACTIONS
    room.refuses = lambda path: False
    rig.advance(10_000)
    assert rig.list() == {"t": "CompleteCommit"}
    assert rig.end_offset("orders") == 2
    assert producer.send("orders", "next") == NONE


def test_who_has_no_room_for_a_transaction_cuts_nobody_off(tmp_path, room):
    rig = new_rig(tmp_path)
    producer = rig.producer()
    room.refuses = lambda path: "/__transaction_state" in path
    assert producer.send("orders", "x") == ErrorCode.NOT_ENOUGH_REPLICAS
    assert rig.committed("orders") == []
    room.refuses = lambda path: False
    assert producer.send("orders", "x") == NONE


def test_records_that_are_lost_with_a_marker_are_not_acknowledged(tmp_path, room):
    """They were gathered in the same turn and would have been written with it."""
    rig = new_rig(tmp_path)
    producer = rig.producer()
    producer.send("orders", "x")
    part = produce.PartitionProduceData(0, build(["plain"], rig.now.wall_ms))
    request = produce.ProduceRequest(
        None, -1, 1_000, [produce.TopicProduceData("orders", bytes(16), [part])]
    )
    session = rig.send(produce, request, version=12)
    room.refuses = lambda path: "/orders-0/" in path
    assert producer.commit() == NONE
    [answer] = rig.answer_on(session, produce, 12).responses[0].partition_responses
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    room.refuses = lambda path: False
    rig.advance(10_000)
    assert rig.committed("orders") == ["x"]


def test_offsets_that_were_lost_do_not_come_back_with_a_marker(tmp_path, room):
    """The log is as long as before, but with the marker where the lost commit was."""
    rig = new_rig(tmp_path)
    producer = rig.producer()
    assert producer.commit_offset("g", "input", 7) == NONE
    outsider = rig.producer("outsider")
    room.refuses = lambda path: "/__consumer_offsets" in path
    with pytest.raises(CutOff):
        outsider.commit_offset("h", "input", 5)
    room.refuses = lambda path: False
    assert producer.commit() == NONE
    assert rig.offset_of("g", "input", require_stable=True) == (7, NONE)
    assert rig.offset_of("h", "input", require_stable=True) == (-1, NONE)
    assert outsider.commit() == NONE
    assert rig.offset_of("h", "input", require_stable=True) == (-1, NONE)


def test_without_room_for_a_block_of_producer_ids_clients_come_again(tmp_path, room):
    rig = new_rig(tmp_path)
    room.refuses = lambda path: "/__cluster_metadata" in path
    idempotent = init_producer_id.InitProducerIdRequest(None, 60_000)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert rig.ask(init_producer_id, idempotent).error_code == loading
    producer = TransactionalProducer(rig, "t")
    assert producer.init() == loading
    room.refuses = lambda path: False
    assert rig.ask(init_producer_id, idempotent).error_code == NONE
    assert producer.init() == NONE


def test_a_forgotten_transaction_is_aborted_when_there_is_room(tmp_path, room):
    rig = new_rig(tmp_path)
    producer = rig.producer(timeout_ms=10_000)
    assert producer.send("orders", "forgotten") == NONE
    room.refuses = lambda path: "/__transaction_state" in path
    for _ in range(400):
        rig.advance(100)
    assert rig.list() == {"t": "Ongoing"}
    assert 10 < room.refused < 40
    room.refuses = lambda path: False
    for _ in range(20):
        rig.advance(100)
    assert rig.list() == {"t": "CompleteAbort"}
    assert rig.committed("orders") == []
