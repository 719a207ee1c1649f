"""A disk that is full for a while, at any write of a transaction: when there is room again all ends
as it was decided, without a restart, and meanwhile nobody is cut off who has lost nothing."""

import pytest

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import init_producer_id, produce
from tests.unit.broker.bench import CutOff, build
from tests.unit.broker.filling_disk import make_room_for_benches
from tests.unit.broker.transaction_bench import TransactionalProducer, TransactionBench

NONE = ErrorCode.NONE
FEW = {"transaction_state_log_num_partitions": 1, "offsets_topic_num_partitions": 1}


class FillingBench(TransactionBench):
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
    return make_room_for_benches(monkeypatch)


def new_bench(folder):
    bench = FillingBench(folder, **FEW)
    bench.create("orders", 2)
    bench.create("input")
    return bench


def run(bench, *, commit, bumps):
    """Two transactions over two partitions and a group's offsets; the first is committed."""
    producer = TransactionalProducer(bench, "t", bumps=bumps)
    bench.patiently(producer.init)
    for number in (1, 2):
        if not bumps:
            bench.patiently(lambda: max(producer.add(("orders", 0), ("orders", 1))))
            bench.patiently(lambda: producer.add_offsets("g"))
        for partition in (0, 1):
            bench.patiently(
                lambda n=number, p=partition: producer.send("orders", f"{n}{'ab'[p]}", partition=p)
            )
        bench.patiently(lambda n=number: producer.commit_offset("g", "input", n))
        bench.patiently(lambda n=number: producer.end(True if n == 1 else commit))


def seen(bench):
    return (
        bench.list(),
        bench.committed("orders"),
        bench.committed("orders", partition=1),
        bench.offset_of("g", "input", require_stable=True),
    )


