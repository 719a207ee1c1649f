"""Acknowledgements that have not left when the disk refuses their records.

Answers are made before the records are in the file, and leave after that (docs/decisions/0001). If
the disk refuses the records in between, the waiting answers are found by their contents: nothing
extra is noted for a request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.node.broker.replicas.topics import Topic
from headrace.node.serving.session import Piece, Session
from headrace.wire.protocol.errors import ErrorCode, MalformedMessage
from headrace.wire.protocol.messages.produce import (
    DECODE_RESPONSE,
    ENCODE_RESPONSE,
    FLEXIBLE_FROM,
    PartitionProduceResponse,
    ProduceResponse,
)

FIRST_VERSION_WITH_IDS = 13
# One version of each layout.
LAYOUTS = tuple({decode: version for version, decode in DECODE_RESPONSE.items()}.values())


@dataclass(slots=True)
class Lost:
    """A batch that a partition had appended and the disk then refused."""

    topic: Topic
    index: int
    from_offset: int  # nothing at or behind it is in the log
    why: str


def take_back(sessions: Iterable[Session], lost: list[Lost]) -> list[Session]:
    """Turns acknowledgements of lost records that have not left into refusals. Returns the sessions
    that must be ended instead: the answer of a coordinator does not show which records it depends
    on."""
    of_coordinator = any(each.topic.is_internal for each in lost)
    ended = []
    for session in sessions:
        if of_coordinator and _has_unsent_answers(session):
            ended.append(session)
        else:
            _correct(session, lost)
    return ended


def _has_unsent_answers(session: Session) -> bool:
    return bool(session.outbox) or any(reply.pieces for reply in session.line)


def _correct(session: Session, lost: list[Lost]) -> None:
    session.outbox[:] = [_corrected(piece, lost) for piece in session.outbox]
    for reply in session.line:
        if reply.pieces:
            session.line_bytes -= len(reply.pieces[0])
            reply.pieces = [_corrected(piece, lost) for piece in reply.pieces]
            session.line_bytes += len(reply.pieces[0])


def _corrected(piece: Piece, lost: list[Lost]) -> Piece:
    if type(piece) is bytes:
        for each in lost:
            if each.topic.id in piece or each.topic.name.encode() in piece:
                piece = _without(piece, each)
    return piece


def _without(reply: bytes, lost: Lost) -> bytes:
    """Returns the reply without the lost acknowledgement. A reply does not name its API. But bytes
    that can be read to their end as an answer to Produce, and that name this partition with an
    offset that was lost, cannot be anything else."""
    for version in LAYOUTS:
        start = 9 if version >= FLEXIBLE_FROM else 8  # after size, correlation id and tags
        try:
            response, end = DECODE_RESPONSE[version](memoryview(reply), start)
        except MalformedMessage:
            continue
        if end == len(reply) and _refuse(response, lost, version):
            pieces: list[Any] = []
            ENCODE_RESPONSE[version](response, pieces.append)
            body = b"".join(pieces)
            return (len(body) + start - 4).to_bytes(4, "big") + reply[4:start] + body
    return reply


def _refuse(response: ProduceResponse, lost: Lost, version: int) -> bool:
    """Returns whether there was something to refuse."""
    found = False
    for data in response.responses:
        if version >= FIRST_VERSION_WITH_IDS:
            is_meant = data.topic_id == lost.topic.id
        else:
            is_meant = data.name == lost.topic.name
        for at, part in enumerate(data.partition_responses if is_meant else ()):
            if (
                part.index == lost.index
                and part.base_offset >= lost.from_offset
                and not part.error_code
            ):
                found = True
                data.partition_responses[at] = PartitionProduceResponse(
                    part.index, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1, [], lost.why
                )
    return found
