"""The recognized requests of one connection: the opaque slot `remembered` of its session.

A head is the bytes of a request between its correlation id and the part that varies. For each API
the heads of one version are kept; a client uses one version. Bounded by `MOST_HEADS` and by the
longest head of each API; when it is full it is emptied. The meaning of a head is decided in
`produce.py` and `offset_commit.py`.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from headrace.node.broker.records.one_batch import Found
from headrace.node.metadata.image import TopicImage
from headrace.node.serving.api import Peer
from headrace.wire.protocol.messages.offset_commit import OffsetCommitRequest

HEAD_AT = 8  # position in a frame: after API, version and correlation id
CLIENT_ID_AT = 10
# Bounds the memory of one connection.
MOST_HEADS = 256

# A known OffsetCommit: the bytes after the offset, the request, its topic, the encoded answer.
Committed = tuple[bytes, OffsetCommitRequest, TopicImage, bytes]
Meaning = TypeVar("Meaning")


class Heads(Generic[Meaning]):
    """The heads of one API, and what they mean."""

    __slots__ = ("version", "end", "known")

    def __init__(self) -> None:
        # Invariant: every head in `known` was written by our codec for `version`. A frame is only
        # compared with heads that end where the last one did (`end`); another frame is decoded.
        self.version = -1  # the version of all heads
        self.end = 0  # where the head of the last request ended, in its frame
        self.known: dict[bytes, Meaning] = {}

    def keep(self, version: int, head: bytes, meaning: Meaning) -> None:
        known = self.known
        if self.version != version or (len(known) >= MOST_HEADS and head not in known):
            self.version = version
            known.clear()
        known[head] = meaning


class Memory:
    __slots__ = ("produce", "commits")

    def __init__(self) -> None:
        self.produce: Heads[Found] = Heads()
        self.commits: Heads[Committed] = Heads()


def memory_of(session: Peer) -> Memory:
    memory: Memory | None = session.remembered
    if memory is None:
        memory = session.remembered = Memory()
    return memory


def plain_bytes(messages: Any, version: int, frame: memoryview, request: Any) -> bytes:
    """Returns the bytes from `HEAD_AT` on that our codec writes for this request: their layout is
    certain. The frame itself may have tags, long varints or bytes after its end."""
    length = int.from_bytes(frame[HEAD_AT:CLIENT_ID_AT], "big", signed=True)
    pieces: list[Any] = [frame[HEAD_AT : CLIENT_ID_AT + max(0, length)], b"\0"]
    messages.ENCODE_REQUEST[version](request, pieces.append)
    return b"".join(pieces)
