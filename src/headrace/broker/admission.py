"""Does this write belong to an open transaction: asked at the partition, before it is appended.

A partition that has records of the transaction already needs to ask nobody: they were admitted, and
the marker that ends it also raises the epoch. The first record of a transaction is admitted by the
coordinator: older clients have told it of the partition before (it is asked), clients of KIP-890
have not (the partition is added now). So a message that comes late, when its transaction has ended,
finds neither the one nor the other and is refused.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from headrace.coordination.transaction.machine import Producer
from headrace.coordination.transaction.transaction import BUMPS_EPOCH, Partition
from headrace.environment import Now
from headrace.protocol.acls import Operation
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.java_hash import partition_for_group
from headrace.protocol.messages.produce import ProduceRequest
from headrace.protocol.record_batch import HEADER_SIZE, PRODUCER_ID_AT
from headrace.replication.replica import PartitionLeader
from headrace.serving.api import Call, Parked
from headrace.serving.rights import TOPIC, may
from headrace.storage.append_rules import RecordsRefused

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

WRITE = Operation.WRITE
# Produce: from which version the partition is added, a client knows TRANSACTION_ABORTABLE.
FIRST_PRODUCE_THAT_ADDS = 12
FIRST_PRODUCE_WITH_ABORTABLE = 11
# The same of TxnOffsetCommit.
FIRST_COMMIT_THAT_ADDS = 5
FIRST_COMMIT_WITH_ABORTABLE = 4
# What the coordinator cannot say now. Older clients know these only of a coordinator; this code
# makes them send again without asking for the metadata, as with Apache Kafka.
PASSING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
_PRODUCER = Struct(">qhi")  # id, epoch, first sequence
MOST_REFUSED = 10_000


class RefusedSequences:
    """Where older clients began to write before their transaction knew the partition.

    They send several batches before they hear of the first. If that is refused, the next one must
    not be taken in its place when the partition has become known, or their order is lost; a
    partition that knows nothing of the producer would take any sequence. Kept in memory only, as
    by Apache Kafka; the oldest are forgotten.
    """

    __slots__ = ("_lowest",)

    def __init__(self) -> None:
        # partition and producer id -> epoch, lowest sequence
        self._lowest: dict[tuple[Partition, int], tuple[int, int]] = {}

    def note(self, partition: Partition, producer: Producer, sequence: int) -> None:
        key = partition, producer.id
        epoch, lowest = self._lowest.get(key, (producer.epoch, sequence))
        if epoch <= producer.epoch:
            first = min(lowest, sequence) if epoch == producer.epoch else sequence
            self._lowest[key] = producer.epoch, first
            if len(self._lowest) > MOST_REFUSED:
                del self._lowest[next(iter(self._lowest))]

    def require_not_behind(self, partition: Partition, producer: Producer, sequence: int) -> None:
        if not self._lowest:
            return
        key = partition, producer.id
        epoch, lowest = self._lowest.get(key, (-1, 0))
        if epoch == producer.epoch and sequence > lowest:
            raise RecordsRefused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer.id} sent sequence {sequence}, {lowest} was refused before it",
            )
        self._lowest.pop(key, None)


def require_admitted(
    broker: Broker,
    transactional_id: str | None,
    leader: PartitionLeader,
    records: Any,
    version: int,
    now: Now,
) -> None:
    """Refuse a transactional batch whose transaction does not know this partition."""
    if transactional_id is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if len(records) < HEADER_SIZE:
        return  # no batch: the log says so
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
        if adds:
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


def admit_ahead(broker: Broker, request: ProduceRequest, call: Call) -> Any | Parked:
    """With durability `disk`: what the request adds must be on the disk before its records.

    Parked while that takes; anything else: go on. Whatever is refused here is refused again, with
    its code, when the records come to their partitions.
    """
    if call.version < FIRST_PRODUCE_THAT_ADDS or not request.transactional_id:
        return None
    added: dict[Producer, set[Partition]] = {}
    for data in request.topic_data:
        topic = broker.topics.by_id.get(data.topic_id) or broker.topics.by_name.get(data.name)
        if topic is None or not may(broker, call, WRITE, TOPIC, topic.name, quietly=True):
            continue
        for part in data.partition_data:
            if part.records is None or len(part.records) < HEADER_SIZE:
                continue
            producer_id, epoch, _ = _PRODUCER.unpack_from(part.records, PRODUCER_ID_AT)
            leader = topic.leader_if_here(part.index)
            if leader is None or leader.log.producers.has_open_transaction(producer_id, epoch):
                continue
            partition = (leader.topic, leader.index)
            added.setdefault(Producer(producer_id, epoch), set()).add(partition)
    try:
        for producer, partitions in added.items():  # there is one, if the client is sane
            return broker.transactions.add_partitions(
                request.transactional_id, producer, frozenset(partitions), BUMPS_EPOCH, call.now
            )
    except KafkaError:
        return None
    return None


# --- offsets


def offsets_partition(broker: Broker, group_id: str) -> Partition:
    """Where a group's offsets lie."""
    count = broker.groups.partitions or broker.values["offsets.topic.num.partitions"]
    return broker.groups.topic, partition_for_group(group_id, count)


def admit_offsets(
    broker: Broker,
    transactional_id: str,
    producer: Producer,
    group_id: str,
    version: int,
    now: Now,
) -> Any | Parked:
    """NONE, now or later; refusals are raised. `version` is TxnOffsetCommit's."""
    adds = version >= FIRST_COMMIT_THAT_ADDS
    partition = offsets_partition(broker, group_id)
    if not broker.groups.partitions:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader = broker.topics.leader(*partition)
    known = leader.log.producers.producers.get(producer.id)
    if known is not None and producer.epoch < known.epoch:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if leader.log.producers.has_open_transaction(*producer):
        return ErrorCode.NONE
    try:
        if adds:
            return broker.transactions.add_partitions(
                transactional_id, producer, frozenset([partition]), BUMPS_EPOCH, now
            )
        if broker.values["transaction.partition.verification.enable"]:
            verify(broker, transactional_id, producer, partition, now)
    except KafkaError as refusal:
        if refusal.code == ErrorCode.PRODUCER_FENCED:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH) from refusal
        if (
            refusal.code == ErrorCode.TRANSACTION_ABORTABLE
            and version < FIRST_COMMIT_WITH_ABORTABLE
        ):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE) from refusal
        raise
    return ErrorCode.NONE
