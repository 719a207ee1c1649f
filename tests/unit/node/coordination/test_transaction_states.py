"""The machine of transactional ids: its table, its records, and what each request may do in each
state."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.environment import Now
from headrace.node.coordination.shard import Shard
from headrace.node.coordination.transaction import transaction as steps
from headrace.node.coordination.transaction.machine import (
    Producer,
    TransactionMachine,
    TransactionSettings,
)
from headrace.node.coordination.transaction.states import (
    AT_REST,
    NEXT_STATES,
    PREPARED,
    TITLES,
    TransactionState,
)
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from tests.effort import examples
from tests.unit.node.coordination.a_journal import MemoryJournal

ORDERS = frozenset({("orders", 0)})


class Coordinator:
    """One shard with a clock in hand; writes no markers until told to."""

    def __init__(self, *, abort_interval_ms=10_000, server_version=2):
        self.settings = TransactionSettings(100_000, abort_interval_ms, 50_000, server_version)
        self.journal = MemoryJournal()
        self.now = Now(1_000, 1_000_000)
        self.ids = 100
        self.start()

    def start(self):
        self.shard = Shard(
            self.journal, lambda _: TransactionMachine(lambda: self.settings, self.fresh_id)
        )
        self.shard.load(self.now)

    def fresh_id(self):
        if self.ids is not None:
            self.ids += 1
        return self.ids

    def run(self, decide, *arguments):
        try:
            return self.shard.run(self.now, decide, *arguments)
        except KafkaError as refusal:
            return refusal.code

    def init(self, expected=None):
        self.ids += 1
        machine = TransactionMachine
        return self.run(machine.init_producer, "t", 60_000, expected, self.ids, self.now)

    def add(self, producer, version=0, partitions=ORDERS):
        return self.run(
            TransactionMachine.add_partitions, "t", producer, partitions, version, self.now
        )

    def end(self, producer, commit, version=0):
        self.ids += 1
        return self.run(TransactionMachine.end, "t", producer, commit, version, self.ids, self.now)

    def complete(self):
        for found in list(self.machine.prepared):
            epoch = self.machine.transactions[found].epoch
            self.run(TransactionMachine.complete, found, epoch, self.now)

    def advance(self, milliseconds):
        self.now.monotonic_ms += milliseconds
        self.now.wall_ms += milliseconds
        self.shard.run_due(self.now)

    @property
    def machine(self):
        return self.shard.machine

    @property
    def state(self):
        return self.machine.transactions["t"].state


def test_the_table_knows_every_state_and_leads_out_of_all_but_the_last():
    assert set(NEXT_STATES) == set(TITLES) == set(TransactionState)
    assert {state for state, following in NEXT_STATES.items() if not following} == {
        TransactionState.DEAD,
        TransactionState.PREPARE_EPOCH_FENCE,
    }
    for state in PREPARED:
        assert len(NEXT_STATES[state]) == 1  # what is decided is decided
    for state in AT_REST:
        assert TransactionState.DEAD in NEXT_STATES[state]


def test_a_step_that_the_table_does_not_know_is_a_bug():
    empty = steps.unused("t", 1)
    with pytest.raises(AssertionError, match="Empty to CompleteAbort"):
        steps.completed(empty, wall_ms=1)


def test_records_are_kafkas_byte_for_byte():
    """Written out by hand; the interop tests compare every record of an Apache Kafka broker."""
    transaction = steps.Transaction(
        "ab", 7, 1, 60_000, TransactionState.PREPARE_COMMIT, frozenset({("t", 0), ("t", 2)}),
        1_000, 2_000, 2, previous_producer_id=7,
    )  # fmt: skip
    key, value = steps.CODEC.encode(steps.to_record(transaction, 1))
    assert key == b"\0\0" + b"\0\x02ab"
    assert value == (
        b"\0\x01"  # version
        + (7).to_bytes(8, "big")
        + b"\0\x01"  # epoch
        + (60_000).to_bytes(4, "big")
        + b"\x02"  # PrepareCommit
        + b"\x02"  # one topic
        + b"\x02t"
        + b"\x03\0\0\0\0\0\0\0\x02\0"  # two partitions, no tags
        + (2_000).to_bytes(8, "big")
        + (1_000).to_bytes(8, "big")
        + b"\x02\x00\x08" + (7).to_bytes(8, "big")  # previous producer id
        + b"\x02\x02\0\x02"  # the client's transaction.version
    )  # fmt: skip
    assert steps.CODEC.decode(key, value).value.producer_id == 7


def test_version_0_is_written_while_the_feature_is_off():
    coordinator = Coordinator(server_version=0)
    coordinator.init()
    [(_, value)] = coordinator.journal.records()
    assert value[:2] == b"\0\0"
    assert len(value) == 2 + 8 + 2 + 4 + 1 + 4 + 8 + 8


def test_everything_is_found_again():
    coordinator = Coordinator()
    producer = coordinator.init()
    coordinator.add(producer, 2)
    coordinator.end(producer, True, 2)
    before = coordinator.machine.transactions["t"]
    coordinator.start()
    assert coordinator.machine.prepared == {"t": None}
    after = coordinator.machine.transactions["t"]
    after.last_epoch = before.last_epoch  # the one thing that is not in the log
    assert after == before
    coordinator.complete()
    coordinator.start()
    assert coordinator.state is TransactionState.COMPLETE_COMMIT
    assert not coordinator.machine.prepared


def test_a_refused_append_changes_nothing():
    coordinator = Coordinator()
    producer = coordinator.init()
    coordinator.add(producer)
    coordinator.journal.refuses = True
    assert coordinator.end(producer, True) == ErrorCode.KAFKA_STORAGE_ERROR
    assert coordinator.state is TransactionState.ONGOING
    assert not coordinator.machine.prepared


def test_while_markers_are_written_everybody_waits():
    coordinator = Coordinator()
    producer = coordinator.init()
    coordinator.add(producer)
    coordinator.end(producer, True)
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordinator.init() == concurrent
    assert coordinator.add(producer) == concurrent
    assert coordinator.end(producer, True) == concurrent
    assert coordinator.end(producer, False) == concurrent
    coordinator.complete()
    assert coordinator.end(producer, True) == producer
    assert coordinator.init() == Producer(producer.id, producer.epoch + 1)


def with_epoch(coordinator, producer, epoch):
    coordinator.machine.transactions["t"].epoch = epoch
    return producer._replace(epoch=epoch)


@pytest.mark.parametrize("epoch", [0, 32766], ids=["next epoch", "next id"])
def test_while_markers_are_written_who_was_told_its_next_identity_waits(epoch):
    coordinator = Coordinator()
    producer = with_epoch(coordinator, coordinator.init(), epoch)
    coordinator.add(producer, 2)
    told = coordinator.end(producer, True, 2)
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    for who in (told, producer):
        assert coordinator.add(who, 2) == concurrent
        assert coordinator.end(who, True, 2) == coordinator.end(who, False, 2) == concurrent
        assert coordinator.init(expected=who) == concurrent
    coordinator.complete()
    assert coordinator.add(told, 2) == ErrorCode.NONE


def fence(coordinator, *, taken_over):
    """A producer in the last epoch of clients, whose transaction was aborted over its head."""
    producer = with_epoch(coordinator, coordinator.init(), 32766)
    coordinator.add(producer, 2)
    if taken_over:
        assert coordinator.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    else:
        coordinator.advance(70_000)
    coordinator.complete()
    return producer


TAKEN_OVER = pytest.mark.parametrize("taken_over", [True, False], ids=["taken over", "late"])


@TAKEN_OVER
def test_who_is_fenced_in_the_last_epoch_of_clients_goes_on_with_another_id(taken_over):
    coordinator = Coordinator()
    producer = fence(coordinator, taken_over=taken_over)
    found = coordinator.machine.transactions["t"]
    assert (found.producer_id != producer.id, found.epoch) == (True, 0)
    after = Producer(found.producer_id, 0)
    assert coordinator.add(producer, 2) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.end(producer, True, 2) == ErrorCode.INVALID_TXN_STATE
    assert coordinator.end(producer, False, 2) == after
    assert coordinator.init(expected=producer) == after
    assert coordinator.add(after, 2) == ErrorCode.NONE


def test_a_late_transaction_waits_for_the_next_producer_id():
    coordinator = Coordinator()
    producer = with_epoch(coordinator, coordinator.init(), 32766)
    coordinator.add(producer, 2)
    ids, coordinator.ids = coordinator.ids, None
    coordinator.advance(70_000)
    assert coordinator.state is TransactionState.ONGOING
    coordinator.ids = ids
    coordinator.advance(10_000)
    coordinator.complete()
    assert coordinator.machine.transactions["t"].producer_id == ids + 1


@TAKEN_OVER
def test_the_last_epoch_is_given_to_nobody(taken_over):
    """A transaction in it could not be ended: the epoch of its marker would have to be higher."""
    coordinator = Coordinator(server_version=1)
    producer = fence(coordinator, taken_over=taken_over)
    assert coordinator.machine.transactions["t"].epoch == 32767
    last = Producer(producer.id, 32767)
    for version in (0, 2):
        assert coordinator.add(last, version) == ErrorCode.PRODUCER_FENCED
    assert coordinator.end(producer, True, 2) == ErrorCode.INVALID_TXN_STATE
    after = coordinator.end(producer, False, 2)
    assert (after.id != producer.id, after.epoch) == (True, 0)
    coordinator.complete()
    assert coordinator.end(producer, False, 2) == after  # the answer was lost
    assert coordinator.add(after, 2) == ErrorCode.NONE
    assert coordinator.add(producer, 2) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_new_producer_of_an_exhausted_id_gets_another_one():
    coordinator = Coordinator()
    producer = with_epoch(coordinator, coordinator.init(), 32766)
    expected = coordinator.init(expected=producer)
    assert (expected.id != producer.id, expected.epoch) == (True, 0)
    assert coordinator.init(expected=producer) == expected  # the answer was lost
    last = with_epoch(coordinator, expected, 32766)
    after = coordinator.init()
    assert (after.id != last.id, after.epoch) == (True, 0)


def test_markers_of_an_older_decision_complete_nothing():
    coordinator = Coordinator()
    producer = coordinator.init()
    coordinator.add(producer, 2)
    coordinator.end(producer, True, 2)
    coordinator.run(TransactionMachine.complete, "t", producer.epoch, coordinator.now)
    assert coordinator.state is TransactionState.PREPARE_COMMIT


def test_forgotten_transactions_are_looked_for_at_intervals():
    coordinator = Coordinator()
    producer = coordinator.init()
    coordinator.add(producer, 2)
    coordinator.advance(59_000)
    assert coordinator.state is TransactionState.ONGOING
    coordinator.advance(2_000)  # too late, but nobody has looked yet
    assert coordinator.state is TransactionState.ONGOING
    coordinator.advance(9_000)
    state: Any = coordinator.state
    assert state is TransactionState.PREPARE_ABORT
    assert coordinator.machine.transactions["t"].epoch == producer.epoch + 1


def test_ids_that_are_not_used_are_forgotten_but_never_one_in_a_transaction():
    coordinator = Coordinator(abort_interval_ms=10**9)
    producer = coordinator.init()
    coordinator.add(producer)
    coordinator.advance(200_000)
    assert coordinator.state is TransactionState.ONGOING
    coordinator.end(producer, True)
    coordinator.complete()
    coordinator.advance(99_999)
    assert "t" in coordinator.machine.transactions
    coordinator.advance(60_000)
    assert coordinator.machine.transactions == {}
    assert coordinator.journal.records()[-1][1] is None
    assert coordinator.machine.next_due_ms is None


def test_a_garbled_record_does_not_keep_the_others_from_loading():
    coordinator = Coordinator()
    coordinator.init()
    strange = steps.to_record(steps.unused("u", 5), 1)
    strange.value.transaction_status = 99
    coordinator.machine.replay(strange)
    assert list(coordinator.machine.transactions) == ["t"]


STEPS = st.lists(
    st.one_of(
        st.just(("init",)),
        st.tuples(st.just("add"), st.sampled_from([0, 2])),
        st.tuples(st.just("end"), st.booleans(), st.sampled_from([0, 2])),
        st.just(("markers",)),
        st.just(("restart",)),
        st.tuples(st.just("wait"), st.sampled_from([1_000, 70_000])),
    ),
    max_size=25,
)


@settings(max_examples=examples(150), deadline=None)
@given(STEPS)
def test_whatever_happens_a_fenced_producer_stays_fenced(story):
    """No order of requests, markers and restarts lets an older identity act again, and the epoch
    of an id never falls."""
    coordinator = Coordinator()
    current, older, highest = None, [], (-1, -1)
    for step in story:
        match step:
            case ("init",):
                found = coordinator.init()
                if isinstance(found, Producer):
                    if current is not None:
                        older.append(current)
                    current = found
            case ("add", version) if current:
                coordinator.add(current, version)
            case ("end", commit, version) if current:
                found = coordinator.end(current, commit, version)
                if isinstance(found, Producer) and found != current:
                    older.append(current)
                    current = found
            case ("markers",):
                coordinator.complete()
            case ("restart",):
                coordinator.start()
            case ("wait", milliseconds):
                coordinator.advance(milliseconds)
        found = coordinator.machine.transactions.get("t")
        if found is None:
            continue
        assert (found.producer_id, found.epoch) >= highest
        highest = (found.producer_id, found.epoch)
        for fenced in older:
            if fenced.epoch < found.epoch:
                answer = coordinator.add(fenced)
                if (
                    found.state in PREPARED
                ):  # nobody is told anything before the markers are written
                    assert answer == ErrorCode.CONCURRENT_TRANSACTIONS
                    continue
                assert answer in (
                    ErrorCode.PRODUCER_FENCED,
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                )


def test_the_epoch_of_a_producer_never_falls():
    before = steps.with_producer(
        steps.unused("id", 7), producer_id=7, epoch=3, last_epoch=2, timeout_ms=1, wall_ms=1
    )
    fields = {"last_epoch": -1, "timeout_ms": 1, "wall_ms": 2}
    with pytest.raises(AssertionError, match="never falls"):
        steps.with_producer(before, producer_id=7, epoch=2, **fields)
    assert steps.with_producer(before, producer_id=8, epoch=0, **fields).epoch == 0
