"""What is fuzzed: a whole node on a disk in memory, by the bytes that a client sends.

`Target.run(data)` gives the bytes to the node's dispatch as the loop does, on a connection that has
logged in or has to (the first byte says which), lets waiting requests run out of time, and reads
the answers. A client may be refused in any way; what counts as a crash is a `Failure`: a handler
that raised what is no refusal, a write that the disk refused, an answer shorter than it says, or a
request that took time out of proportion (the fuzzer itself looks at memory).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from time import process_time

from headrace.environment import FileSlice, Now
from headrace.node import Node
from headrace.protocol.framing import encode_request
from headrace.protocol.messages import create_topics, produce
from headrace.protocol.record_batch import Record, build
from headrace.server.settings import load_settings
from headrace.serving.api import Refused
from headrace.serving.dispatch import Route
from headrace.serving.session import Session
from tests.fuzz.memory_disk import MemoryDisk

FOLDER = "/fuzzed"
START_MS = 1_700_000_000_000
# A node remembers what it was told; a new one from time to time keeps a finding reproducible.
INPUTS_PER_NODE = 500
MOST_REQUESTS_PER_INPUT = 64
# Small files, since those in memory are not sparse.
SETTINGS = {
    "num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.index.size.max.bytes": "4096",
}
# Of the processor's time, for at most `MOST_REQUESTS_PER_INPUT` requests.
SLOWEST_S = 5.0

_frame_head = Struct(">ihhi").pack


class Failure(AssertionError):
    """The node did what it must never do."""


class Watch(logging.Handler):
    """A handler's bug is logged with its traceback, and ends one connection only: find it here."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record)


