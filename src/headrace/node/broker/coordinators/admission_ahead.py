"""Admission to a transaction that must wait: asked for before the records are appended.

A batch takes this path if another broker coordinates the transaction, which is asked by
AddPartitionsToTxn, or if the partition that the coordinator adds is not committed at once. The
request waits, and no other request of its connection is read meanwhile, so that batches keep their
order.

A transaction may end while its partition waits for the answer: the answer admits the write, and the
marker is in the log already. A record after that marker would be in a transaction that is never
ended. So a marker breaks the `Guard` of a request that waits to write there, and the record is
refused. With KIP-890 the marker has a higher epoch than its transaction's records, and the
producer's next transaction begins with that epoch: such a marker does not affect requests that wait
with its own epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Any

from headrace.environment import Now
from headrace.node.broker.cluster.broker_requests import BrokerRequests, code_of
from headrace.node.coordination.transaction.machine import Producer
from headrace.node.coordination.transaction.transaction import Partition, by_topic
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.api import Call, WaitingRequest
from headrace.node.serving.chain import chain
from headrace.node.serving.rights import TOPIC, may
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import add_partitions_to_txn as messages
from headrace.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.protocol.messages.produce import ProduceRequest
from headrace.wire.protocol.record_batch import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    PRODUCER_ID_AT,
    TRANSACTIONAL,
)

if TYPE_CHECKING:
    from headrace.node.broker.broker import Broker

LANE = "transaction-verification"
LOW_ATTRIBUTES_AT = ATTRIBUTES_AT + 1
# The first version of Produce that adds the partition to the transaction itself.
FIRST_PRODUCE_THAT_ADDS = 12
_PRODUCER = Struct(">qh")  # id, epoch

Codes = dict[Partition, ErrorCode]


@dataclass(slots=True, eq=False)
class Guard:
    """A transactional write to a partition that waits until it is admitted."""

    leader: PartitionLeader
    led_since: int
    producer: Producer
    users: int = 0
    broken: bool = False  # its transaction has ended, or the producer has a newer epoch

    @property
    def holds(self) -> bool:
        return not self.broken and self.leader.led_since == self.led_since


class Guards:
    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[tuple[Partition, int], Guard] = {}  # by partition and producer id

    def take(self, leader: PartitionLeader, producer: Producer) -> Guard:
        key = (leader.topic, leader.index), producer.id
        guard = self._guards.get(key)
        if guard is None or not guard.holds or guard.producer.epoch < producer.epoch:
            if guard is not None:
                guard.broken = True  # a guard that was removed could not be broken any more
            guard = self._guards[key] = Guard(leader, leader.led_since, producer)
        elif guard.producer.epoch > producer.epoch:
            guard = Guard(leader, leader.led_since, producer, broken=True)
        guard.users += 1
        return guard

    def give_back(self, guard: Guard) -> None:
        guard.users -= 1
        key = (guard.leader.topic, guard.leader.index), guard.producer.id
        if not guard.users and self._guards.get(key) is guard:
            del self._guards[key]

    def marker_written(
        self, topic: str, index: int, producer: Producer, *, bumps_epoch: bool
    ) -> None:
        """`producer` has the marker's epoch; `bumps_epoch` if that is higher than the records'."""
        if not self._guards:
            return
        key = (topic, index), producer.id
        guard = self._guards.get(key)
        last_ended = producer.epoch - 1 if bumps_epoch else producer.epoch
        if guard is not None and guard.producer.epoch <= last_ended:
            del self._guards[key]
            guard.broken = True


@dataclass(slots=True)
class Admitted:
    """The coordinator's answers for the partitions that one request writes to."""

    producer: Producer
    guards: dict[Partition, Guard]
    codes: Codes

    def require(self, partition: Partition, producer: Producer) -> None:
        """Raises the refusal of the coordinator, or a refusal if the answer is too old."""
        if producer != self.producer or partition not in self.codes:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self.codes[partition] != ErrorCode.NONE:
            raise KafkaError(self.codes[partition])
        if not self.guards[partition].holds:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, "the transaction has ended while it was asked for"
            )


