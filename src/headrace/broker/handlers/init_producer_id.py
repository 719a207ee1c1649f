"""InitProducerId, v0-5: an identity for an idempotent producer.

A producer without a transactional id gets a fresh id with epoch 0; one that names its old id gets
a new one too (KIP-360: the broker keeps no state of it). Ids come in blocks from the controller.
v2 flexible. v3 producer id and epoch. v4, v5 new errors. Not done: transactional ids.
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import init_producer_id as messages
from headrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headrace.serving.api import Api, Call, Parked


def handle(
    broker: Broker, request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse | Parked:
    refusal = fault_of(request, broker.values["transaction.max.timeout.ms"])
    if refusal is not None:
        return InitProducerIdResponse(0, refusal, -1, -1)
    answer: InitProducerIdResponse | Parked = broker.producer_ids.next(
        lambda producer_id: InitProducerIdResponse(0, ErrorCode.NONE, producer_id, 0), call.now
    )
    return answer


def fault_of(request: InitProducerIdRequest, longest_ms: int) -> ErrorCode | None:
    if request.transactional_id == "" or (request.producer_id < 0) != (request.producer_epoch < 0):
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is None:
        return None
    if not 0 < request.transaction_timeout_ms <= longest_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    # No coordinator for transactions yet: the client must not believe it has one.
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


API = Api(messages=messages, handle=handle, versions=range(0, 6))
