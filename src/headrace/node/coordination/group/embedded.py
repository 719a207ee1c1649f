"""The data that classic members carry in requests to consumer groups: subscription, assignment.

Two bytes of version, then a body. Topics travel by name here and by id in the newer protocol; names
that are not there any more are left out. Bytes that cannot be read are refused by MalformedMessage.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.node.coordination.group.assignors import Assignment
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages import (
    consumer_protocol_assignment,
    consumer_protocol_subscription,
)
from headrace.wire.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from headrace.wire.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)


def version_of(data: bytes, newest: int) -> int:
    """Returns the version to decode; a later version begins like the newest one that we know."""
    if len(data) < 2:
        raise MalformedMessage("a subscription or assignment without a version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise MalformedMessage(f"version {version} of a subscription or assignment")
    return min(version, newest)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    version = version_of(data, consumer_protocol_subscription.VERSIONS[-1])
    return consumer_protocol_subscription.DECODE[version](memoryview(data), 2)[0]


def read_assignment(data: bytes, image: MetadataImage) -> Assignment:
    if not data:
        return {}
    version = version_of(data, consumer_protocol_assignment.VERSIONS[-1])
    found, _ = consumer_protocol_assignment.DECODE[version](memoryview(data), 2)
    return by_id(((one.topic, one.partitions) for one in found.assigned_partitions), image)


def by_id(parts: Iterable[tuple[str, Iterable[int]]], image: MetadataImage) -> Assignment:
    return {
        image.topics[name].id: frozenset(indexes)
        for name, indexes in parts
        if name in image.topics and indexes
    }


def write_assignment(assigned: Assignment, image: MetadataImage, version: int) -> bytes:
    version = min(version, consumer_protocol_assignment.VERSIONS[-1])
    parts = [
        TopicPartition(image.topics_by_id[topic].name, sorted(indexes))
        for topic, indexes in assigned.items()
        if topic in image.topics_by_id
    ]
    pieces: list[Any] = [version.to_bytes(2, "big")]
    encode = consumer_protocol_assignment.ENCODE[version]
    encode(ConsumerProtocolAssignment(parts, None), pieces.append)
    return b"".join(pieces)
