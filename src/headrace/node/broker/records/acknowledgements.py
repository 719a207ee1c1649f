"""The answer to the most common Produce request: one batch, one partition, no refusal.

Such answers of a partition differ in three numbers only. So each is encoded once, by the codec of
its version, with marks in their place; from then on it is two pieces of bytes with the numbers
between them. This reduced the time of a request of one small record, in process, from about 13.3
to 10.7 us (three runs each, on a busy machine).
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from headrace.node.broker.replicas.topics import Topic
from headrace.wire.protocol.messages.produce import (
    ENCODE_RESPONSE,
    FLEXIBLE_FROM,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

FIRST_VERSION = 5  # earlier versions do not carry the log start offset
_pack = Struct(">qqq").pack
_MARKS = (0x4D41524B_4D41524B, 0x4B52414D_4B52414D, 0x524B414D_524B414D)


def acknowledgement(
    topic: Topic, index: int, version: int, base_offset: int, append_time: int, start_offset: int
) -> bytes:
    around = topic.acknowledgements.get(version << 32 | index)
    if around is None:
        around = topic.acknowledgements[version << 32 | index] = _around(topic, index, version)
    return around[0] + _pack(base_offset, append_time, start_offset) + around[1]


def throttled(encoded: bytes, version: int, wait_ms: int) -> bytes:
    """The throttle time comes last; flexible versions have an empty set of tags after it."""
    tags = b"\0" if version >= FLEXIBLE_FROM else b""
    return encoded[: -4 - len(tags)] + wait_ms.to_bytes(4, "big") + tags


def _around(topic: Topic, index: int, version: int) -> tuple[bytes, bytes]:
    """Returns the bytes before and after the numbers."""
    partition = PartitionProduceResponse(index, 0, *_MARKS)
    response = ProduceResponse([TopicProduceResponse(topic.name, topic.id, [partition])])
    pieces: list[Any] = []
    ENCODE_RESPONSE[version](response, pieces.append)
    before, found, behind = b"".join(pieces).partition(_pack(*_MARKS))
    assert found, "base offset, append time and start lie side by side"
    return before, behind
