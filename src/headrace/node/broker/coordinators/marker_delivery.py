"""Sends markers by WriteTxnMarkers to the leaders of partitions on other brokers.

A broker answers when its partition has committed the marker, so an answer without an error ends the
wait. Without an answer the outcome is unknown: the marker is sent again, to the present leader. A
marker that arrives twice does no harm, for with KIP-890 its epoch is that of no other transaction.
Without it, one that is delayed for so long could end the next transaction of its producer, as with
Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.node.broker.cluster.broker_requests import AskingBroker, BrokerRequests, code_of
from headrace.node.coordination.transaction.transaction import Partition
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import write_txn_markers as messages
from headrace.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

LANE = "transaction-markers"


class Marker(NamedTuple):
    place: Partition
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    client_version: int  # the client's version of transaction.version
    delivered: Callable[[ErrorCode], None]


class MarkerDelivery:
    __slots__ = ("_requests",)

    def __init__(self, broker: AskingBroker) -> None:
        self._requests: BrokerRequests[Marker] = BrokerRequests(
            broker, LANE, messages, request_of, answered
        )

    def add(self, to: int, marker: Marker) -> None:
        """Adds a marker, which leaves with the next `send`."""
        self._requests.add(to, marker)

    def send(self) -> None:
        self._requests.send()

    def tick(self) -> None:
        self._requests.tick()


def request_of(markers: list[Marker]) -> WriteTxnMarkersRequest:
    """Returns one request for the markers of one transaction; a broker answers by producer id,
    topic and partition."""
    of_producers: dict[tuple[int, int, bool, int], WritableTxnMarker] = {}
    of_topics: dict[tuple[int, str], WritableTxnMarkerTopic] = {}
    for marker in markers:
        topic, index = marker.place
        key = (marker.producer_id, marker.producer_epoch, marker.commit, marker.coordinator_epoch)
        found = of_producers.get(key)
        if found is None:
            found = of_producers[key] = WritableTxnMarker(
                marker.producer_id,
                marker.producer_epoch,
                marker.commit,
                [],
                marker.coordinator_epoch,
                marker.client_version,
            )
        told = of_topics.get((id(found), topic))
        if told is None:
            told = of_topics[id(found), topic] = WritableTxnMarkerTopic(topic, [])
            found.topics.append(told)
        told.partition_indexes.append(index)
    return WriteTxnMarkersRequest(list(of_producers.values()))


def answered(markers: list[Marker], answer: WriteTxnMarkersResponse | None) -> None:
    codes: dict[tuple[int, str, int], int] = {}
    for result in () if answer is None else answer.markers:
        for topic in result.topics:
            for part in topic.partitions:
                codes[result.producer_id, topic.name, part.partition_index] = part.error_code
    for marker in markers:
        code = codes.get((marker.producer_id, *marker.place), ErrorCode.NETWORK_EXCEPTION)
        marker.delivered(code_of(code))
