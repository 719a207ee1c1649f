"""ListTransactions, v0-2: the transactional ids that this broker coordinates (KIP-664).

v1 only those that are open for longer than a duration (KIP-994). v2 only ids that a regular
expression matches as a whole (KIP-1152), in RE2's language: no pattern can stall the broker. Only
ids that one may DESCRIBE.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.coordinator_waits import after_all
from headrace.node.coordination.patterns import WORK_PER_NAME, WORK_PER_STEP, Pattern
from headrace.node.coordination.transaction.machine import TransactionMachine
from headrace.node.coordination.transaction.states import BY_TITLE
from headrace.node.coordination.transaction.transaction import Transaction
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import TRANSACTIONAL_ID, may
from headrace.node.steps import Steps, at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import KafkaError
from headrace.wire.protocol.messages import list_transactions as messages
from headrace.wire.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

IDS_PER_STEP = 200
WORK_AT_ONCE = 2 * WORK_PER_STEP


def handle(broker: Broker, request: ListTransactionsRequest, call: Call) -> Any:
    """Answers at once for few ids, else in steps; the steps are the same."""
    response = ListTransactionsResponse()
    try:
        pattern = pattern_of(request.transactional_id_pattern)
    except KafkaError as refusal:
        response.error_code = refusal.code
        return response
    machines = list(broker.transactions.machines(call.now))
    count = sum(len(machine.transactions) for machine in machines)
    steps = list_steps(broker, request, call, pattern, machines, response)
    work = count * (WORK_PER_NAME if pattern is None else pattern.work_per_name)
    return steps if work > WORK_AT_ONCE else at_once(steps)


def list_steps(
    broker: Broker,
    request: ListTransactionsRequest,
    call: Call,
    pattern: Pattern | None,
    machines: list[TransactionMachine],
    response: ListTransactionsResponse,
) -> Steps:
    response.unknown_state_filters = [
        name for name in request.state_filters if name not in BY_TITLE
    ]
    states, producers = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    yield
    for machine in machines:
        known = machine.transactions
        ids = [
            found.id
            for found in known.values()
            if is_wanted(found, request, states, producers, call.now.wall_ms)
        ]
        yield
        if pattern is not None:
            matched = yield from pattern.matching(ids)
            ids = [one for one in ids if one in matched]
        for number, one in enumerate(ids):
            if number % IDS_PER_STEP == 0:
                yield
            found = known.get(one)
            if found is not None and may(
                broker, call, Operation.DESCRIBE, TRANSACTIONAL_ID, one, quietly=True
            ):
                state = TransactionState(one, found.producer_id, found.state.title)
                response.transaction_states.append(state)
    return after_all(broker.transactions.uncommitted(call.now), response)


def pattern_of(pattern: str | None) -> Pattern | None:
    """Returns None if all ids match."""
    return Pattern(pattern, "TransactionalIdPattern") if pattern else None


def is_wanted(
    found: Transaction,
    request: ListTransactionsRequest,
    states: Collection[str],
    producers: Collection[int],
    wall_ms: int,
) -> bool:
    if producers and found.producer_id not in producers:
        return False
    if states and found.state.title not in states:
        return False
    return request.duration_filter < 0 or wall_ms - found.started_ms > request.duration_filter


API = Api(messages=messages, handle=handle, versions=range(0, 3))