@dataclass(slots=True, eq=False)
class Question:
    """A request to the coordinator: are these partitions in the transaction, or add them to it."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[Partition]
    verify_only: bool
    codes: Codes | None = None
    waiting: dict[Any, None] = field(default_factory=dict)

    def goes_with(self, other: Question) -> bool:
        return (self.producer, self.verify_only) == (other.producer, other.verify_only)


class CoordinatorsElsewhere:
    """Asks the transaction coordinators on other brokers."""

    __slots__ = ("_broker", "_requests")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._requests: BrokerRequests[Question] = BrokerRequests(
            broker, LANE, messages, request_of, self._answered
        )

    def tick(self) -> None:
        self._requests.tick()

    def ask(self, to: int, question: Question, now: Now) -> WaitingRequest:
        """Waits for the codes of the partitions."""
        self._requests.add(to, question)
        self._requests.send()

        def attempt(expired: bool) -> Codes | None:
            if question.codes is None and expired:
                return dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION)
            return question.codes

        deadline_ms = now.monotonic_ms + self._broker.values["request.timeout.ms"]
        return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[question], mutes=True)

    def _answered(
        self, questions: list[Question], answer: AddPartitionsToTxnResponse | None
    ) -> None:
        sent = newest_of(questions)
        told = codes_in(answer)
        for question in questions:
            question.codes = {
                each: told.get((question.transactional_id, each), ErrorCode.NETWORK_EXCEPTION)
                if question.goes_with(sent[question.transactional_id])
                else ErrorCode.NETWORK_EXCEPTION
                for each in question.partitions
            }
            self._broker.purgatory.wake(question)


def newest_of(questions: Iterable[Question]) -> dict[str, Question]:
    """Answers tell transactions apart by their ids alone. If two producers have one id, only the
    later one is asked for; the other request is retried."""
    return {question.transactional_id: question for question in questions}


def request_of(questions: list[Question]) -> AddPartitionsToTxnRequest:
    transactions = []
    for newest in newest_of(questions).values():
        partitions = frozenset[Partition]().union(
            *(
                each.partitions
                for each in questions
                if each.transactional_id == newest.transactional_id and each.goes_with(newest)
            )
        )
        transactions.append(
            AddPartitionsToTxnTransaction(
                newest.transactional_id,
                *newest.producer,
                newest.verify_only,
                [AddPartitionsToTxnTopic(*found) for found in by_topic(partitions)],
            )
        )
    return AddPartitionsToTxnRequest(transactions=transactions)


def codes_in(
    answer: AddPartitionsToTxnResponse | None,
) -> dict[tuple[str, Partition], ErrorCode]:
    if answer is None:
        return {}
    # A coordinator that does not accept this broker as a broker sends one error for the whole
    # request.
    refused = answer.error_code and ErrorCode.INVALID_TXN_STATE
    return {
        (result.transactional_id, (topic.name, part.partition_index)): refused
        or code_of(part.partition_error_code)
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for part in topic.results_by_partition
    }


# --- Produce


def admit_ahead(
    broker: Broker, request: ProduceRequest, call: Call, go_on: Callable[[Admitted], Any]
) -> Any | WaitingRequest | None:
    """Waits for the coordinator's answer and then runs `go_on` with it. Returns None if there is
    nothing to wait for."""
    transactional_id = request.transactional_id
    if not transactional_id or request.acks == 0:  # acks=0 has no answer to refuse in
        return None
    adds = call.version >= FIRST_PRODUCE_THAT_ADDS
    transactions = broker.transactions
    to = transactions.waits_for(transactional_id, adds=adds)
    if to is None:
        return None
    wanted = wanted_of(broker, request, call)
    if not wanted:
        return None
    producer, leaders = next(iter(wanted.items()))  # a sane client names one producer
    guards = {
        partition: transactions.guards.take(leader, producer)
        for partition, leader in leaders.items()
    }

    def admitted(codes: Codes | ErrorCode) -> Any | WaitingRequest:
        if not isinstance(codes, dict):
            codes = dict.fromkeys(guards, codes)
        try:
            return go_on(Admitted(producer, guards, codes))
        finally:
            for guard in guards.values():
                transactions.guards.give_back(guard)

    asked = transactions.ask_to_admit(
        to, transactional_id, producer, frozenset(leaders), call.now, adds=adds
    )
    return chain(broker.purgatory, asked, admitted)


def wanted_of(
    broker: Broker, request: ProduceRequest, call: Call
) -> dict[Producer, dict[Partition, PartitionLeader]]:
    """Returns the partitions that have no records of the transaction yet, by producer."""
    wanted: dict[Producer, dict[Partition, PartitionLeader]] = {}
    for data in request.topic_data:
        topic = broker.topics.by_id.get(data.topic_id) or broker.topics.by_name.get(data.name)
        if topic is None or not may(broker, call, Operation.WRITE, TOPIC, topic.name, quietly=True):
            continue
        for part in data.partition_data:
            records = part.records
            if records is None or len(records) < HEADER_SIZE:
                continue
            if not records[LOW_ATTRIBUTES_AT] & TRANSACTIONAL:
                continue
            producer_id, epoch = _PRODUCER.unpack_from(records, PRODUCER_ID_AT)
            leader = topic.leader_if_here(part.index)
            if leader is None or leader.log.producers.has_open_transaction(producer_id, epoch):
                continue
            found = wanted.setdefault(Producer(producer_id, epoch), {})
            found[leader.topic, leader.index] = leader
    return wanted
