"""Transactions, told to a whole node: what is committed is seen, nothing else ever is."""

import pytest

from headrace.wire.protocol import record_batch
from headrace.wire.protocol.errors import ErrorCode
from tests.unit.node.broker.groups.group_rig import GroupRig
from tests.unit.node.broker.transactions.transaction_rig import (
    TransactionalProducer,
    TransactionRig,
)

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
INVALID_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.fixture
def rig(tmp_path):
    rig = TransactionRig(tmp_path / "data")
    rig.create("orders", 2)
    return rig


@pytest.fixture(params=["before KIP-890", "since KIP-890"])
def producer(request, rig):
    return rig.producer(bumps=request.param.startswith("since"))


def begin(producer, *partitions):
    if not producer.bumps:
        codes = producer.add(*partitions)
        assert set(codes) <= {NONE}


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(rig, producer):
    begin(producer, ("orders", 0), ("orders", 1))
    assert producer.send("orders", "a", "b") == NONE
    assert producer.send("orders", "c", partition=1) == NONE
    assert rig.committed("orders") == rig.committed("orders", partition=1) == []
    assert producer.commit() == NONE
    assert rig.committed("orders") == ["a", "b"]
    assert rig.committed("orders", partition=1) == ["c"]
    begin(producer, ("orders", 0))
    assert producer.send("orders", "d") == NONE
    assert producer.abort() == NONE
    rig.produce("orders", "plain")
    assert rig.committed("orders") == ["a", "b", "plain"]
    assert rig.end_offset("orders") == rig.end_offset("orders", committed=True) == 6


def test_an_open_transaction_holds_back_what_comes_after_it(rig, producer):
    begin(producer, ("orders", 0))
    producer.send("orders", "open")
    rig.produce("orders", "plain")
    assert rig.committed("orders") == []
    assert rig.end_offset("orders", committed=True) == 0
    assert rig.end_offset("orders") == 2
    producer.commit()
    assert rig.committed("orders") == ["open", "plain"]


def test_each_end_gives_a_new_epoch_since_kip_890(rig):
    producer = rig.producer()
    epochs = [producer.epoch]
    for commit in (True, False, True):
        producer.send("orders", "x")
        assert producer.end(commit) == NONE
        epochs.append(producer.epoch)
    assert epochs == [0, 1, 2, 3]
    assert rig.describe("t").transaction_state == "CompleteCommit"


def test_a_late_message_of_an_old_transaction_lands_nowhere(rig):
    producer = rig.producer()
    producer.send("orders", "first")
    old_epoch = producer.epoch
    producer.commit()
    assert producer.send("orders", "second") == NONE
    for version in (9, 10, 11, 12):
        late = producer.send(
            "orders", "late", version=version, producer_epoch=old_epoch, sequence=1
        )
        assert late == INVALID_EPOCH
    # Nor where the old transaction never was.
    assert (
        producer.send("orders", "late", partition=1, producer_epoch=old_epoch, sequence=0)
        == INVALID_EPOCH
    )
    producer.commit()
    assert rig.committed("orders") == ["first", "second"]


