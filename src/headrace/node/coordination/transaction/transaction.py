"""The state of one transactional id, and its changes: pure values, one function per step.

A step returns a new Transaction and changes none; only the fields of a record of
`__transaction_state` are kept. `last_epoch` alone is not in the record, as in Apache Kafka: after a
restart a producer that repeats its request is fenced instead of answered twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.node.coordination.records import Record, RecordCodec
from headrace.node.coordination.transaction.states import NEXT_STATES, TransactionState
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages import transaction_log_key, transaction_log_value
from headrace.wire.protocol.messages.transaction_log_key import TransactionLogKey
from headrace.wire.protocol.messages.transaction_log_value import (
    PartitionsSchema,
    TransactionLogValue,
)

Partition = tuple[str, int]

CODEC = RecordCodec([(transaction_log_key, transaction_log_value)])

NO_ID = -1
NO_EPOCH = -1
LAST_EPOCH = 0x7FFF
# Clients never get the last epoch, so that the coordinator can always fence them.
EXHAUSTED_EPOCH = LAST_EPOCH - 1
# transaction.version from which the end of each transaction raises the epoch (KIP-890).
BUMPS_EPOCH = 2
# From which on records are of the flexible version.
FLEXIBLE_RECORDS = 1


@dataclass(slots=True)
class Transaction:
    id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[Partition]
    started_ms: int  # wall clock; -1: no transaction began since the producer came
    updated_ms: int  # wall clock
    client_version: int  # the client's last version of transaction.version
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID  # used when the markers are written
    last_epoch: int = NO_EPOCH  # the epoch before, if a client may repeat a request with it

    @property
    def bumps_epoch(self) -> bool:
        return self.client_version >= BUMPS_EPOCH

    @property
    def epoch_is_exhausted(self) -> bool:
        return self.epoch >= EXHAUSTED_EPOCH


def unused(transactional_id: str, producer_id: int) -> Transaction:
    """Returns an id that was never used before."""
    return Transaction(
        transactional_id, producer_id, NO_EPOCH, 0, TransactionState.EMPTY, frozenset(), -1, -1, 0
    )


def with_producer(
    before: Transaction,
    *,
    producer_id: int,
    epoch: int,
    last_epoch: int,
    timeout_ms: int,
    wall_ms: int,
) -> Transaction:
    """A producer has come, or has asked for a new epoch: no transaction is open."""
    return _next(
        before,
        TransactionState.EMPTY,
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=-1,
        updated_ms=wall_ms,
    )


def with_partitions(
    before: Transaction, added: frozenset[Partition], *, client_version: int, wall_ms: int
) -> Transaction:
    return _next(
        before,
        TransactionState.ONGOING,
        partitions=before.partitions | added,
        started_ms=before.started_ms if before.state is TransactionState.ONGOING else wall_ms,
        updated_ms=wall_ms,
        client_version=client_version,
    )


def prepared(
    before: Transaction,
    *,
    commit: bool,
    client_version: int,
    next_producer_id: int = NO_ID,
    wall_ms: int,
) -> Transaction:
    """Returns the decided transaction. With KIP-890 the decision raises the epoch: the markers
    carry the new one."""
    bumps = client_version >= BUMPS_EPOCH
    return _next(
        before,
        TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        epoch=min(before.epoch + 1, LAST_EPOCH) if bumps else before.epoch,
        last_epoch=before.epoch if bumps else before.last_epoch,
        next_producer_id=next_producer_id,
        started_ms=before.started_ms if before.state is TransactionState.ONGOING else wall_ms,
        updated_ms=wall_ms,
        client_version=client_version,
    )


def fenced(
    before: Transaction, *, client_version: int, next_producer_id: int = NO_ID, wall_ms: int
) -> Transaction:
    """The coordinator aborts it: the epoch is raised in any case, and the producer does not get it.
    With KIP-890 the producer may ask for what comes next, an epoch or an id, as if the answer to
    its own abort were lost."""
    aborted = prepared(
        before,
        commit=False,
        client_version=client_version,
        next_producer_id=next_producer_id,
        wall_ms=wall_ms,
    )
    last_epoch = before.epoch if client_version >= BUMPS_EPOCH else NO_EPOCH
    return replace(aborted, epoch=min(before.epoch + 1, LAST_EPOCH), last_epoch=last_epoch)


def completed(before: Transaction, *, wall_ms: int) -> Transaction:
    """Returns the transaction after every partition has its marker."""
    commit = before.state is TransactionState.PREPARE_COMMIT
    producer_id, epoch = before.producer_id, before.epoch
    if before.bumps_epoch and before.next_producer_id != NO_ID:
        producer_id, epoch = before.next_producer_id, 0
    return _next(
        before,
        TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT,
        producer_id=producer_id,
        epoch=epoch,
        next_producer_id=NO_ID,
        partitions=frozenset(),
        updated_ms=wall_ms,
    )


def _next(before: Transaction, state: TransactionState, **changes: object) -> Transaction:
    assert state in NEXT_STATES[before.state], f"{before.state.title} to {state.title}"
    changed = {"previous_producer_id": before.producer_id, "state": state, **changes}
    after = replace(before, **changed)  # type: ignore[arg-type]
    # A lower epoch would be fenced by the partitions, or let an older producer write again.
    is_same_producer = after.producer_id == before.producer_id
    assert not is_same_producer or after.epoch >= before.epoch, "a producer's epoch never falls"
    return after


# --- records


def to_record(transaction: Transaction, version: int) -> Record:
    """Version 0 of the value has no fields for what KIP-890 added."""
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
    value.transaction_partitions = None
    if transaction.state is not TransactionState.EMPTY:
        value.transaction_partitions = [
            PartitionsSchema(topic, indexes) for topic, indexes in by_topic(transaction.partitions)
        ]
    if version >= 1:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
    return Record(TransactionLogKey(transaction.id), value, version)


def from_value(transactional_id: str, value: TransactionLogValue) -> Transaction:
    if value.transaction_status not in TransactionState._value2member_map_:
        raise MalformedMessage(f"there is no transaction state {value.transaction_status}")
    return Transaction(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        TransactionState(value.transaction_status),
        frozenset(
            (found.topic, index)
            for found in value.transaction_partitions or ()
            for index in found.partition_ids
        ),
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        value.client_transaction_version,
        value.previous_producer_id,
        value.next_producer_id,
    )


def forgotten(transactional_id: str) -> Record:
    return Record(TransactionLogKey(transactional_id), None)


def by_topic(partitions: frozenset[Partition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return list(topics.items())
