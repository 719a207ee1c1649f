"""WriteTxnMarkers, v1-2: a coordinator ends transactions in the partitions of this broker.

On this node the coordinator does so without it; it serves other brokers' coordinators and
`headrace transactions abort`, which ends a transaction that its coordinator has forgotten.
v2 the transaction's version: from 2 on a marker must raise the epoch (KIP-890). Needs ALTER or
CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.coordination.transaction.transaction import BUMPS_EPOCH
from headrace.protocol.acls import Operation
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.messages import write_txn_markers as messages
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headrace.replication.replica import PartitionLeader
from headrace.serving.api import Api, Call, Parked
from headrace.serving.rights import may_on_cluster

# As long as Apache Kafka waits for its replicas here (request.timeout.ms).
WAIT_MS = 30_000

Written = list[tuple[PartitionLeader, int]]


def handle(
    broker: Broker, request: WriteTxnMarkersRequest, call: Call
) -> WriteTxnMarkersResponse | Parked:
    written: Written = []
    allowed = may_on_cluster(broker, call, Operation.ALTER, quietly=True) or may_on_cluster(
        broker, call, Operation.CLUSTER_ACTION
    )
    codes: dict[int, dict[str, dict[int, ErrorCode]]] = {}  # what is named twice is told once
    for marker in request.markers:
        topics = codes.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            found = topics.setdefault(topic.name, {})
            for index in topic.partition_indexes:
                found[index] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if allowed:
                    found[index] = write(
                        broker, marker, topic.name, index, call.now.wall_ms, written
                    )
    response = WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        name,
                        [WritableTxnMarkerPartitionResult(*pair) for pair in found.items()],
                    )
                    for name, found in topics.items()
                ],
            )
            for producer_id, topics in codes.items()
        ]
    )
    late = [each for each in written if each[0].high_watermark < each[1]]
    if not late:
        return response

    def attempt(expired: bool) -> WriteTxnMarkersResponse | None:
        done = all(leader.high_watermark >= offset for leader, offset in late)
        return response if done or expired else None

    deadline_ms = call.now.monotonic_ms + WAIT_MS
    return Parked(attempt, deadline_ms=deadline_ms, hangs_on=[leader for leader, _ in late])


def write(
    broker: Broker,
    marker: WritableTxnMarker,
    topic: str,
    index: int,
    wall_ms: int,
    written: Written,
) -> ErrorCode:
    if marker.producer_id < 0:
        return ErrorCode.INVALID_REQUEST  # a batch with this id is of no producer at all
    try:
        leader = broker.topics.leader(topic, index)
        end_offset = leader.append_marker(
            wall_ms,
            commit=marker.transaction_result,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            bumps_epoch=marker.transaction_version >= BUMPS_EPOCH,
        )
    except KafkaError as refusal:
        return refusal.code
    broker.coordinator_appended(leader)
    written.append((leader, end_offset))
    return ErrorCode.NONE


API = Api(messages=messages, handle=handle, versions=range(1, 3))