def test_a_partition_that_was_not_added_refuses(rig):
    producer = rig.producer(bumps=False)
    assert producer.send("orders", "x") == INVALID_STATE
    assert producer.send("orders", "x", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    producer.add(("orders", 1))
    assert producer.send("orders", "x") == INVALID_STATE
    assert producer.send("orders", "x", partition=1) == NONE
    producer.commit()
    # The marker closed the door.
    assert producer.send("orders", "x", partition=1) == INVALID_STATE


def test_a_transaction_needs_its_id_and_takes_no_plain_records(rig, producer):
    begin(producer, ("orders", 0))
    producer.send("orders", "x")
    assert producer.send("orders", "y", is_transactional=False) == INVALID_STATE
    nameless = TransactionalProducer(rig, None)
    nameless.id, nameless.epoch = producer.id, producer.epoch
    assert nameless.send("orders", "x") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_the_first_record_of_a_transaction_has_sequence_zero(rig):
    producer = rig.producer()
    code = producer.send("orders", "x", sequence=3)
    assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_producer_fences_the_old_one_and_aborts_its_work(rig, producer):
    begin(producer, ("orders", 0))
    producer.send("orders", "lost")
    new = TransactionalProducer(rig, "t", bumps=producer.bumps)
    assert new.init() == CONCURRENT
    assert new.init() == NONE
    assert new.id == producer.id
    assert new.epoch == producer.epoch + 2  # one for the abort, one for the new producer
    assert producer.commit() == FENCED
    assert producer.send("orders", "zombie") == INVALID_EPOCH
    assert producer.init(expected=True) == FENCED
    assert producer.init(expected=True, version=3) == INVALID_EPOCH
    begin(new, ("orders", 0))
    assert new.send("orders", "new") == NONE
    new.commit()
    assert rig.committed("orders") == ["new"]


def test_an_old_producer_may_ask_for_the_next_epoch_and_ask_again(rig):
    producer = rig.producer()
    first = producer.epoch
    assert producer.init(expected=True) == NONE
    assert producer.epoch == first + 1
    producer.epoch = first  # the answer was lost
    assert producer.init(expected=True) == NONE
    assert producer.epoch == first + 1


def test_the_same_end_twice_is_told_from_the_next_one(rig):
    producer = rig.producer()
    producer.send("orders", "x")
    before = producer.epoch
    producer.commit()
    after = producer.epoch
    producer.epoch = before
    assert producer.commit() == NONE
    assert producer.epoch == after
    producer.epoch = before
    assert producer.abort() == INVALID_STATE
    producer.epoch = after
    assert producer.commit() == INVALID_STATE  # nothing was begun
    assert producer.abort() == NONE  # which may be aborted all the same
    assert producer.epoch == after + 1


def test_what_is_not_known_is_refused(rig):
    stranger = TransactionalProducer(rig, "nobody", bumps=False)
    stranger.id, stranger.epoch = 5, 0
    unmapped = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert stranger.add(("orders", 0)) == [unmapped]
    assert stranger.commit() == unmapped
    assert stranger.add_offsets("g") == unmapped
    assert rig.describe("nobody").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    producer = rig.producer(bumps=False)
    assert producer.add(("orders", 0), ("orders", 7), ("nothing", 0)) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert producer.add(("__consumer_offsets", 0)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    producer.id += 1
    assert producer.add(("orders", 0)) == [unmapped]


def test_a_forgotten_transaction_is_aborted(rig):
    producer = rig.producer(timeout_ms=30_000)
    producer.send("orders", "forgotten")
    rig.advance(29_000)
    assert rig.list() == {"t": "Ongoing"}
    rig.advance(20_000)
    assert rig.list() == {"t": "CompleteAbort"}
    rig.produce("orders", "plain")
    assert rig.committed("orders") == ["plain"]
    assert producer.send("orders", "late") == INVALID_EPOCH
    assert producer.commit() == INVALID_STATE
    assert producer.abort() == NONE  # it was; the producer goes on with the epoch it hears of
    assert producer.send("orders", "next") == NONE


def test_a_forgotten_transaction_is_aborted_though_the_clock_was_set_back(rig):
    producer = rig.producer(timeout_ms=30_000)
    producer.send("orders", "forgotten")
    rig.now.wall_ms -= 3_600_000
    for _ in range(6):
        rig.advance(10_000)
    assert producer.end(commit=True) != 0
    assert rig.committed("orders") == []
    assert rig.fetch_committed("orders").last_stable_offset == 2


def test_an_unused_id_is_forgotten(tmp_path):
    rig = TransactionRig(
        tmp_path / "data",
        transactional_id_expiration_ms=100_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=10_000,
    )
    rig.producer("t")
    rig.advance(60_000)
    assert rig.list() == {"t": "Empty"}
    rig.advance(60_000)
    assert rig.list() == {}


def test_listing_can_be_narrowed(rig):
    rig.producer("idle")
    busy = rig.producer("busy")
    busy.send("orders", "x")
    rig.advance(5_000)
    assert rig.list() == {"idle": "Empty", "busy": "Ongoing"}
    assert rig.list(state_filters=["Ongoing", "Nonsense"]) == {"busy": "Ongoing"}
    assert rig.list(producer_id_filters=[busy.id]) == {"busy": "Ongoing"}
    assert "busy" in rig.list(duration_filter=4_000)
    assert "busy" not in rig.list(duration_filter=6_000)
    assert rig.list(transactional_id_pattern="b.*y") == {"busy": "Ongoing"}
    assert rig.list(transactional_id_pattern="b") == {}
    found = rig.describe("busy")
    assert (found.producer_id, found.producer_epoch) == (busy.id, busy.epoch)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("orders", [0])]


def test_offsets_of_a_transaction_count_when_it_commits(rig, producer):
    if not producer.bumps:
        assert producer.add_offsets("g") == NONE
    assert producer.commit_offset("g", "orders", 7) == NONE
    assert rig.offset_of("g", "orders") == (-1, NONE)
    unstable = rig.offset_of("g", "orders", require_stable=True)
    assert unstable == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    producer.commit()
    assert rig.offset_of("g", "orders", require_stable=True) == (7, NONE)
    if not producer.bumps:
        assert producer.add_offsets("g") == NONE
    producer.commit_offset("g", "orders", 9)
    producer.abort()
    assert rig.offset_of("g", "orders", require_stable=True) == (7, NONE)


def test_offsets_need_a_transaction_and_a_member_its_generation(rig):
    producer = rig.producer(bumps=False)
    assert producer.commit_offset("g", "orders", 7) == ErrorCode.TRANSACTION_ABORTABLE
    assert producer.add_offsets("g") == NONE
    assert producer.commit_offset("g", "orders", 7, generation=3) == ErrorCode.ILLEGAL_GENERATION
    assert producer.commit_offset("g", "nothing", 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit_offset("g", "orders", 7) == NONE
    producer.epoch -= 1
    assert producer.commit_offset("g", "orders", 8) == INVALID_EPOCH


def test_a_hanging_transaction_can_be_ended_by_hand(rig):
    """As kafka-transactions and `headrace transactions abort` do it."""
    producer = rig.producer()
    producer.send("orders", "hanging")
    rig.produce("orders", "behind")
    assert rig.write_marker("orders", producer.id, producer.epoch) == NONE
    assert rig.committed("orders") == ["behind"]
    assert rig.write_marker("nothing", producer.id, 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.write_marker("orders", producer.id, -1) == INVALID_EPOCH
    fenced = rig.write_marker("orders", producer.id, producer.epoch, coordinator_epoch=-1)
    assert fenced == ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_restart_changes_nothing(tmp_path, clean):
    rig = TransactionRig(tmp_path / "data")
    rig.create("orders")
    committed, aborted, opened = (rig.producer(name) for name in ("c", "a", "o"))
    committed.send("orders", "committed")
    aborted.send("orders", "aborted")
    opened.send("orders", "open")
    committed.commit_offset("g", "orders", 3)
    opened.commit_offset("g", "orders", 4)
    committed.commit()
    aborted.abort()
    if clean:
        rig.stop()
    again = TransactionRig(tmp_path / "data")
    assert again.list() == {"c": "CompleteCommit", "a": "CompleteAbort", "o": "Ongoing"}
    assert again.committed("orders") == ["committed"]
    assert again.offset_of("g", "orders") == (3, NONE)
    for producer in (committed, aborted, opened):
        producer.rig = again
    assert opened.send("orders", "more") == NONE
    assert opened.commit() == NONE
    assert committed.send("orders", "next") == NONE
    assert committed.commit() == NONE
    assert again.committed("orders") == ["committed", "open", "more", "next"]
    assert again.offset_of("g", "orders") == (4, NONE)


def test_markers_that_were_not_written_are_written_after_a_restart(tmp_path, monkeypatch):
    from headrace.node.broker.coordinators.transaction_markers import TransactionMarkers

    rig = TransactionRig(tmp_path / "data")
    rig.create("orders")
    producer = rig.producer()
    producer.send("orders", "x")
    monkeypatch.setattr(TransactionMarkers, "finish_latest", lambda self, shard: None)
    assert producer.commit() == NONE
    assert rig.list() == {"t": "PrepareCommit"}
    assert rig.committed("orders") == []
    monkeypatch.undo()
    again = TransactionRig(tmp_path / "data")  # killed between decision and markers
    assert again.list() == {"t": "CompleteCommit"}
    assert again.committed("orders") == ["x"]


def test_a_deleted_topic_does_not_keep_a_transaction_from_ending(rig):
    producer = rig.producer()
    producer.send("orders", "x")
    rig.create("other")
    producer.send("other", "y")
    rig.delete("orders")
    assert producer.commit() == NONE
    assert rig.list() == {"t": "CompleteCommit"}
    assert rig.committed("other") == ["y"]


def test_a_producer_that_has_used_up_its_epochs_gets_another_id(rig):
    producer = rig.producer()
    machine = rig.node.broker.transactions.machine_of("t", rig.now)
    machine.transactions["t"].epoch = producer.epoch = 32766
    producer.send("orders", "x")
    before = producer.id
    assert producer.commit() == NONE
    assert (producer.id, producer.epoch) != (before, 32767)
    assert producer.epoch == 0
    after = producer.id
    producer.id, producer.epoch = before, 32766
    assert producer.commit() == NONE  # the answer was lost
    assert (producer.id, producer.epoch) == (after, 0)
    assert producer.send("orders", "y") == NONE
    assert producer.commit() == NONE
    assert rig.committed("orders") == ["x", "y"]


def test_with_durability_disk_every_step_waits_for_the_disk(tmp_path):
    rig = TransactionRig(tmp_path / "data", headrace_durability="disk")
    rig.create("orders", 2)
    rig.create("input")
    producer = rig.producer()
    for round_number in range(3):
        assert producer.send("orders", f"a{round_number}") == NONE
        assert producer.send("orders", f"b{round_number}") == NONE
        assert producer.send("orders", f"c{round_number}", partition=1) == NONE
        assert producer.commit_offset("g", "input", round_number) == NONE
        assert producer.commit() == NONE
    assert rig.committed("orders") == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert rig.committed("orders", partition=1) == ["c0", "c1", "c2"]
    assert rig.offset_of("g", "input", require_stable=True) == (2, NONE)


def test_with_durability_disk_nothing_is_written_ahead_of_the_coordinator(tmp_path):
    from tests.unit.node.broker.rig import WAITS

    rig = TransactionRig(tmp_path / "data", headrace_durability="disk")
    rig.create("orders")
    producer = rig.producer()
    rig.flushes_wait = True
    session = rig.connect()
    assert producer.send("orders", "x", session=session) == WAITS
    assert rig.node.broker.topics.leader("orders", 0).log.end_offset == 0
    rig.flushes_wait = False
    rig.until_idle()
    assert rig.node.broker.topics.leader("orders", 0).log.end_offset == 1
    assert session.outbox


class WithGroups(TransactionRig, GroupRig):  # type: ignore[misc]  # `committed` of the first
    """Both kinds of clients on one node."""


def test_a_member_that_was_replaced_commits_nothing(tmp_path):
    """KIP-447: the generation fences, the transaction goes on or is aborted as the client likes."""
    rig = WithGroups(tmp_path / "data")
    rig.create("orders")
    member, generation = rig.stable_group("g")
    producer = rig.producer()
    right = {"member": member, "generation": generation}
    assert producer.commit_offset("g", "orders", 1, **right) == NONE
    stale = right | {"generation": generation - 1}
    assert producer.commit_offset("g", "orders", 2, **stale) == ErrorCode.ILLEGAL_GENERATION
    stranger = right | {"member": "somebody"}
    assert producer.commit_offset("g", "orders", 2, **stranger) == ErrorCode.UNKNOWN_MEMBER_ID
    assert producer.commit() == NONE
    assert rig.offset_of("g", "orders") == (1, NONE)
    rig.advance(30_000)  # its session is over
    assert producer.commit_offset("g", "orders", 3, **right) == ErrorCode.UNKNOWN_MEMBER_ID
    # A producer that says nothing of its membership is not held to it, as in Apache Kafka.
    assert producer.commit_offset("g", "orders", 4) == NONE
    assert producer.abort() == NONE
    assert rig.offset_of("g", "orders") == (1, NONE)


def test_a_partition_that_refuses_its_marker_holds_up_no_other(rig):
    rig.create("a-strict")
    strict = rig.node.broker.topics.leader("a-strict", 0)
    producer = rig.producer()
    producer.send("a-strict", "x")
    producer.send("orders", "x")
    strict.min_in_sync = 2  # as min.insync.replicas, set since the records came
    assert producer.commit() == NONE
    assert rig.committed("orders") == ["x"]
    assert rig.list() == {"t": "PrepareCommit"}
    for _ in range(10):
        rig.advance(1_000)
    assert rig.end_offset("orders") == 2  # one record, one marker
    strict.min_in_sync = 1
    rig.advance(10_000)
    assert rig.list() == {"t": "CompleteCommit"}
    assert rig.committed("a-strict") == ["x"]
    assert rig.end_offset("a-strict") == rig.end_offset("orders") == 2


def test_after_an_end_by_hand_the_producer_goes_on_where_it_was(rig):
    """Its sequence is known to the partition, so that it need not begin with 0."""
    producer = rig.producer()
    producer.send("orders", "a", "b")
    assert rig.write_marker("orders", producer.id, producer.epoch) == NONE
    gap = producer.send("orders", "gap", sequence=3)
    assert gap == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send("orders", "c") == NONE
    assert producer.commit() == NONE
    assert rig.committed("orders") == ["c"]


def test_nobody_writes_to_the_topics_of_coordinators(rig):
    producer = rig.producer()
    for topic in ("__consumer_offsets", "__transaction_state"):
        assert rig.produce(topic, "x").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert producer.send(topic, "x") == ErrorCode.INVALID_TOPIC_EXCEPTION
    rig.client_id = "__admin_client"  # but for who calls itself so, as in Apache Kafka
    records = record_batch.build([record_batch.Record(b"\xff\xff", b"", (), rig.now.wall_ms)])
    assert rig.produce("__consumer_offsets", records=records).error_code == NONE


def test_who_was_aborted_with_the_last_epoch_but_one_gets_another_id(rig):
    """The last epoch is nobody's: no marker could end a transaction in it."""
    producer = rig.producer(timeout_ms=30_000)
    machine = rig.node.broker.transactions.machine_of("t", rig.now)
    machine.transactions["t"].epoch = producer.epoch = 32766
    producer.send("orders", "forgotten")
    rig.advance(50_000)
    assert rig.list() == {"t": "CompleteAbort"}
    before, producer.epoch = producer.id, 32767
    assert producer.send("orders", "never") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer.epoch = 32766
    assert producer.abort() == NONE
    assert (producer.id != before, producer.epoch) == (True, 0)
    after, producer.id, producer.epoch = producer.id, before, 32766
    assert producer.abort() == NONE  # the answer was lost
    assert (producer.id, producer.epoch) == (after, 0)
    assert producer.send("orders", "next") == NONE
    assert producer.commit() == NONE
    assert rig.committed("orders") == ["next"]


def test_a_producer_whose_id_was_forgotten_is_told_so(tmp_path):
    rig = TransactionRig(
        tmp_path / "data",
        transactional_id_expiration_ms=100_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=10_000,
    )
    rig.create("orders")
    producer = rig.producer("t")
    rig.advance(120_000)
    unmapped = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer.send("orders", "x") == unmapped
    assert producer.commit_offset("g", "orders", 1) == unmapped
    assert producer.commit() == producer.abort() == unmapped
    assert producer.init(expected=True) == NONE  # it may have another id
    assert producer.send("orders", "x") == NONE