@pytest.mark.parametrize("bumps", [True, False], ids=["since KIP-890", "before KIP-890"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_full_at_any_write_and_for_some_time(tmp_path, room, commit, bumps):
    if commit:
        expected = {"t": "CompleteCommit"}, ["1a", "2a"], ["1b", "2b"], (2, NONE)
    else:
        expected = {"t": "CompleteAbort"}, ["1a"], ["1b"], (1, NONE)
    for first in range(60):
        room.refuses, room.asked, room.refused = (lambda path: False), 0, 0
        folder = tmp_path / str(first)
        bench = new_bench(folder)
        bench.producer("another")  # a block of producer ids is there
        before = room.asked
        room.refuses = lambda path, n=first, b=before: n <= room.asked - b - 1 < n + 3
        run(bench, commit=commit, bumps=bumps)
        for _ in range(3):
            bench.advance(10_000)
        was_full, room.refuses = room.refused, lambda path: False
        found = seen(bench)
        assert (found[0].pop("another"), *found) == ("Empty", *expected), f"from write {first} on"
        bench.produce("orders", "after")
        assert bench.committed("orders")[-1] == "after"
        again = seen(FillingBench(folder, **FEW))
        assert again[1][:-1] == expected[1] and again[3] == expected[3]
        if not was_full:
            break
    assert first > 15 and not was_full, "the story has more writes than were tried"


def test_markers_that_find_no_room_cut_nobody_off_and_are_not_tried_all_the_time(tmp_path, room):
    bench = new_bench(tmp_path)
    producer = bench.producer()
    for partition in (0, 1):
        assert producer.send("orders", "x", partition=partition) == NONE
    room.refuses = lambda path: "/orders-0/" in path
    assert producer.commit() == NONE
    for _ in range(100):
        bench.advance(100)  # the coordinators look each time
        assert bench.list() == {"t": "PrepareCommit"}
    assert room.refused < 10
    assert bench.committed("orders", partition=1) == ["x"]
    assert bench.produce("input", "others go on").error_code == NONE
    room.refuses = lambda path: False
    bench.advance(10_000)
    assert bench.list() == {"t": "CompleteCommit"}
    assert bench.committed("orders") == ["x"]


def test_an_end_that_cannot_be_recorded_writes_no_more_markers(tmp_path, room):
    bench = new_bench(tmp_path)
    producer = bench.producer()
    assert producer.send("orders", "x") == NONE
    decided = room.asked + 1
    room.refuses = lambda path: "/__transaction_state" in path and room.asked > decided
    assert producer.commit() == NONE
    for _ in range(20):
        bench.advance(1_000)
    assert bench.list() == {"t": "PrepareCommit"}
    assert bench.end_offset("orders") == 2
    assert producer.send("orders", "next") == ErrorCode.CONCURRENT_TRANSACTIONS
    room.refuses = lambda path: False
    bench.advance(10_000)
    assert bench.list() == {"t": "CompleteCommit"}
    assert bench.end_offset("orders") == 2
    assert producer.send("orders", "next") == NONE


def test_who_has_no_room_for_a_transaction_cuts_nobody_off(tmp_path, room):
    bench = new_bench(tmp_path)
    producer = bench.producer()
    room.refuses = lambda path: "/__transaction_state" in path
    assert producer.send("orders", "x") == ErrorCode.NOT_ENOUGH_REPLICAS
    assert bench.committed("orders") == []
    room.refuses = lambda path: False
    assert producer.send("orders", "x") == NONE


def test_records_that_are_lost_with_a_marker_are_not_acknowledged(tmp_path, room):
    """They were gathered in the same turn and would have been written with it."""
    bench = new_bench(tmp_path)
    producer = bench.producer()
    producer.send("orders", "x")
    part = produce.PartitionProduceData(0, build(["plain"], bench.now.wall_ms))
    request = produce.ProduceRequest(
        None, -1, 1_000, [produce.TopicProduceData("orders", bytes(16), [part])]
    )
    session = bench.send(produce, request, version=12)
    room.refuses = lambda path: "/orders-0/" in path
    assert producer.commit() == NONE
    [answer] = bench.answer_on(session, produce, 12).responses[0].partition_responses
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    room.refuses = lambda path: False
    bench.advance(10_000)
    assert bench.committed("orders") == ["x"]


def test_offsets_that_were_lost_do_not_come_back_with_a_marker(tmp_path, room):
    """The log is as long as before, but with the marker where the lost commit was."""
    bench = new_bench(tmp_path)
    producer = bench.producer()
    assert producer.commit_offset("g", "input", 7) == NONE
    outsider = bench.producer("outsider")
    room.refuses = lambda path: "/__consumer_offsets" in path
    with pytest.raises(CutOff):
        outsider.commit_offset("h", "input", 5)
    room.refuses = lambda path: False
    assert producer.commit() == NONE
    assert bench.offset_of("g", "input", require_stable=True) == (7, NONE)
    assert bench.offset_of("h", "input", require_stable=True) == (-1, NONE)
    assert outsider.commit() == NONE
    assert bench.offset_of("h", "input", require_stable=True) == (-1, NONE)


def test_without_room_for_a_block_of_producer_ids_clients_come_again(tmp_path, room):
    bench = new_bench(tmp_path)
    room.refuses = lambda path: "/__cluster_metadata" in path
    idempotent = init_producer_id.InitProducerIdRequest(None, 60_000)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.ask(init_producer_id, idempotent).error_code == loading
    producer = TransactionalProducer(bench, "t")
    assert producer.init() == loading
    room.refuses = lambda path: False
    assert bench.ask(init_producer_id, idempotent).error_code == NONE
    assert producer.init() == NONE


def test_a_forgotten_transaction_is_aborted_when_there_is_room(tmp_path, room):
    bench = new_bench(tmp_path)
    producer = bench.producer(timeout_ms=10_000)
    assert producer.send("orders", "forgotten") == NONE
    room.refuses = lambda path: "/__transaction_state" in path
    for _ in range(400):
        bench.advance(100)
    assert bench.list() == {"t": "Ongoing"}
    assert 10 < room.refused < 40
    room.refuses = lambda path: False
    for _ in range(20):
        bench.advance(100)
    assert bench.list() == {"t": "CompleteAbort"}
    assert bench.committed("orders") == []
