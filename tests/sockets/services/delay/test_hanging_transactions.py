"""Offsets of a transaction that was decided, but whose marker never reached the group's offsets.

As Apache Kafka 4.3.1 was seen to leave them behind when it was killed. Here they are written by
hand after their transaction has ended, which a broker takes that does not verify transactions.
"""

import pytest
from confluent_kafka import Producer

from headrace.client.admin.transactional_ids import TransactionalIds
from headrace.client.connection import ClientSettings
from headrace.client.lookup import raw_log
from headrace.client.once import hanging
from headrace.client.wire import Wire
from headrace.services.delay.obstacles import evidence, open_transactions
from headrace.services.delay.timeline.progress import IntakeProgress, to_metadata
from headrace.testing import Broker
from headrace.wire.contract import headers as names
from headrace.wire.contract.delay_topics import GROUP, companion_of
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.java_hash import partition_for_group
from headrace.wire.protocol.messages import find_coordinator, txn_offset_commit
from headrace.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.patience import until
from tests.sockets.services.delay.committed_reader import Reader
from tests.sockets.services.delay.test_service import make, send, serving

GONE = f"{GROUP}-gone"
LAST_WITHOUT_ADDING = 4  # from version 5 on, the coordinator learns of the offsets by themselves
DUE_MS = 1_000


@pytest.fixture
def broker():
    with Broker(settings={"transaction.partition.verification.enable": "false"}) as broker:
        yield broker


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(open_transactions, "FORGOTTEN_AFTER_S", 0.2)
    monkeypatch.setattr(open_transactions, "FENCE_AGAIN_S", 0.1)


NOT_READY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def deliver(broker, value, *, commit, source="orders.delay/0/0", transactional_id=GONE):
    """As an instance of that id would; what it commits is left out."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id}
    )
    producer.init_transactions()
    producer.begin_transaction()
    said = [(names.DUE_AT, b"%d" % DUE_MS), (names.SOURCE, source.encode())]
    producer.produce("orders", value, partition=0, headers=said)
    producer.flush()
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()


def leave_offsets(broker, progress, transactional_id=GONE):
    """In a transaction that nobody will end."""
    ids = TransactionalIds(ClientSettings({"bootstrap.servers": broker.bootstrap}))
    until(lambda: ids.describe(transactional_id).state.startswith("Complete"))
    known = ids.describe(transactional_id)
    offset = txn_offset_commit.TxnOffsetCommitRequestPartition(
        0, progress.position, -1, to_metadata(progress, transactional_id)
    )
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id,
        GROUP,
        known.producer_id,
        known.producer_epoch,
        topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(companion_of("orders"), [offset])],
    )
    host, port = broker.bootstrap.split(":")
    with Wire(ids.connection, (host, int(port))) as wire:

        def is_taken() -> bool:
            """Whoever asks first has the coordinator's partitions made, which takes a while."""
            wire.ask(find_coordinator, FindCoordinatorRequest(coordinator_keys=[GROUP]))
            answer = wire._ask(txn_offset_commit, LAST_WITHOUT_ADDING, request)
            code = answer.topics[0].partitions[0].error_code
            assert code in (ErrorCode.NONE, *NOT_READY), code
            return code == ErrorCode.NONE

        until(is_taken)
    return TransactionalIds(ids.connection)  # the first knows the topics of before, and no offsets


@pytest.mark.integration
@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_it_is_ended_as_it_was_decided(broker, tmp_path, caplog, commit, remembered):
    make(broker)
    for value in (b"first", b"second"):
        send(broker, value, deliver_at=DUE_MS)
    deliver(broker, b"first", commit=commit)
    ids = leave_offsets(broker, IntakeProgress(1, (DUE_MS, 0)))
    if not remembered:
        ids.abort(GONE)  # as its next producer does: the coordinator knows a newer epoch
    with serving(broker, tmp_path) as service:
        reader = Reader(broker)
        assert reader.values(2) == [b"first", b"second"]
        until(lambda: service.counters.delivered == (1 if commit else 2))
        send(broker, b"third")
        assert reader.values(1) == [b"third"]
    [told] = [each.getMessage() for each in caplog.records if "markers are written" in each.msg]
    assert ("commit" if commit else "abort") in told
    assert ("coordinator says" in told) == remembered


@pytest.mark.integration
def test_nothing_is_begun_over_an_own_one_that_was_aborted(broker, tmp_path, caplog):
    """The next marker of the same producer would commit it as well: `first` would be lost."""
    own = f"{GROUP}-delay-1"
    make(broker, partitions=2)
    send(broker, b"first", deliver_at=DUE_MS)
    deliver(broker, b"first", commit=False, transactional_id=own)
    leave_offsets(broker, IntakeProgress(1, (DUE_MS, 0)), own)
    send(broker, b"beside it", partition=1)
    with serving(broker, tmp_path) as service:
        assert Reader(broker).values(1) == [b"first"]
        until(lambda: service.counters.delivered == 2)
    assert any("abort markers are written" in each.getMessage() for each in caplog.records)


def test_what_cannot_be_read_to_its_end_is_not_decided(broker, monkeypatch):
    make(broker)
    send(broker, b"first", deliver_at=DUE_MS)
    deliver(broker, b"first", commit=True)
    ids = leave_offsets(broker, IntakeProgress(1, (DUE_MS, 0)))
    ids.abort(GONE)
    partition = partition_for_group(GROUP, 1)
    [found] = ids.open_in(evidence.OFFSETS_TOPIC, partition)
    left = evidence.read_held(ids.connection, partition, found, GROUP)
    assert left.pending == {("orders.delay", 0): IntakeProgress(1, (DUE_MS, 0))}
    assert evidence.decide(ids.connection, GROUP, left, ids.describe(GONE)).commit
    monkeypatch.setattr(hanging, "BUDGET_BYTES", 1)
    monkeypatch.setattr(raw_log, "FETCH_BYTES", 1)  # a batch at a time
    with pytest.raises(raw_log.TooMuch):
        evidence.decide(ids.connection, GROUP, left, ids.describe(GONE))


def test_offsets_of_other_groups_are_left_alone(broker):
    make(broker)
    send(broker, b"first", deliver_at=DUE_MS)
    deliver(broker, b"first", commit=True)
    ids = leave_offsets(broker, IntakeProgress(1, (DUE_MS, 0)))
    partition = partition_for_group(GROUP, 1)
    until(lambda: ids.open_in(evidence.OFFSETS_TOPIC, partition))
    [found] = ids.open_in(evidence.OFFSETS_TOPIC, partition)
    assert evidence.read_held(ids.connection, partition, found, "another") is None
