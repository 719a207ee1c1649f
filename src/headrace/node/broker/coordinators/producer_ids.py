"""Identities for idempotent producers, handed out from blocks that the controller allocates.

A block is used up from memory; a request that finds it empty waits for the next one. One block is
requested at a time, however many requests wait. They get COORDINATOR_LOAD_IN_PROGRESS, and retry
(as in Apache Kafka), if there is none now. The rest of a block is never given out again after the
node stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headrace.environment import Now
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.purgatory import Purgatory
from headrace.wire.protocol.errors import ErrorCode, KafkaError

# Longer than the controller is asked for a block; clients give up a request after 30 s.
PATIENCE_MS = 20_000


class BlockAllocator(Protocol):
    """The controller's side: answers with (first id, count) when the block is recorded."""

    def allocate_producer_ids(self, answer: Callable[[int, int], Any], now: Now) -> Any: ...


class ProducerIds:
    __slots__ = ("waiting", "_allocator", "_purgatory", "_next", "_end", "_is_asking", "_failures")

    def __init__(self, allocator: BlockAllocator, purgatory: Purgatory) -> None:
        self.waiting: dict[WaitingRequest, None] = {}  # requests that want an id of the next block
        self._allocator = allocator
        self._purgatory = purgatory
        self._next = 0
        self._end = 0
        self._is_asking = False
        self._failures = 0  # requests for a block that failed since the start

    def next(self, answer: Callable[[int], Any], now: Now) -> Any:
        """Returns `answer(id)` at once, or a WaitingRequest until the next block is there; or
        raises KafkaError."""
        self._see_to_block(now)
        if self._next < self._end:
            return answer(self._take())
        failures = self._failures

        def attempt(expired: bool) -> Any | None:
            if self._failures == failures:
                self._see_to_block(now)  # requests before this one may have used up the new block
            if self._next < self._end:
                return answer(self._take())
            if expired or self._failures != failures:
                raise _none_now()
            return None

        deadline_ms = now.monotonic_ms + PATIENCE_MS
        return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[self])

    def _see_to_block(self, now: Now) -> None:
        if self._next < self._end or self._is_asking:
            return
        try:
            found = self._allocator.allocate_producer_ids(self._use, now)
        except KafkaError as refusal:
            raise _none_now(refusal.message) from refusal
        if isinstance(found, WaitingRequest):
            self._is_asking = True
            found.complete = self._answered
            self._purgatory.add(found)

    def _use(self, first: int, count: int) -> bool:
        self._next, self._end = first, first + count
        return True

    def _answered(self, answer: Any) -> None:
        self._is_asking = False
        if answer is not True:
            self._failures += 1
        self._purgatory.wake(self)

    def _take(self) -> int:
        taken = self._next
        self._next += 1
        return taken


def _none_now(why: str | None = None) -> KafkaError:
    message = "no new producer ids now" + (f": {why}" if why else "")
    return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)
