"""The Produce request that a producer sends again and again, known by its first bytes.

Requests of one batch for one partition differ from the one before in their correlation id and
their records only. What lies between the two, the head, is decoded once: the same bytes mean the
same partition and the same acks. Only the flexible versions: behind the records they have three
empty sets of tags, or they are not recognized. Whether the topic is still there and whether the
client may write to it is looked up each time (`__init__.py` says why that is enough).
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.broker.one_batch import Found, append_to, may_write
from headrace.broker.recognized.memory import HEAD_AT, Memory, memory_of, plain_bytes
from headrace.environment import Now
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.messages import produce as messages
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.primitives import BROKEN, more_uvarint, uvarint
from headrace.serving.api import Call, Peer

FIRST_VERSION = 9
TAGS = b"\0\0\0"  # of the partition, of the topic and of the request
LONGEST_HEAD = 256


def remember(call: Call, request: ProduceRequest, found: Found) -> None:
    """The request of one batch was answered by the general path: it means what was found."""
    version, frame = call.version, call.frame
    records = request.topic_data[0].partition_data[0].records
    if version < FIRST_VERSION or records is None:
        return
    heads = memory_of(call.session).produce
    size = len(records)
    end = len(frame) - len(TAGS) - size - len(uvarint(size + 1))
    head = frame[HEAD_AT:end].tobytes()
    # Encoding takes 2 us, so not for a head that is known: no head goes on where another one ends.
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
    """The short way of a request that begins as an earlier one of its connection did; None, with
    nothing done, takes the long one."""
    memory: Memory | None = session.remembered
    if memory is None:
        return None
    heads = memory.produce
    end = heads.end
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
    tags_at = at + size - 1
    if size <= 1 or frame[tags_at:] != TAGS:
        return None
    topic = found[0]
    if broker.topics.by_id.get(topic.id) is not topic:
        return None
    authorizer = broker.authorizer
    if authorizer is not None and not may_write(authorizer, session, topic.name):
        return None
    return append_to(broker, found, frame[at:tags_at], version, now)
