"""DescribeTransactions, v0: the state of transactional ids (KIP-664).

The answer contains nothing that a power cut could remove. Needs DESCRIBE on each transactional id,
and shows only topics that one may DESCRIBE.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.coordinator_waits import after_all, refused_alone
from headrace.node.coordination.transaction.machine import TransactionMachine
from headrace.node.coordination.transaction.transaction import Transaction, by_topic
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import TOPIC, TRANSACTIONAL_ID, may, require
from headrace.node.steps import at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import describe_transactions as messages
from headrace.wire.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

DESCRIBE = Operation.DESCRIBE


def handle(
    broker: Broker, request: DescribeTransactionsRequest, call: Call
) -> DescribeTransactionsResponse | WaitingRequest:
    return at_once(handle_large(broker, request, call))


def handle_large(
    broker: Broker, request: DescribeTransactionsRequest, call: Call
) -> Generator[None, None, DescribeTransactionsResponse | WaitingRequest]:
    found = []
    waits: list[WaitingRequest] = []
    seen: set[str] = set()
    for transactional_id in request.transactional_ids:
        yield
        if transactional_id in seen:
            continue
        seen.add(transactional_id)
        already = len(waits)
        try:
            found.append(describe(broker, transactional_id, call, waits))
        except KafkaError as refusal:
            found.append(TransactionState(refusal.code, transactional_id))
        refused_alone(
            waits[already:], found, partial(TransactionState, transactional_id=transactional_id)
        )
    told: DescribeTransactionsResponse | WaitingRequest = after_all(
        waits, DescribeTransactionsResponse(0, found)
    )
    return told


def describe(
    broker: Broker, transactional_id: str, call: Call, waits: list[WaitingRequest]
) -> TransactionState:
    require(broker, call, DESCRIBE, TRANSACTIONAL_ID, transactional_id)
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    found: Transaction = broker.transactions.look(
        transactional_id, call.now, TransactionMachine.look_at, waits
    )
    return TransactionState(
        ErrorCode.NONE,
        transactional_id,
        found.state.title,
        found.timeout_ms,
        found.started_ms,
        found.producer_id,
        found.epoch,
        [
            TopicData(topic, indexes)
            for topic, indexes in by_topic(found.partitions)
            if may(broker, call, DESCRIBE, TOPIC, topic, quietly=True)
        ],
    )


API = Api(messages=messages, handle=handle, versions=range(0, 1), handle_large=handle_large)
