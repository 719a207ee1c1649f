"""AddOffsetsToTxn, v0-4: the offsets of a group become part of a transaction.

The added partition is the group's partition of `__consumer_offsets`. v1 throttle time. v2
PRODUCER_FENCED. v3 flexible. v4 TRANSACTION_ABORTABLE. Clients of KIP-890 do not send it:
TxnOffsetCommit v5 adds for them. Needs WRITE on the transactional id and READ on the group.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.admission import offsets_partition
from headrace.node.coordination.transaction.machine import Producer
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.chain import chain
from headrace.node.serving.rights import GROUP, TRANSACTIONAL_ID, require
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import add_offsets_to_txn as messages
from headrace.wire.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

FIRST_VERSION_WITH_FENCED = 2


def handle(
    broker: Broker, request: AddOffsetsToTxnRequest, call: Call
) -> AddOffsetsToTxnResponse | WaitingRequest:
    try:
        require(broker, call, Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
        require(broker, call, Operation.READ, GROUP, request.group_id)
        found = broker.transactions.add_partitions(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            frozenset([offsets_partition(broker, request.group_id)]),
            0,
            call.now,
        )
    except KafkaError as refusal:
        code = refusal.code
        if code == ErrorCode.PRODUCER_FENCED and call.version < FIRST_VERSION_WITH_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return AddOffsetsToTxnResponse(0, code)
    answer: AddOffsetsToTxnResponse | WaitingRequest = chain(
        broker.purgatory, found, lambda code: AddOffsetsToTxnResponse(0, code)
    )
    return answer


API = Api(messages=messages, handle=handle, versions=range(0, 5))
