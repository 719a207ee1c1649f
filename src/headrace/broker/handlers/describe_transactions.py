"""DescribeTransactions, v0: what is known of transactional ids (KIP-664)."""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.coordination.transaction.transaction import by_topic
from headrace.environment import Now
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.messages import describe_transactions as messages
from headrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from headrace.serving.api import Api, Call


def handle(
    broker: Broker, request: DescribeTransactionsRequest, call: Call
) -> DescribeTransactionsResponse:
    found = []
    for transactional_id in request.transactional_ids:
        try:
            found.append(describe(broker, transactional_id, call.now))
        except KafkaError as refusal:
            found.append(TransactionState(refusal.code, transactional_id))
    return DescribeTransactionsResponse(0, found)


def describe(broker: Broker, transactional_id: str, now: Now) -> TransactionState:
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    machine = broker.transactions.machine_of(transactional_id, now)
    found = machine.transactions.get(transactional_id)
    if found is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return TransactionState(
        ErrorCode.NONE,
        transactional_id,
        found.state.title,
        found.timeout_ms,
        found.started_ms,
        found.producer_id,
        found.epoch,
        [TopicData(topic, indexes) for topic, indexes in by_topic(found.partitions)],
    )


API = Api(messages=messages, handle=handle, versions=range(0, 1))
