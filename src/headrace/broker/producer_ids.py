"""Identities for idempotent producers, handed out from blocks that the controller allocates.

A block is used up from memory; only the request that finds it empty waits for the next one, and is
asked to come again (COORDINATOR_LOAD_IN_PROGRESS, as in Apache Kafka) if there is none now. What is
left of a block when the node stops is never given out again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headrace.environment import Now
from headrace.protocol.errors import ErrorCode, KafkaError


class BlockAllocator(Protocol):
    """The controller's side: answers with (first id, count) when the block is recorded."""

    def allocate_producer_ids(self, answer: Callable[[int, int], Any], now: Now) -> Any: ...


class ProducerIds:
    __slots__ = ("_allocator", "_next", "_end")

    def __init__(self, allocator: BlockAllocator) -> None:
        self._allocator = allocator
        self._next = 0
        self._end = 0

    def next(self, answer: Callable[[int], Any], now: Now) -> Any:
        """`answer(id)` at once, or Parked until the next block is there; or KafkaError."""
        if self._next < self._end:
            return answer(self._take())

        def with_block(first: int, count: int) -> Any:
            # Two requests may have waited at the same time; the later block is used from its start.
            self._next, self._end = first, first + count
            return answer(self._take())

        try:
            return self._allocator.allocate_producer_ids(with_block, now)
        except KafkaError as refusal:
            message = f"no new producer ids now: {refusal.message}"
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message) from refusal

    def _take(self) -> int:
        taken = self._next
        self._next += 1
        return taken
