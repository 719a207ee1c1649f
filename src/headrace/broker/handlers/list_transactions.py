"""ListTransactions, v0-1: the transactional ids that this broker coordinates (KIP-664).

v1 only those that are open for longer than a duration (KIP-994).
Not done: v2, ids by a regular expression (KIP-1152).
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.coordination.transaction.states import BY_TITLE
from headrace.coordination.transaction.transaction import Transaction
from headrace.protocol.messages import list_transactions as messages
from headrace.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from headrace.serving.api import Api, Call


def handle(
    broker: Broker, request: ListTransactionsRequest, call: Call
) -> ListTransactionsResponse:
    response = ListTransactionsResponse()
    response.unknown_state_filters = [
        name for name in request.state_filters if name not in BY_TITLE
    ]
    for machine in broker.transactions.machines(call.now):
        response.transaction_states += [
            TransactionState(found.id, found.producer_id, found.state.title)
            for found in machine.transactions.values()
            if is_wanted(found, request, call.now.wall_ms)
        ]
    return response


def is_wanted(found: Transaction, request: ListTransactionsRequest, wall_ms: int) -> bool:
    if request.producer_id_filters and found.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and found.state.title not in request.state_filters:
        return False
    return request.duration_filter < 0 or wall_ms - found.started_ms > request.duration_filter


API = Api(messages=messages, handle=handle, versions=range(0, 2))
