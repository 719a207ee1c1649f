"""WriteTxnMarkers, v1-2: a coordinator ends transactions in the partitions of this broker.

On this node the coordinator does so without it; it serves other brokers' coordinators and
`headrace transactions abort`, which ends a transaction that its coordinator has forgotten.
v2 the transaction's version: from 2 on a marker must raise the epoch (KIP-890). Needs ALTER or
CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from headrace.node.broker.broker import Broker
from headrace.node.coordination.transaction.machine import Producer
from headrace.node.coordination.transaction.transaction import BUMPS_EPOCH
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.rights import may_on_cluster
from headrace.node.steps import Steps, at_once
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import write_txn_markers as messages
from headrace.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

Codes = dict[tuple[int, str, int], ErrorCode]  # by producer, topic and partition


@dataclass(slots=True)
class Written:
    """A marker that is in its log and not committed yet."""

    key: tuple[int, str, int]
    leader: PartitionLeader
    end_offset: int
    led_since: int


def handle(
    broker: Broker, request: WriteTxnMarkersRequest, call: Call
) -> WriteTxnMarkersResponse | WaitingRequest:
    allowed = may_write(broker, call)
    late: list[Written] = []
    codes = at_once(write_all(broker, request, call, allowed, late))
    if not late:
        return at_once(response_of(codes))
    return when_committed(broker, call, codes, late, lambda codes: at_once(response_of(codes)))


def handle_large(broker: Broker, request: WriteTxnMarkersRequest, call: Call) -> Steps:
    """Markers are independent of one another: other requests run between two of them."""
    allowed = may_write(broker, call)
    late: list[Written] = []
    codes = yield from write_all(broker, request, call, allowed, late)
    if not late:
        return (yield from response_of(codes))
    return when_committed(broker, call, codes, late, response_of)


def may_write(broker: Broker, call: Call) -> bool:
    return may_on_cluster(broker, call, Operation.ALTER, quietly=True) or may_on_cluster(
        broker, call, Operation.CLUSTER_ACTION
    )


def write_all(
    broker: Broker,
    request: WriteTxnMarkersRequest,
    call: Call,
    allowed: bool,
    late: list[Written],
) -> Generator[None, None, Codes]:
    codes: Codes = {}  # a partition that is named twice is answered once
    for marker in request.markers:
        yield
        for topic in marker.topics:
            yield
            for index in topic.partition_indexes:
                yield
                key = marker.producer_id, topic.name, index
                codes[key] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if allowed:
                    codes[key] = write(broker, marker, key, call.now.wall_ms, late)
    return codes


def when_committed(
    broker: Broker,
    call: Call,
    codes: Codes,
    late: list[Written],
    answer: Callable[[Codes], Any],
) -> WaitingRequest:
    """Returns the result of `answer` for the codes when every marker is committed, or the time is
    up."""

    def attempt(expired: bool) -> Any | None:
        still_late = []
        for each in late:
            code = each.leader.outcome_of(each.end_offset, each.led_since)
            if code is None:
                still_late.append(each)
            else:  # a code that is decided stays
                codes[each.key] = code
        late[:] = still_late
        if late and not expired:
            return None
        codes.update((each.key, ErrorCode.REQUEST_TIMED_OUT) for each in late)
        return answer(codes)

    deadline_ms = call.now.monotonic_ms + broker.values["request.timeout.ms"]
    return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[each.leader for each in late])


def response_of(codes: Codes) -> Generator[None, None, WriteTxnMarkersResponse]:
    producers: dict[int, WritableTxnMarkerResult] = {}
    topics: dict[tuple[int, str], WritableTxnMarkerTopicResult] = {}
    for (producer_id, name, index), code in codes.items():
        yield
        if producer_id not in producers:
            producers[producer_id] = WritableTxnMarkerResult(producer_id, [])
        topic = topics.get((producer_id, name))
        if topic is None:
            topic = topics[producer_id, name] = WritableTxnMarkerTopicResult(name, [])
            producers[producer_id].topics.append(topic)
        topic.partitions.append(WritableTxnMarkerPartitionResult(index, code))
    return WriteTxnMarkersResponse(list(producers.values()))


def write(
    broker: Broker,
    marker: WritableTxnMarker,
    key: tuple[int, str, int],
    wall_ms: int,
    late: list[Written],
) -> ErrorCode:
    if marker.producer_id < 0:
        return ErrorCode.INVALID_REQUEST  # no producer writes batches with this id
    bumps_epoch = marker.transaction_version >= BUMPS_EPOCH
    try:
        leader = broker.topics.leader(*key[1:])
        end_offset = leader.append_marker(
            wall_ms,
            commit=marker.transaction_result,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            bumps_epoch=bumps_epoch,
        )
    except KafkaError as refusal:
        return refusal.code
    broker.coordinator_appended(leader)
    ended = Producer(marker.producer_id, marker.producer_epoch)
    broker.transactions.guards.marker_written(*key[1:], ended, bumps_epoch=bumps_epoch)
    if leader.high_watermark < end_offset:
        late.append(Written(key, leader, end_offset, leader.led_since))
    return ErrorCode.NONE


API = Api(messages=messages, handle=handle, versions=range(1, 3), handle_large=handle_large)
