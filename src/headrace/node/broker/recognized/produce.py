"""Recognized Produce: a request that begins with the bytes of an earlier one is not decoded.

Requests of one batch for one partition differ from the one before in their correlation id and
their records only. The bytes between the two, the head, are decoded once: the same bytes mean the
same partition and the same acks. Only flexible versions are recognized, and only if the three sets
of tags after the records are empty. The topic and the right to write are looked up each time
(`__init__.py` says why that is enough).
"""

from __future__ import annotations

from headrace.environment import Now
from headrace.node.broker.broker import Broker
from headrace.node.broker.recognized.memory import HEAD_AT, Memory, memory_of, plain_bytes
from headrace.node.broker.records.one_batch import Found, append_to, may_write
from headrace.node.serving.api import Call, Peer
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages import produce as messages
from headrace.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.protocol.primitives import BROKEN, more_uvarint, uvarint

FIRST_VERSION = 9
TAGS = b"\0\0\0"  # the empty tags of the partition, of the topic and of the request
LONGEST_HEAD = 256


def remember(call: Call, request: ProduceRequest, found: Found) -> None:
    """Keep the head of a request of one batch that the general path has answered."""
    version, frame = call.version, call.frame
    records = request.topic_data[0].partition_data[0].records
    if version < FIRST_VERSION or records is None:
        return
    heads = memory_of(call.session).produce
    size = len(records)
    end = len(frame) - len(TAGS) - size - len(uvarint(size + 1))
    head = frame[HEAD_AT:end].tobytes()
    # Encoding takes 2 us, so known heads are skipped: no head is the beginning of another one.
    if heads.version != version or head not in heads.known:
        head = _plain_head(version, frame, request)
        if len(head) > LONGEST_HEAD:
            return
    heads.keep(version, head, found)
    heads.end = HEAD_AT + len(head)


def _plain_head(version: int, frame: memoryview, request: ProduceRequest) -> bytes:
    data = request.topic_data[0]
    part = PartitionProduceData(data.partition_data[0].index, b"")
    without_records = ProduceRequest(
        request.transactional_id,
        request.acks,
        request.timeout_ms,
        [TopicProduceData(data.name, data.topic_id, [part])],
    )
    return plain_bytes(messages, version, frame, without_records)[: -1 - len(TAGS)]


def answer(
    broker: Broker, version: int, frame: memoryview, session: Peer, now: Now
) -> ProduceResponse | bytes | None:
    """Answer a frame whose head is known. Returns None, without side effects, if it must be
    decoded."""
    memory: Memory | None = session.remembered
    if memory is None:
        return None
    heads = memory.produce
    end = heads.end
    # A producer that writes to one topic sends heads of one length, so the head of the next frame
    # mostly ends where the last one did. If not, nothing is found and the frame is decoded.
    found = heads.known.get(frame[HEAD_AT:end].tobytes())
    if found is None or heads.version != version:
        return None
    try:
        size, at = frame[end], end + 1
        if size > 127:
            if frame[at] < 128:  # up to 16 KiB, without a call
                size, at = size - 128 + (frame[at] << 7), at + 1
            else:
                size, at = more_uvarint(frame, at, size)
    except (MalformedMessage, *BROKEN):
        return None
    # The length of the records and the three empty sets of tags must fill the frame exactly: then
    # the decoder would read the same records and nothing else.
    tags_at = at + size - 1
    if size <= 1 or frame[tags_at:] != TAGS:
        return None
    topic = found[0]
    # The same object, not an equal one: a topic that was deleted and created again, or that has
    # grown, is another object, and the frame is decoded again.
    if broker.topics.by_id.get(topic.id) is not topic:
        return None
    authorizer = broker.authorizer
    if authorizer is not None and not may_write(authorizer, session, topic.name):
        return None
    return append_to(broker, found, frame[at:tags_at], version, now)
