"""The OffsetCommit request that a consumer sends again and again: only its offset differs.

A consumer that commits one partition at a time sends the same bytes but for the correlation id and
the offset, which stands 16 bytes before the end: leader epoch, no note and three empty sets of tags
come behind it. So the request is decoded once, and its answer is encoded once. Only the flexible
versions and commits without a note. Everything that can change is asked for each time: whether the
topic is still the same, the rights, and whether the member may commit (`offset_rules.py`).
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

from headrace.metadata.image import TopicImage
from headrace.protocol.messages.offset_commit import (
    ENCODE_RESPONSE,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from headrace.serving.api import Peer

FIRST_VERSION = 8
HEAD_AT = 8  # behind API, version and correlation id
FROM_END = 16  # of the frame to the offset
NO_NOTE = (b"\0\0\0\0", b"\1\0\0\0")  # null or empty, and the tags
# Bounds what one connection can make us keep.
MOST_HEADS = 256
LONGEST_HEAD = 512

_read_offset = Struct(">q").unpack_from


class Known(NamedTuple):
    """A request that was answered without a refusal."""

    tail: bytes  # what came behind the offset
    request: OffsetCommitRequest
    topic: TopicImage
    answer: bytes


class Commits:
    """What one connection has committed before, by all that stands in front of the offset."""

    __slots__ = ("version", "known")

    def __init__(self, version: int) -> None:
        self.version = version
        self.known: dict[bytes, Known] = {}


def remember(
    session: Peer,
    version: int,
    frame: memoryview,
    request: OffsetCommitRequest,
    topic: TopicImage,
    response: OffsetCommitResponse,
) -> None:
    """The frame is this request of one partition, which was answered so."""
    at = len(frame) - FROM_END
    if version < FIRST_VERSION or not HEAD_AT <= at <= HEAD_AT + LONGEST_HEAD:
        return
    part = request.topics[0].partitions[0]
    tail = frame[at + 8 :].tobytes()
    if tail[4:] not in NO_NOTE or _read_offset(frame, at)[0] != part.committed_offset:
        return
    commits = session.repeated_commits
    if commits is None or commits.version != version or len(commits.known) >= MOST_HEADS:
        commits = session.repeated_commits = Commits(version)
    pieces: list[Any] = []
    ENCODE_RESPONSE[version](response, pieces.append)
    head = frame[HEAD_AT:at].tobytes()
    commits.known[head] = Known(tail, request, topic, b"".join(pieces))


def recognize(session: Peer, version: int, frame: memoryview) -> tuple[Known, int] | None:
    """What is meant, and the offset; None: decode the request."""
    commits = session.repeated_commits
    at = len(frame) - FROM_END
    if commits is None or commits.version != version or at < HEAD_AT:
        return None
    known = commits.known.get(frame[HEAD_AT:at].tobytes())
    if known is None or frame[at + 8 :] != known.tail:
        return None
    return known, _read_offset(frame, at)[0]
