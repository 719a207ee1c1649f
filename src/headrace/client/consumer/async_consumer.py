"""The consumer for asyncio: the same methods, with all waiting on one thread of its own.

Records come to the event loop in bundles of at most 500 and are returned there without a change of
thread; the next bundle is fetched when these are taken. So a call that is cancelled loses no
record. Deserializers and `on_poison` run on the loop: they should be quick. Rebalance callbacks run
on the consumer's thread and may use `consumer.sync`, the consumer underneath; no other code should.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from types import TracebackType
from typing import Generic, ParamSpec, TypeVar

from confluent_kafka import Message

from headrace.client.connection import ClientSettings, Setting
from headrace.client.consumer.assignment import OnPartitions
from headrace.client.consumer.commits import COMMIT_S, OnCommit, UpTo
from headrace.client.consumer.consumer import SLICE_S, Consumer, Partitions
from headrace.client.consumer.fetched import RECORDS_PER_FETCH
from headrace.client.consumer.offset_reset import OffsetReset
from headrace.client.consumer.places import Offsets
from headrace.client.errors import Misuse, PoisonRecord
from headrace.client.one_thread import CLOSED
from headrace.client.records import K, Record, TopicPartition, V
from headrace.client.serializers import Deserializer

P = ParamSpec("P")
T = TypeVar("T")


async def uninterrupted(work: Awaitable[T]) -> T:
    """Wait for its end, also if we are cancelled meanwhile: it must not be left half done."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieve its exception; we raise our cancellation
        raise


