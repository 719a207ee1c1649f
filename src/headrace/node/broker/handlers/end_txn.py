"""EndTxn, v0-5: commit or abort.

The answer leaves when the decision is recorded; the markers follow, on a node whose appends commit
at once before the answer does. v1 throttle time. v2 PRODUCER_FENCED. v3 flexible. v4
TRANSACTION_ABORTABLE. v5 the producer gets a new epoch with each end (KIP-890). Needs WRITE on the
transactional id.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.coordination.transaction.machine import Producer, TransactionMachine
from headrace.node.coordination.transaction.transaction import BUMPS_EPOCH
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.chain import chain
from headrace.node.serving.rights import TRANSACTIONAL_ID, may
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import end_txn as messages
from headrace.wire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

FIRST_VERSION_WITH_FENCED = 2
FIRST_VERSION_THAT_BUMPS = 5


def handle(broker: Broker, request: EndTxnRequest, call: Call) -> EndTxnResponse | WaitingRequest:
    version = call.version
    client_version = BUMPS_EPOCH if version >= FIRST_VERSION_THAT_BUMPS else 0
    if not may(broker, call, Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, version)
    if not request.transactional_id:
        return refused(ErrorCode.INVALID_REQUEST, version)

    def answer(found: Producer | ErrorCode) -> EndTxnResponse:
        if isinstance(found, Producer):
            return EndTxnResponse(0, ErrorCode.NONE, found.id, found.epoch)
        return refused(found, version)

    found = broker.transactions.ask_with_fresh_id(
        request.transactional_id,
        call.now,
        TransactionMachine.end,
        Producer(request.producer_id, request.producer_epoch),
        request.committed,
        client_version,
    )
    answered: EndTxnResponse | WaitingRequest = chain(broker.purgatory, found, answer)
    return answered


def refused(code: ErrorCode, version: int) -> EndTxnResponse:
    if code == ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(0, code)


API = Api(messages=messages, handle=handle, versions=range(0, 6))
