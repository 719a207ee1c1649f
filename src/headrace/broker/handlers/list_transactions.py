"""ListTransactions, v0-2: the transactional ids that this broker coordinates (KIP-664).

v1 only those that are open for longer than a duration (KIP-994). v2 only ids that a regular
expression matches as a whole (KIP-1152), in RE2's language: no pattern can stall the broker. Only
ids that one may DESCRIBE.
"""

from __future__ import annotations

from collections.abc import Callable

import re2

from headrace.broker.broker import Broker
from headrace.broker.coordinators.coordinator_waits import after_all
from headrace.coordination.transaction.states import BY_TITLE
from headrace.coordination.transaction.transaction import Transaction
from headrace.protocol.acls import Operation
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.messages import list_transactions as messages
from headrace.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from headrace.serving.api import Api, Call, WaitingRequest
from headrace.serving.rights import TRANSACTIONAL_ID, may

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # the client is told


def handle(
    broker: Broker, request: ListTransactionsRequest, call: Call
) -> ListTransactionsResponse | WaitingRequest:
    response = ListTransactionsResponse()
    try:
        matches = matcher(request.transactional_id_pattern)
    except KafkaError as refusal:
        response.error_code = refusal.code
        return response
    response.unknown_state_filters = [
        name for name in request.state_filters if name not in BY_TITLE
    ]
    for machine in broker.transactions.machines(call.now):
        response.transaction_states += [
            TransactionState(found.id, found.producer_id, found.state.title)
            for found in machine.transactions.values()
            if is_wanted(found, request, call.now.wall_ms)
            and matches(found.id)
            and may(broker, call, Operation.DESCRIBE, TRANSACTIONAL_ID, found.id, quietly=True)
        ]
    told: ListTransactionsResponse | WaitingRequest = after_all(
        broker.transactions.uncommitted(call.now), response
    )
    return told


def matcher(pattern: str | None) -> Callable[[str], object]:
    """True for ids that are wanted."""
    if not pattern:
        return lambda transactional_id: True
    try:
        matches: Callable[[str], object] = re2.compile(pattern, _OPTIONS).fullmatch
    except re2.error as fault:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(fault)) from fault
    return matches


def is_wanted(found: Transaction, request: ListTransactionsRequest, wall_ms: int) -> bool:
    if request.producer_id_filters and found.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and found.state.title not in request.state_filters:
        return False
    return request.duration_filter < 0 or wall_ms - found.started_ms > request.duration_filter


API = Api(messages=messages, handle=handle, versions=range(0, 3))
