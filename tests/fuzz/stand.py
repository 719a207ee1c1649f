"""A whole node on a disk in memory, with a clock in hand, as the fuzzer drives it.

`feed` gives bytes to the node's dispatch as the loop does, lets time pass until nothing of the
connection waits any more, and reads the answers. What counts as a crash is a `Failure`: a request
that is neither answered nor ends its connection, an answer that is not as long as it says, one that
is out of proportion, a write that the disk refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from headrace.environment import FileSlice, Now
from headrace.node.assembly.node import Node
from headrace.node.process.settings.settings import load_settings
from headrace.node.serving.api import ClosesConnection
from headrace.node.serving.route import Route
from headrace.node.serving.session import Session
from headrace.wire.protocol.framing import decode_response, encode_request
from headrace.wire.protocol.messages import (
    alter_client_quotas,
    create_topics,
    find_coordinator,
    produce,
)
from headrace.wire.protocol.record_batch import Record, build
from tests.fuzz.memory_disk import MemoryDisk
from tests.fuzz.variants import Variant

FOLDER = "/fuzzed"
START_MS = 1_700_000_000_000
MOST_REQUESTS_PER_INPUT = 64
# Of answers to one input, slices of files not counted. Inputs have some ten kilobytes.
MOST_ANSWERED_BYTES = 32 << 20
LONGEST_LEAP_MS = 2**31
MOST_LEAPS = 64
PRODUCE_KEY = 0
# Small files, since those in memory are not sparse.
SETTINGS = {
    "num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.index.size.max.bytes": "4096",
}
LOW_LIMITS = {
    "producer_byte_rate": 50.0,
    "consumer_byte_rate": 50.0,
    "request_percentage": 0.001,
    "controller_mutation_rate": 0.5,
}


class Failure(AssertionError):
    """The node did what it must never do."""


@dataclass(slots=True)
class Tally:
    """What became of the requests of one connection."""

    asked: int = 0
    silent: int = 0  # of those: may go without an answer, as Produce with acks=0
    answered: int = 0
    answered_bytes: int = 0


class Stand:
    def __init__(
        self, variant: Variant, disk: MemoryDisk | None = None, now: Now | None = None
    ) -> None:
        """With the disk and the clock of another: what a node finds that was killed there."""
        self.variant = variant
        self.disk = disk or MemoryDisk()
        self.now = now or Now(1_000, START_MS)
        self._background: deque[tuple[Callable[[], None], Callable[[OSError | None], None]]] = (
            deque()
        )
        self._drawn = 0 if disk is None else 1 << 40
        # Each request takes a millisecond of the quota of time, the same in each run.
        ticks = count(0, 1_000_000)
        overrides = {**SETTINGS, **variant.settings}
        loaded = load_settings(data=FOLDER, listen="127.0.0.1:0", overrides=overrides)
        self.node = Node(
            self.disk,
            loaded.for_node({"PLAINTEXT": 9092}),
            self.now,
            randomness=self._random,
            submit=lambda work, done: self._background.append((work, done)),
            space=lambda _: (1 << 40, 1 << 39),
            open_files=1_000,
            request_clock=lambda: next(ticks),
        )
        self.until_idle()
        if not self.node.ready:
            raise Failure("the node does not come up")
        if disk is None:
            self._furnish()

    def _random(self, size: int) -> bytes:
        self._drawn += 1
        return self._drawn.to_bytes(max(size, 8), "big")[-size:]

    def _furnish(self) -> None:
        """Two topics with a few records, as most captures speak of them; and coordinators."""
        topics = [create_topics.CreatableTopic(name, 2, 1) for name in ("fuzz", "other")]
        self.ask(create_topics, 7, create_topics.CreateTopicsRequest(topics, 1_000))
        for kind in (0, 1):
            request = find_coordinator.FindCoordinatorRequest(key="group", key_type=kind)
            self.ask(find_coordinator, 3, request)
        records = [
            Record(key=b"key", value=b"value", timestamp=START_MS),
            Record(key=None, value=b"other", timestamp=START_MS),
        ]
        parts = [produce.PartitionProduceData(index, build(records)) for index in (0, 1)]
        data = [produce.TopicProduceData(name, bytes(16), parts) for name in ("fuzz", "other")]
        self.ask(produce, 9, produce.ProduceRequest(None, -1, 1_000, data))
        if self.variant.is_limited:
            self._limit_everybody()

    def _limit_everybody(self) -> None:
        entity = [alter_client_quotas.EntityData("client-id", None)]
        ops = [alter_client_quotas.OpData(key, value) for key, value in LOW_LIMITS.items()]
        entry = alter_client_quotas.RequestEntryData(entity, ops)
        request = alter_client_quotas.AlterClientQuotasRequest([entry], False)
        answer = self.ask(alter_client_quotas, 1, request)
        assert [each.error_code for each in answer.entries] == [0]

    # A client of the fuzzer's own

    def ask(self, messages: Any, version: int, request: Any) -> Any:
        """What another connection, which may do everything, is answered; it must be."""
        session = Session("127.0.0.1", "PLAINTEXT")
        pieces = encode_request(messages, version, 1, "", request)
        stream = bytearray(b"".join(bytes(piece) for piece in pieces))
        try:
            tally, said = self.feed(session, stream)
        except ClosesConnection as refusal:
            raise Failure(f"another connection was ended: {refusal}") from None
        finally:
            self.forget(session)
        if tally.answered != 1:
            raise Failure(f"another connection got no answer to its {messages.NAME}")
        return decode_response(messages, version, memoryview(said)[4:])[1]

    def forget(self, session: Session) -> None:
        """The connection is gone."""
        dispatch = self.node.dispatch
        dispatch.forget(session)
        dispatch.dirty.clear()
        dispatch.resumed.clear()

    @property
    def routes(self) -> list[Route]:
        return list(self.node.dispatch.routes.values())

    def marks(self) -> tuple[int, int]:
        """Differ if anything was written since: to the metadata, or to any partition."""
        topics = self.node.broker.topics.by_name.values()
        ends = sum(leader.log.end_offset for topic in topics for leader in topic.replicas)
        return self.node.controller.image.offset, ends

    def rest(self) -> None:
        """Until time alone changes nothing any more: members, transactions, offsets expire."""
        before = None
        while before != self.marks():
            before = self.marks()
            self.pass_time(LONGEST_LEAP_MS)
            self.node.broker.coordinators_tick()
            self.until_idle()

    # As the loop does

    def feed(self, session: Session, stream: bytearray) -> tuple[Tally, bytes]:
        """What is left of a turn comes first in the next. Raises Refused where it ends."""
        dispatch = self.node.dispatch
        view = memoryview(stream)
        tally, said = Tally(), bytearray()
        for _ in range(MOST_REQUESTS_PER_INPUT):
            try:
                taken = dispatch.feed(session, view, len(view))
            finally:
                self.node.durability.buffer_is_free()
            for key in _frames_in(view[:taken]):
                tally.asked += 1
                tally.silent += key == PRODUCE_KEY
            self.until_idle()
            self._wait_for(session)
            said += self._read(session, tally)
            if dispatch.failed:
                raise ClosesConnection(dispatch.failed.pop()[1])
            view = view[taken:]
            if not taken or not view or session.closing:
                break
        if not session.closing:
            self._require_answers(session, tally)
        return tally, bytes(said)

    def _require_answers(self, session: Session, tally: Tally) -> None:
        if session.line or session.muted:
            raise Failure("a request is neither answered nor ends its connection")
        if not tally.asked - tally.silent <= tally.answered <= tally.asked:
            raise Failure(f"{tally.asked} requests and {tally.answered} answers")

    def _wait_for(self, session: Session) -> None:
        """Time passes until nothing of this connection waits any more."""
        purgatory = self.node.purgatory
        for _ in range(MOST_LEAPS):
            if not session.line and not session.muted:
                return
            due_ms = purgatory.next_deadline_ms()
            if due_ms is None:
                return
            if due_ms > self.now.monotonic_ms:
                self.pass_time(min(due_ms - self.now.monotonic_ms, LONGEST_LEAP_MS))
            self.node.broker.coordinators_tick()
            self.until_idle()

    def pass_time(self, passed_ms: int) -> None:
        self.now.monotonic_ms += passed_ms
        self.now.wall_ms += passed_ms

    def until_idle(self) -> None:
        purgatory = self.node.purgatory
        while True:
            self.node.work(lambda: False)
            purgatory.expire(self.now.monotonic_ms)
            purgatory.try_woken()
            if not self.node.end_turn():
                raise Failure("the disk refused what was to be written")
            if not self._background:
                return
            while self._background:
                work, done = self._background.popleft()
                work()
                done(None)
                self.node.work(lambda: False)

    def _read(self, session: Session, tally: Tally) -> bytes:
        """An answer is whole frames; slices of files must be where they say."""
        out = bytearray()
        left = 0  # of the frame under way
        for piece in session.outbox:
            data = bytes(piece) if not isinstance(piece, FileSlice) else _slice(piece)
            if not data:
                continue
            if not left:
                tally.answered += 1
                left = 4 + int.from_bytes(data[:4], "big")
            left -= len(data)
            if left < 0:
                raise Failure("an answer is longer than it says")
            if not isinstance(piece, FileSlice):
                tally.answered_bytes += len(data)
            out += data
        if left:
            raise Failure("an answer is shorter than it says")
        if tally.answered_bytes > MOST_ANSWERED_BYTES:
            raise Failure(f"{tally.answered_bytes} bytes of answers")
        session.outbox.clear()
        session.owed = 0
        return bytes(out)


def _slice(piece: FileSlice) -> bytes:
    read = piece.file.read(piece.length, piece.position)
    if len(read) != piece.length:
        raise Failure(f"{piece.length} bytes of a file of which {len(read)} are there")
    return bytes(read)


def _frames_in(stream: memoryview) -> Iterator[int]:
    """The API keys of whole frames; of a bare token whatever stands there."""
    at = 0
    while at + 4 <= len(stream):
        size = int.from_bytes(stream[at : at + 4], "big")
        yield int.from_bytes(stream[at + 4 : at + 6], "big", signed=True)
        at += 4 + size
