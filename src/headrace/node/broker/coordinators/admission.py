"""Checks before an append that a write belongs to an open transaction.

A partition that has records of the transaction already needs no further check: they were admitted,
and the marker that ends the transaction also raises the epoch. The first record of a transaction is
admitted by the coordinator: older clients have added the partition before (the coordinator is
asked), clients of KIP-890 have not (the partition is added now). So a late message, whose
transaction has ended, meets neither condition and is refused.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from headrace.environment import Now
from headrace.node.broker.coordinators.admission_ahead import FIRST_PRODUCE_THAT_ADDS, Admitted
from headrace.node.broker.coordinators.partition_journal import journal_of
from headrace.node.coordination.transaction.machine import Producer
from headrace.node.coordination.transaction.transaction import BUMPS_EPOCH, Partition
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.chain import chain
from headrace.node.storage.append_rules import RecordsRefused
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.java_hash import partition_for_group
from headrace.wire.protocol.record_batch import HEADER_SIZE, PRODUCER_ID_AT

if TYPE_CHECKING:
    from headrace.node.broker.broker import Broker

# The first version of Produce whose clients know TRANSACTION_ABORTABLE.
FIRST_PRODUCE_WITH_ABORTABLE = 11
# The first version of TxnOffsetCommit that adds the partition itself and knows that code.
FIRST_COMMIT_THAT_ADDS = 5
FIRST_COMMIT_WITH_ABORTABLE = 4
# The coordinator cannot answer this now. Older clients know these only of a coordinator; this code
# makes them send again without asking for the metadata, as with Apache Kafka.
PASSING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
}
_PRODUCER = Struct(">qhi")  # id, epoch, first sequence


def require_admitted(
    broker: Broker,
    transactional_id: str | None,
    leader: PartitionLeader,
    records: Any,
    version: int,
    now: Now,
    ahead: Admitted | None,
) -> None:
    """Refuse a transactional batch whose transaction does not include this partition. `ahead` is
    the answer of the coordinator if it was asked before."""
    if transactional_id is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if len(records) < HEADER_SIZE:
        return  # no batch: the log refuses it
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, PRODUCER_ID_AT)
    producers = leader.log.producers
    if producers.has_open_transaction(producer_id, epoch):
        return
    known = producers.producers.get(producer_id)
    if known is not None and epoch < known.epoch:  # the coordinator may not know this id any more
        sentence = f"producer {producer_id} has epoch {known.epoch}, not {epoch}"
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, sentence)
    producer = Producer(producer_id, epoch)
    partition = (leader.topic, leader.index)
    adds = version >= FIRST_PRODUCE_THAT_ADDS
    try:
        if ahead is not None:
            ahead.require(partition, producer)
        elif adds:
            broker.transactions.add_partitions(
                transactional_id, producer, frozenset([partition]), BUMPS_EPOCH, now
            )
        elif broker.values["transaction.partition.verification.enable"]:
            verify(broker, transactional_id, producer, partition, now)
    except KafkaError as refusal:
        if not adds:
            broker.transactions.refused.note(partition, producer, sequence)
        code = as_told_to_producers(refusal.code, version)
        sentence = f"the transaction does not take this: {refusal.code.description}"
        raise KafkaError(code, sentence) from refusal
    if not adds:
        broker.transactions.refused.require_not_behind(partition, producer, sequence)
    if adds and sequence != 0 and (known is None or not known.batches):
        raise RecordsRefused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} began a transaction with sequence {sequence}, expected 0",
        )


def verify(
    broker: Broker, transactional_id: str, producer: Producer, partition: Partition, now: Now
) -> None:
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    machine = broker.transactions.machine_of(transactional_id, now)
    codes = machine.verify(transactional_id, producer, frozenset([partition])).response
    if codes[partition] != ErrorCode.NONE:
        raise KafkaError(codes[partition])


def as_told_to_producers(code: ErrorCode, version: int) -> ErrorCode:
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_PRODUCE_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if code == ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_PRODUCE_THAT_ADDS:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return ErrorCode.NOT_ENOUGH_REPLICAS if code in PASSING else code


# --- offsets


def offsets_partition(broker: Broker, group_id: str) -> Partition:
    """Returns the partition of `__consumer_offsets` that has a group's offsets."""
    topic = broker.image.topics.get(broker.groups.topic)
    if topic is None:
        count: int = broker.values["offsets.topic.num.partitions"]
    else:
        count = len(topic.partitions)
    return broker.groups.topic, partition_for_group(group_id, count)


def admit_offsets(
    broker: Broker,
    transactional_id: str,
    producer: Producer,
    group_id: str,
    version: int,
    now: Now,
) -> Any | WaitingRequest:
    """Returns NONE or a code, now or later; `version` is that of TxnOffsetCommit."""
    partition = offsets_partition(broker, group_id)
    if not broker.groups.partitions:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader = journal_of(broker.groups.shard_of(group_id)).leader
    known = leader.log.producers.producers.get(producer.id)
    if known is not None and producer.epoch < known.epoch:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if leader.log.producers.has_open_transaction(*producer):
        return ErrorCode.NONE
    adds = version >= FIRST_COMMIT_THAT_ADDS
    transactions = broker.transactions
    to = transactions.waits_for(transactional_id, adds=adds)
    try:
        if to is None and adds:
            return transactions.add_partitions(
                transactional_id, producer, frozenset([partition]), BUMPS_EPOCH, now
            )
        if to is None and broker.values["transaction.partition.verification.enable"]:
            verify(broker, transactional_id, producer, partition, now)
    except KafkaError as refusal:
        return as_told_to_committers(refusal.code, version)
    if to is None:
        return ErrorCode.NONE
    guard = transactions.guards.take(leader, producer)

    def admitted(codes: dict[Partition, ErrorCode] | ErrorCode) -> ErrorCode:
        transactions.guards.give_back(guard)
        code = codes[partition] if isinstance(codes, dict) else codes
        if code == ErrorCode.NONE and not guard.holds:
            code = ErrorCode.INVALID_TXN_STATE
        return as_told_to_committers(code, version)

    asked = transactions.ask_to_admit(
        to, transactional_id, producer, frozenset([partition]), now, adds=adds
    )
    return chain(broker.purgatory, asked, admitted)


def as_told_to_committers(code: ErrorCode, version: int) -> ErrorCode:
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_COMMIT_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if code == ErrorCode.NETWORK_EXCEPTION:
        # With this code older clients send again without looking for the coordinator, as in Apache.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return code
