"""End offsets of partitions as consumers see them, also from other brokers (by ListOffsets)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from headrace.node.broker.cluster.broker_requests import AskingBroker, address_of
from headrace.node.broker.coordinators.replies import WaitingBroker, ask_each
from headrace.node.broker.replicas.topics import Topics
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.chain import chain
from headrace.wire.protocol.errors import KafkaError
from headrace.wire.protocol.messages import list_offsets
from headrace.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

Place = tuple[str, int]  # topic and partition
LANE = "end-offsets"
LATEST = -1
NOT_A_REPLICA = -1  # clients send this replica id


class LeadingBroker(AskingBroker, WaitingBroker, Protocol):
    """A broker that leads some of the partitions, and can ask others."""

    topics: Topics


def end_offsets(broker: LeadingBroker, places: Iterable[Place]) -> Any | WaitingRequest:
    """Returns end offsets by topic and partition, now or later; unknown ones are left out."""
    found: dict[Place, int] = {}
    elsewhere: dict[int, list[Place]] = {}
    for place in places:
        try:
            found[place] = broker.topics.leader(*place).high_watermark
        except KafkaError:
            topic = broker.image.topics.get(place[0])
            if topic is not None and place[1] < len(topic.partitions):
                leader = topic.partitions[place[1]].leader
                elsewhere.setdefault(leader, []).append(place)

    def ask(broker_id: int, reply: Any) -> None:
        address = address_of(broker, broker_id)
        if broker.peers is None or address is None:
            reply(None)
            return
        broker.peers.ask(
            address,
            LANE,
            list_offsets,
            request_for(elsewhere[broker_id]),
            reply,
            timeout_ms=broker.values["request.timeout.ms"],
        )

    def take(answers: dict[int, Any]) -> dict[Place, int]:
        for answer in answers.values():
            for topic in () if answer is None else answer.topics:
                for part in topic.partitions:
                    if not part.error_code:
                        found[topic.name, part.partition_index] = part.offset
        return found

    return chain(broker.purgatory, ask_each(broker, elsewhere, ask), take)


def request_for(places: list[Place]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(ListOffsetsPartition(index, timestamp=LATEST))
    return ListOffsetsRequest(
        NOT_A_REPLICA, topics=[ListOffsetsTopic(*found) for found in topics.items()]
    )