class Target:
    def __init__(self, *, authenticate: Callable[[Node, Session], None] | None = None) -> None:
        """`authenticate` prepares a session that has to log in first."""
        self._authenticate = authenticate
        self._watch = Watch()
        logging.getLogger("headrace").addHandler(self._watch)
        logging.getLogger("headrace").setLevel(logging.ERROR)
        self._inputs = 0
        self.requests = 0
        self.refused = 0
        self.answered = 0
        self._renew()

    def _renew(self) -> None:
        self.now = Now(1_000, START_MS)
        self._background: deque[tuple[Callable[[], None], Callable[[OSError | None], None]]] = (
            deque()
        )
        self._drawn = 0
        loaded = load_settings(
            data=FOLDER,
            listen="127.0.0.1:0",
            overrides=SETTINGS,
        )
        self.node = Node(
            MemoryDisk(),
            loaded.for_node({"PLAINTEXT": 9092}),
            self.now,
            randomness=self._random,
            submit=lambda work, done: self._background.append((work, done)),
            space=lambda: (1 << 40, 1 << 39),
            open_files=1_000,
        )
        self._settle()
        self._furnish()

    def _random(self, size: int) -> bytes:
        self._drawn += 1
        return self._drawn.to_bytes(max(size, 8), "big")[-size:]

    def _furnish(self) -> None:
        """Two topics with a few records, as most captures speak of them."""
        topics = [create_topics.CreatableTopic(name, 2, 1) for name in ("fuzz", "other")]
        self._ask(create_topics, 7, create_topics.CreateTopicsRequest(topics, 1_000))
        batch = build(
            [
                Record(key=b"key", value=b"value", timestamp=START_MS),
                Record(key=None, value=b"other", timestamp=START_MS),
            ]
        )
        parts = [produce.PartitionProduceData(index, batch) for index in (0, 1)]
        data = [produce.TopicProduceData(name, bytes(16), parts) for name in ("fuzz", "other")]
        self._ask(produce, 9, produce.ProduceRequest(None, -1, 1_000, data))

    def _ask(self, messages: object, version: int, request: object) -> None:
        session = Session("127.0.0.1", "PLAINTEXT")
        pieces = encode_request(messages, version, 1, "furnish", request)
        data = bytearray(b"".join(bytes(piece) for piece in pieces))  # type: ignore[arg-type]
        answered = self.answered
        self._feed(session, data)
        assert self.answered > answered, "the topics are made, and have records"

    # One input

    def run(self, data: bytes) -> None:
        self._inputs += 1
        if self._inputs % INPUTS_PER_NODE == 0:
            self._renew()
        if len(data) < 2:
            return
        started = process_time()
        session = Session("127.0.0.1", "PLAINTEXT")
        if data[0] & 1 and self._authenticate is not None:
            self._authenticate(self.node, session)
        stream = bytearray(data[1:]) if data[0] & 2 else framed(data[1:], self.routes())
        try:
            self._feed(session, stream)
        except Refused:
            self.refused += 1
        finally:
            self.node.dispatch.forget(session)
            self.node.dispatch.dirty.clear()
            self.node.dispatch.resumed.clear()
        self._judge(process_time() - started)

    def routes(self) -> list[Route]:
        return list(self.node.dispatch.routes.values())

    def _feed(self, session: Session, stream: bytearray) -> None:
        """As the loop does: what is left of a turn comes first in the next."""
        dispatch = self.node.dispatch
        view = memoryview(stream)
        for _ in range(MOST_REQUESTS_PER_INPUT):
            try:
                taken = dispatch.feed(session, view, len(view))
            finally:
                self.node.buffer_is_free()
            self.requests += 1
            self._settle()
            self._wait_for(session)
            self._read(session)
            if dispatch.failed:
                raise Refused(dispatch.failed.pop()[1])
            view = view[taken:]
            if not taken or not view:
                return

    def _wait_for(self, session: Session) -> None:
        """Time passes until nothing of this connection waits any more."""
        purgatory = self.node.purgatory
        for _ in range(MOST_REQUESTS_PER_INPUT):
            if not session.line and not session.muted:
                return
            due_ms = purgatory.next_deadline_ms()
            if due_ms is None:
                return
            if due_ms > self.now.monotonic_ms:
                passed_ms = min(due_ms - self.now.monotonic_ms, 10_000_000)
                self.now.monotonic_ms += passed_ms
                self.now.wall_ms += passed_ms
            self.node.broker.coordinators_tick()
            self._settle()

    def _settle(self) -> None:
        purgatory = self.node.purgatory
        while True:
            purgatory.expire(self.now.monotonic_ms)
            purgatory.settle()
            if not self.node.end_turn():
                raise Failure("the disk refused what was to be written")
            if not self._background:
                return
            while self._background:
                work, done = self._background.popleft()
                work()
                done(None)

    def _read(self, session: Session) -> None:
        """An answer is whole frames; slices of files must be where they say."""
        size = 0
        head = b""
        for piece in session.outbox:
            if isinstance(piece, FileSlice):
                read = piece.file.read(piece.length, piece.position)
                if len(read) != piece.length:
                    raise Failure(f"{piece.length} bytes of a file of which {len(read)} are there")
                size += len(read)
            else:
                size += len(piece)
                head = head or bytes(piece[:4])
        if session.outbox:
            self.answered += 1
            if int.from_bytes(head, "big") + 4 > size:
                raise Failure("an answer is shorter than it says")
        session.outbox.clear()
        session.owed = 0

    def _judge(self, seconds: float) -> None:
        if self._watch.seen:
            record = self._watch.seen.pop()
            self._watch.seen.clear()
            cause = record.exc_info[1] if record.exc_info else None
            self._renew()
            raise Failure(record.getMessage()) from cause
        if seconds > SLOWEST_S:
            raise Failure(f"it took {seconds:.1f} s")


def framed(data: bytes, routes: list[Route]) -> bytearray:
    """Bytes as requests: of each, two choose the API and version, two the length of the rest.

    So that most of what a fuzzer tries reaches a decoder, and not the check of a frame's length.
    """
    out = bytearray()
    at = 0
    while at + 4 <= len(data) and len(out) < 1 << 20:
        route = routes[int.from_bytes(data[at : at + 2], "big") % len(routes)]
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : at + 4 + length]
        out += _frame_head(len(body) + 8, route.api_key, route.version, 7) + body
        at += 4 + length
    return out


def unframed(frames: list[bytes], routes: list[Route]) -> bytes:
    """The other way round: captured frames, with their size in front, as an input of a fuzzer."""
    places = {(route.api_key, route.version): at for at, route in enumerate(routes)}
    out = bytearray(b"\0")
    for frame in frames:
        api_key = int.from_bytes(frame[4:6], "big")
        version = int.from_bytes(frame[6:8], "big")
        if (api_key, version) in places and len(frame) < 1 << 16:
            body = frame[12:]
            out += places[api_key, version].to_bytes(2, "big") + len(body).to_bytes(2, "big") + body
    return bytes(out)
