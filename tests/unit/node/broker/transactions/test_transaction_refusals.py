"""Refusals around transactions that a producer must be able to live with, or to tell apart."""

import pytest

from headrace.wire.protocol.errors import ErrorCode
from tests.unit.node.broker.transactions.transaction_rig import TransactionRig

E = ErrorCode


@pytest.fixture
def rig(tmp_path):
    rig = TransactionRig(tmp_path / "data")
    rig.create("orders", 2)
    return rig


@pytest.mark.parametrize("bumps", [False, True])
def test_a_producer_whose_time_was_up_goes_on_by_its_old_epoch(rig, bumps):
    """It asks for the next epoch by the one it knows, as clients do after TRANSACTION_ABORTABLE or
    a timeout (KIP-360, KIP-588), and gets the same answer as often as it asks."""
    producer = rig.producer(bumps=bumps, timeout_ms=1_000)
    if not bumps:
        producer.add(("orders", 0))
    producer.send("orders", "forgotten")
    known = producer.id, producer.epoch
    rig.advance(20_000)
    assert rig.describe("t").transaction_state == "CompleteAbort"
    for _ in range(2):
        producer.id, producer.epoch = known
        assert producer.init(expected=True) == E.NONE
        assert (producer.id, producer.epoch) == (known[0], known[1] + 1)
    if not bumps:
        assert producer.add(("orders", 0)) == [E.NONE]
    producer.send("orders", "goes on")
    assert producer.end(commit=True) == E.NONE
    assert rig.committed("orders") == ["goes on"]


def test_who_comes_after_another_has_taken_its_place_stays_out(rig):
    old = rig.producer()
    old.send("orders", "old")
    new = type(old)(rig, "t")
    while new.init() == E.CONCURRENT_TRANSACTIONS:
        rig.until_idle()
    assert old.init(expected=True) == E.PRODUCER_FENCED
    new.send("orders", "new")
    assert new.end(commit=True) == E.NONE and rig.committed("orders") == ["new"]


def test_a_marker_of_no_producer_is_refused(rig):
    assert rig.write_marker("orders", -1, 0) == E.INVALID_REQUEST
    assert rig.end_offset("orders") == 0, "nothing was written"


def test_what_follows_a_refused_record_is_not_taken_in_its_place(rig):
    """An older client has sent two batches when it hears that the first one was refused."""
    producer = rig.producer(bumps=False)
    assert producer.send("orders", "first", sequence=3) == E.INVALID_TXN_STATE, "not added yet"
    producer.add(("orders", 0))
    assert producer.send("orders", "second", sequence=4) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send("orders", "first", sequence=3) == E.NONE
    assert producer.send("orders", "second", sequence=4) == E.NONE
    assert producer.end(commit=True) == E.NONE
    assert rig.committed("orders") == ["first", "second"]


def test_a_refused_record_of_an_older_epoch_is_nothing_to_wait_for(rig):
    producer = rig.producer(bumps=False)
    producer.send("orders", "refused", sequence=3)
    assert producer.init() == E.NONE
    producer.add(("orders", 0))
    assert producer.send("orders", "next", sequence=4) == E.NONE
