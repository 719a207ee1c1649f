"""Recognized OffsetCommit: a request that differs from an earlier one in its offset only.

A consumer that commits one partition at a time sends the same bytes but for the correlation id and
the offset, which is 16 bytes before the end: leader epoch, empty metadata and three empty sets of
tags follow it. So the request is decoded once, and its answer is encoded once. Only flexible
versions and commits without metadata are recognized. Everything that can change is checked each
time: the topic, the rights, and whether the member may commit (`offset_rules.py`).
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from headrace.environment import Now
from headrace.node.broker.broker import Broker
from headrace.node.broker.recognized.memory import HEAD_AT, Memory, memory_of, plain_bytes
from headrace.node.coordination.group import offset_rules
from headrace.node.coordination.group.offsets import NO_EXPIRY
from headrace.node.metadata.image import TopicImage
from headrace.node.serving.api import Call, Peer, WaitingRequest
from headrace.node.serving.authorization import Authorizer
from headrace.node.serving.chain import or_refused
from headrace.node.serving.rights import GROUP, TOPIC
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import offset_commit as messages
from headrace.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.wire.protocol.messages.offset_commit_value import OffsetCommitValue

FIRST_VERSION = 8
FROM_END = 16  # bytes from the offset to the end of the frame
OFFSET_SIZE = 8
LONGEST_HEAD = 512
READ = Operation.READ

_read_offset = Struct(">q").unpack_from


def remember(
    call: Call, request: OffsetCommitRequest, topic: TopicImage, response: OffsetCommitResponse
) -> None:
    """Keep a request of one partition that the general path has answered without an error."""
    version = call.version
    if version < FIRST_VERSION or request.topics[0].partitions[0].committed_metadata:
        return
    plain = plain_bytes(messages, version, call.frame, request)
    if len(plain) > LONGEST_HEAD + FROM_END:
        return
    pieces: list[Any] = []
    messages.ENCODE_RESPONSE[version](response, pieces.append)
    memory_of(call.session).commits.keep(
        version,
        plain[:-FROM_END],
        (plain[OFFSET_SIZE - FROM_END :], request, topic, b"".join(pieces)),
    )


def answer(
    broker: Broker, version: int, frame: memoryview, session: Peer, now: Now
) -> bytes | WaitingRequest | None:
    """Answer a frame that differs from an earlier one of its connection in the offset alone.
    Returns None, without side effects, if it must be decoded."""
    memory: Memory | None = session.remembered
    end = len(frame) - FROM_END
    if memory is None or memory.commits.version != version or end < HEAD_AT:
        return None
    # Here the varying part has a fixed place from the end of the frame, so the cut is exact and the
    # bytes before and after it must both be equal.
    known = memory.commits.known.get(frame[HEAD_AT:end].tobytes())
    if known is None or frame[end + OFFSET_SIZE :] != known[0]:
        return None
    _, request, topic, response = known
    if broker.image.topics.get(topic.name) is not topic:
        return None
    if broker.authorizer is not None and not may_commit(
        broker.authorizer, session, request.group_id, topic.name
    ):
        return None
    part = request.topics[0].partitions[0]
    offset, epoch, wall_ms = _read_offset(frame, end)[0], part.committed_leader_epoch, now.wall_ms
    value = OffsetCommitValue(offset, epoch, "", wall_ms, NO_EXPIRY, topic.id)
    commits = [(topic.name, part.partition_index, value)]
    try:
        answered: bytes | WaitingRequest = broker.groups.ask(
            request.group_id, now, offset_rules.commit, request, commits, response, version, now
        )
    # A refused decision or append leaves the state of the shard unchanged (`Shard.run`), so the
    # general path may decide again and make the refusal.
    except KafkaError:
        return None  # the general path answers with the error
    if type(answered) is bytes:
        return answered
    return or_refused(answered, lambda code: refused(request, topic, code))


def refused(request: OffsetCommitRequest, topic: TopicImage, code: ErrorCode) -> Any:
    """Returns the answer of a commit that has waited and was refused."""
    index = request.topics[0].partitions[0].partition_index
    parts = [OffsetCommitResponsePartition(index, code)]
    return OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(request.topics[0].name, topic.id, parts)]
    )


def may_commit(authorizer: Authorizer, session: Peer, group_id: str, topic: str) -> bool:
    """Returns whether the client may commit, without an audit entry: if not, the general path
    refuses and notes it."""
    return authorizer.allows(session, READ, GROUP, group_id, quietly=True) and authorizer.allows(
        session, READ, TOPIC, topic, quietly=True
    )


def throttled(encoded: bytes, version: int, wait_ms: int) -> bytes:
    """Answers of these versions begin with their throttle time."""
    return wait_ms.to_bytes(4, "big") + encoded[4:]