class AsyncConsumer(Generic[K, V]):
    """Takes what `Consumer` takes; use it with `async with`, read with `async for`."""

    def __init__(
        self,
        bootstrap: str | ClientSettings | None = None,
        *,
        topics: Sequence[str] = (),
        group: str | None = None,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        auto_offset_reset: OffsetReset = "earliest",
        auto_commit: bool = False,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        on_poison: Callable[[PoisonRecord], None] | None = None,
        on_commit: OnCommit | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        self.sync: Consumer[K, V] = Consumer(
            bootstrap,
            topics=topics,
            group=group,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            auto_offset_reset=auto_offset_reset,
            auto_commit=auto_commit,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
            on_poison=on_poison,
            on_commit=on_commit,
            settings=settings,
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-consumer")
        self._closed = False
        self._jobs = 0  # given to the thread and not finished
        self._counting = threading.Lock()

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on the consumer's thread, after its current call."""
        self._require_open()
        with self._counting:
            self._jobs += 1
        job = self._thread.submit(call, *args, **kwargs)
        job.add_done_callback(self._finished)
        return await asyncio.wrap_future(job)

    def _require_open(self) -> None:
        if self._closed:
            raise Misuse(CLOSED)

    def _finished(self, job: object) -> None:
        with self._counting:
            self._jobs -= 1

    # ---- reading

    async def poll(self, timeout_s: float = 1.0) -> Record[K, V] | None:
        """Return the next record; None if none arrived in time, or after `stop`."""
        records = await self.batch(1, timeout_s)
        return records[0] if records else None

    async def batch(
        self, max_records: int = RECORDS_PER_FETCH, timeout_s: float = 1.0
    ) -> list[Record[K, V]]:
        """Return up to `max_records` records: waits for the first, then takes what has arrived."""
        return await self._batch(self.sync.give, max_records, timeout_s)

    async def batch_messages(self, max_records: int, timeout_s: float) -> list[Message]:
        """As `batch`; the records are those of `Consumer.give_messages`."""
        return await self._batch(self.sync.give_messages, max_records, timeout_s)

    async def _batch(
        self, give: Callable[[int], list[T]], max_records: int, timeout_s: float
    ) -> list[T]:
        self._require_open()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not self.sync.stopped:
            if max_records > 1:
                await self.run(self.sync.fill, max_records)
            await self._idle()
            if records := give(max_records):
                return records  # nothing is awaited between these two, so nothing is lost
            left = deadline - loop.time()
            if not await self.run(self.sync.fetch, max(0.0, min(left, SLICE_S))) and left <= 0:
                await self.run(self.sync.verify)
                break
        return []

    async def _idle(self) -> None:
        """Wait until the thread does nothing: a fetch whose caller was cancelled may be under
        way."""
        while self._jobs or self.sync.is_due:
            await self.run(self.sync.catch_up if self.sync.is_due else _nothing)

    def __aiter__(self) -> AsyncConsumer[K, V]:
        return self

    async def __anext__(self) -> Record[K, V]:
        while not self.sync.stopped:
            ready = self.sync.has_ready and not self._jobs
            record = self.sync.take() if ready else await self.poll(SLICE_S)
            if record is not None:
                return record
        raise StopAsyncIteration

    def stop(self) -> None:
        """End the iteration and every later poll."""
        self.sync.stop()

    async def skip(self, poison: PoisonRecord) -> None:
        """As `Consumer.skip`."""
        await self.run(self.sync.skip, poison)

    # ---- what to read, where we are

    async def subscribe(self, topics: Sequence[str]) -> None:
        """As `Consumer.subscribe`."""
        await self.run(self.sync.subscribe, topics)

    async def assign(self, partitions: Partitions | Offsets) -> None:
        """As `Consumer.assign`."""
        await self.run(self.sync.assign, partitions)

    async def assignment(self) -> list[TopicPartition]:
        """As `Consumer.assignment`."""
        return await self.run(self.sync.assignment)

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        """As `Consumer.partitions_of`."""
        return await self.run(self.sync.partitions_of, topic)

    def positions(self) -> dict[TopicPartition, int]:
        """As `Consumer.positions`."""
        return self.sync.positions()

    def position(self, place: TopicPartition) -> int | None:
        """As `Consumer.position`."""
        return self.sync.position(place)

    async def committed(
        self, partitions: Partitions | None = None
    ) -> dict[TopicPartition, int | None]:
        """As `Consumer.committed`."""
        return await self.run(self.sync.committed, partitions)

    async def lag(self) -> dict[TopicPartition, int]:
        """As `Consumer.lag`."""
        return await self.run(self.sync.lag)

    async def seek(self, place: TopicPartition, offset: int) -> None:
        """As `Consumer.seek`."""
        await self.run(self.sync.seek, place, offset)

    async def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        """As `Consumer.seek_to_beginning`."""
        await self.run(self.sync.seek_to_beginning, partitions)

    async def seek_to_end(self, partitions: Partitions | None = None) -> None:
        """As `Consumer.seek_to_end`."""
        await self.run(self.sync.seek_to_end, partitions)

    async def seek_to_time(
        self, when: datetime | int, partitions: Partitions | None = None
    ) -> None:
        """As `Consumer.seek_to_time`."""
        await self.run(self.sync.seek_to_time, when, partitions)

    async def rewind(self) -> None:
        """As `Consumer.rewind`."""
        await self.run(self.sync.rewind)

    async def pause(self, partitions: Partitions | None = None) -> None:
        """As `Consumer.pause`."""
        await self.run(self.sync.pause, partitions)

    async def resume(self, partitions: Partitions | None = None) -> None:
        """As `Consumer.resume`."""
        await self.run(self.sync.resume, partitions)

    def paused(self) -> set[TopicPartition]:
        """As `Consumer.paused`."""
        return self.sync.paused()

    # ---- committing, and the end

    async def commit(
        self, up_to: UpTo = None, *, timeout_s: float = COMMIT_S
    ) -> dict[TopicPartition, int]:
        """Commit and wait: all returned records, those up to a record, or the given offsets."""
        return await self.run(self.sync.commit, up_to, timeout_s=timeout_s)

    async def commit_async(self, up_to: UpTo = None) -> None:
        """Commit without waiting; `on_commit` is called during a later poll or commit."""
        await self.run(self.sync.commit_async, up_to)

    async def close(self) -> None:
        """Leave the group at once. Commits nothing, unless auto_commit is set."""
        await self._end(self.sync.close)

    async def _end(self, close: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        if self._closed:
            return
        self.sync.stop()
        ending = self.run(close, *args, **kwargs)
        try:
            await uninterrupted(ending)
        finally:
            self._closed = True
            self._thread.shutdown(wait=False)

    async def __aenter__(self) -> AsyncConsumer[K, V]:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._end(self.sync.__exit__, kind, error, trace)


def _nothing() -> None:
    """A call to wait for: when it has run, the earlier calls have ended."""
