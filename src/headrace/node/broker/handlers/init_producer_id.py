"""InitProducerId, v0-5: an identity for an idempotent or transactional producer.

A producer without a transactional id gets a fresh id with epoch 0; one that names its old id gets
a new one too (KIP-360: the broker keeps no state of it). Ids come in blocks from the controller.
A producer with a transactional id gets the id that belongs to it and the next epoch, which fences
the producer before it; a transaction that was left open is aborted first, and the client retries.
v2 flexible. v3 producer id and epoch. v4 PRODUCER_FENCED. v5 TRANSACTION_ABORTABLE (KIP-890). Needs
WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on any topic.
Not done: two-phase commit (v6, KIP-939).
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.coordination.transaction.machine import Producer, TransactionMachine
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.chain import chain
from headrace.node.serving.rights import (
    CLUSTER,
    TOPIC,
    TRANSACTIONAL_ID,
    may_on_cluster,
    may_somewhere,
    require,
)
from headrace.wire.protocol.acls import CLUSTER_NAME, Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import init_producer_id as messages
from headrace.wire.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

FIRST_VERSION_WITH_FENCED = 4


def handle(
    broker: Broker, request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse | WaitingRequest:
    try:
        require_may_write(broker, request.transactional_id, call)
    except KafkaError as denied:
        return refused(denied.code, call.version)
    refusal = fault_of(request, broker.values["transaction.max.timeout.ms"])
    if refusal is not None:
        return refused(refusal, call.version)
    if request.transactional_id is None:
        return without_transactions(broker, call)
    return for_transactions(broker, request.transactional_id, request, call)


def require_may_write(broker: Broker, transactional_id: str | None, call: Call) -> None:
    if transactional_id is not None:
        require(broker, call, Operation.WRITE, TRANSACTIONAL_ID, transactional_id)
    elif not may_on_cluster(
        broker, call, Operation.IDEMPOTENT_WRITE, quietly=True
    ) and not may_somewhere(broker, call, Operation.WRITE, TOPIC):
        require(broker, call, Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)


def fault_of(request: InitProducerIdRequest, longest_ms: int) -> ErrorCode | None:
    if request.transactional_id == "" or (request.producer_id < 0) != (request.producer_epoch < 0):
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is None:
        return None
    if not 0 < request.transaction_timeout_ms <= longest_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return None


def without_transactions(broker: Broker, call: Call) -> InitProducerIdResponse | WaitingRequest:
    try:
        answer: InitProducerIdResponse | WaitingRequest = broker.producer_ids.next(
            lambda producer_id: InitProducerIdResponse(0, ErrorCode.NONE, producer_id, 0), call.now
        )
    except KafkaError as refusal:
        return refused(refusal.code, call.version)
    return answer


def for_transactions(
    broker: Broker, transactional_id: str, request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse | WaitingRequest:
    expected = None
    if request.producer_id >= 0:
        expected = Producer(request.producer_id, request.producer_epoch)

    def answer(found: Producer | ErrorCode) -> InitProducerIdResponse:
        if isinstance(found, Producer):
            return InitProducerIdResponse(0, ErrorCode.NONE, found.id, found.epoch)
        return refused(found, call.version)

    found = broker.transactions.ask_with_fresh_id(
        transactional_id,
        call.now,
        TransactionMachine.init_producer,
        request.transaction_timeout_ms,
        expected,
        if_unknown=True,
    )
    answered: InitProducerIdResponse | WaitingRequest = chain(broker.purgatory, found, answer)
    return answered


def refused(code: ErrorCode, version: int) -> InitProducerIdResponse:
    if code == ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(0, code, -1, -1)


API = Api(messages=messages, handle=handle, versions=range(0, 6))
