"""Refusals around transactions that a producer must be able to live with, or to tell apart."""

import pytest

from headrace.protocol.errors import ErrorCode
from tests.unit.broker.transaction_bench import TransactionBench

E = ErrorCode


@pytest.fixture
def bench(tmp_path):
    bench = TransactionBench(tmp_path / "data")
    bench.create("orders", 2)
    return bench


@pytest.mark.parametrize("bumps", [False, True])
def test_a_producer_whose_time_was_up_goes_on_by_its_old_epoch(bench, bumps):
    """It asks for the next epoch by the one it knows, as clients do after TRANSACTION_ABORTABLE or
    a timeout (KIP-360, KIP-588), and gets the same answer as often as it asks."""
    producer = bench.producer(bumps=bumps, timeout_ms=1_000)
    if not bumps:
        producer.add(("orders", 0))
    producer.send("orders", "forgotten")
    known = producer.id, producer.epoch
    bench.advance(20_000)
    assert bench.describe("t").transaction_state == "CompleteAbort"
    for _ in range(2):
        producer.id, producer.epoch = known
        assert producer.init(expected=True) == E.NONE
        assert (producer.id, producer.epoch) == (known[0], known[1] + 1)
    if not bumps:
        assert producer.add(("orders", 0)) == [E.NONE]
    producer.send("orders", "goes on")
    assert producer.end(commit=True) == E.NONE
    assert bench.committed("orders") == ["goes on"]


def test_who_comes_after_another_has_taken_its_place_stays_out(bench):
    old = bench.producer()
    old.send("orders", "old")
    new = type(old)(bench, "t")
    while new.init() == E.CONCURRENT_TRANSACTIONS:
        bench.settle()
    assert old.init(expected=True) == E.PRODUCER_FENCED
    new.send("orders", "new")
    assert new.end(commit=True) == E.NONE and bench.committed("orders") == ["new"]


def test_a_marker_of_no_producer_is_refused(bench):
    assert bench.write_marker("orders", -1, 0) == E.INVALID_REQUEST
    assert bench.end_offset("orders") == 0, "nothing was written"


def test_what_follows_a_refused_record_is_not_taken_in_its_place(bench):
    """An older client has sent two batches when it hears that the first one was refused."""
    producer = bench.producer(bumps=False)
    assert producer.send("orders", "first", sequence=3) == E.INVALID_TXN_STATE, "not added yet"
    producer.add(("orders", 0))
    assert producer.send("orders", "second", sequence=4) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send("orders", "first", sequence=3) == E.NONE
    assert producer.send("orders", "second", sequence=4) == E.NONE
    assert producer.end(commit=True) == E.NONE
    assert bench.committed("orders") == ["first", "second"]


def test_a_refused_record_of_an_older_epoch_is_nothing_to_wait_for(bench):
    producer = bench.producer(bumps=False)
    producer.send("orders", "refused", sequence=3)
    assert producer.init() == E.NONE
    producer.add(("orders", 0))
    assert producer.send("orders", "next", sequence=4) == E.NONE
