"""AddPartitionsToTxn, v0-5: partitions become part of a transaction before they are written to.

All of a transaction's partitions are taken or none. v1 throttle time. v2 PRODUCER_FENCED. v3
flexible. v4 from brokers only: many transactions, and asking without adding (KIP-890). v5
TRANSACTION_ABORTABLE. Clients of KIP-890 do not send it: Produce v12 adds for them. Clients need
WRITE on the transactional id and on each topic, brokers CLUSTER_ACTION.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.groups import OFFSETS_TOPIC
from headrace.node.broker.coordinators.transactions import STATE_TOPIC
from headrace.node.coordination.transaction.machine import Producer, TransactionMachine
from headrace.node.coordination.transaction.transaction import BUMPS_EPOCH, Partition
from headrace.node.serving.api import Api, Call, WaitingRequest, require_few_partitions
from headrace.node.serving.chain import chain, one_after_the_other, or_refused
from headrace.node.serving.rights import TOPIC, TRANSACTIONAL_ID, may, require, require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import add_partitions_to_txn as messages
from headrace.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

WRITE = Operation.WRITE
FIRST_VERSION_WITH_FENCED = 2
FIRST_VERSION_OF_BROKERS = 4

Codes = dict[Partition, ErrorCode]


def handle(
    broker: Broker, request: AddPartitionsToTxnRequest, call: Call
) -> AddPartitionsToTxnResponse | WaitingRequest:
    if call.version >= FIRST_VERSION_OF_BROKERS:
        require_on_cluster(broker, call, Operation.CLUSTER_ACTION)
        transactions = request.transactions
    else:
        transactions = [
            AddPartitionsToTxnTransaction(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                False,
                request.v3_and_below_topics,
            )
        ]
    named = sum(len(topic.partitions) for each in transactions for topic in each.topics)
    require_few_partitions(messages.NAME, named)

    def finish(results: list[list[AddPartitionsToTxnTopicResult]]) -> AddPartitionsToTxnResponse:
        if call.version < FIRST_VERSION_OF_BROKERS:
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0])
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(wanted.transactional_id, found)
                for wanted, found in zip(transactions, results, strict=True)
            ]
        )

    tasks: list[Callable[[], Any | WaitingRequest]] = [
        lambda wanted=wanted: decide(broker, wanted, call)  # type: ignore[misc]
        for wanted in transactions
    ]
    answer: AddPartitionsToTxnResponse | WaitingRequest = one_after_the_other(
        broker.purgatory, tasks, finish
    )
    return answer


def decide(
    broker: Broker, wanted: AddPartitionsToTxnTransaction, call: Call
) -> list[AddPartitionsToTxnTopicResult] | WaitingRequest:
    partitions = [(topic.name, index) for topic in wanted.topics for index in topic.partitions]
    try:
        if call.version < FIRST_VERSION_OF_BROKERS:
            require(broker, call, WRITE, TRANSACTIONAL_ID, wanted.transactional_id)
    except KafkaError as denied:
        return by_topic(dict.fromkeys(partitions, denied.code))
    refused = faults_of(broker, partitions, call)
    if refused:
        codes = {each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}
        return by_topic(codes)

    def refuse(code: ErrorCode) -> list[AddPartitionsToTxnTopicResult]:
        if code == ErrorCode.PRODUCER_FENCED and call.version < FIRST_VERSION_WITH_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return by_topic(dict.fromkeys(partitions, code))

    try:
        found = ask(broker, wanted, frozenset(partitions), call)
    except KafkaError as refusal:
        return refuse(refusal.code)

    def answer(found: ErrorCode | Codes) -> list[AddPartitionsToTxnTopicResult]:
        if isinstance(found, dict):
            return by_topic({each: found[each] for each in partitions})
        return by_topic(dict.fromkeys(partitions, found))

    answered: list[AddPartitionsToTxnTopicResult] | WaitingRequest = or_refused(
        chain(broker.purgatory, found, answer), refuse
    )
    return answered


def ask(
    broker: Broker,
    wanted: AddPartitionsToTxnTransaction,
    partitions: frozenset[Partition],
    call: Call,
) -> Any | WaitingRequest:
    producer = Producer(wanted.producer_id, wanted.producer_epoch)
    if not wanted.verify_only:
        client_version = BUMPS_EPOCH if call.version >= FIRST_VERSION_OF_BROKERS else 0
        return broker.transactions.add_partitions(
            wanted.transactional_id, producer, partitions, client_version, call.now
        )
    if not wanted.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return broker.transactions.ask(
        wanted.transactional_id,
        call.now,
        TransactionMachine.verify,
        wanted.transactional_id,
        producer,
        partitions,
    )


def faults_of(broker: Broker, partitions: list[Partition], call: Call) -> Codes:
    refused: Codes = {}
    of_client = call.version < FIRST_VERSION_OF_BROKERS
    for topic, index in partitions:
        if of_client and (
            topic in (OFFSETS_TOPIC, STATE_TOPIC) or not may(broker, call, WRITE, TOPIC, topic)
        ):
            refused[topic, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        known = broker.image.topics.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            refused[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def by_topic(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (topic, index), code in codes.items():
        found = topics.setdefault(topic, AddPartitionsToTxnTopicResult(topic))
        found.results_by_partition.append(AddPartitionsToTxnPartitionResult(index, code))
    return list(topics.values())


API = Api(messages=messages, handle=handle, versions=range(0, 6))
