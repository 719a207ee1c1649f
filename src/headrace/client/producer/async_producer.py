"""The producer for asyncio: the same methods, without blocking the event loop.

`send` takes the record at once, or, when the local buffer is full, lets other tasks run until there
is room; it returns an asyncio future. Many sends in a row also let other tasks run now and then.
Calls that wait for the cluster (flush, close, transactions) run on a thread. Delivery results come
to the loop in bundles: one wake-up for many.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Protocol, Unpack

from confluent_kafka import KafkaError, Message

from headrace.client.connection import ClientSettings, Setting
from headrace.client.consumer.async_consumer import AsyncConsumer, uninterrupted
from headrace.client.delay.schedules import When, cancelling, delayed
from headrace.client.errors import BufferFull, ClientError
from headrace.client.producer.delivery import sent
from headrace.client.producer.interceptors import ProducerInterceptor, intercept, tell
from headrace.client.producer.partitioners import Partitioner
from headrace.client.producer.producer import Dressed, Producer
from headrace.client.producer.transactions import Transaction
from headrace.client.records import GivenHeaders, Outgoing, Sent, SentKey, SentValue, header_list
from headrace.client.serializers import Serializer

# How long a sender waits when the buffer is full.
STEP_ASIDE_S = 0.005
# How often the loop polls for delivery results; epoll counts in whole milliseconds.
POLL_EVERY_S = 0.001
# Other tasks run after each so many records (one less than a power of two, as a mask).
TURN_MASK = 127


class _NeverWaits(Producer[SentKey, SentValue]):
    def take_when_there_is_room(self, record: tuple[Any, ...]) -> None:
        raise BufferFull("no room right now")


class _Told(Protocol):
    def end(self, where: Sent | None, error: ClientError | None) -> None: ...


class _Inbox:
    """Delivery results, collected on the thread that polls and handed over on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ended: deque[tuple[_Told, Sent | None, ClientError | None]] = deque()
        self._called = False
        self._thread = threading.get_ident()

    def put(self, delivery: _Told, where: Sent | None, error: ClientError | None) -> None:
        if threading.get_ident() == self._thread:  # the loop itself polls
            delivery.end(where, error)
            return
        self._ended.append((delivery, where, error))
        if not self._called:
            self._called = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: no one waits any more
                self.loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._called = False  # before the queue is emptied: a later result schedules a new call
        while self._ended:
            delivery, where, error = self._ended.popleft()
            delivery.end(where, error)


class _AsyncDelivery:
    __slots__ = ("future", "inbox", "producer", "record")

    def __init__(
        self,
        inbox: _Inbox,
        producer: Producer[Any, Any],
        future: asyncio.Future[Sent] | None,
        record: Outgoing[Any, Any],
    ) -> None:
        self.inbox, self.producer, self.future, self.record = inbox, producer, future, record

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.inbox.put(self, sent(message), None)
        else:
            why = self.producer.explain_delivery(error, message.topic() or "")
            self.inbox.put(self, None, why)

    def end(self, where: Sent | None, error: ClientError | None) -> None:
        tell(self.producer.interceptors, self.record, where, error)
        if self.future is None:
            self.producer.one_way_failures += error is not None
        elif self.future.done():  # cancelled by the one who waited; the record is sent all the same
            return
        elif error is None:
            assert where is not None
            self.future.set_result(where)
        else:
            self.future.set_exception(error)


class _Group:
    """The results of records that are awaited together, in their order."""

    __slots__ = ("ends", "left", "told")

    def __init__(self, count: int, told: Callable[[list[Sent | ClientError]], None]) -> None:
        self.ends: list[Any] = [None] * count
        self.left = count
        self.told = told

    def end(self, index: int, what: Sent | ClientError) -> None:
        self.ends[index] = what
        self.left -= 1
        if not self.left:
            self.told(self.ends)


class _OfGroup:
    """One record of a group: an index in its list instead of a future of its own."""

    __slots__ = ("group", "inbox", "index", "producer", "record")

    def __init__(
        self,
        inbox: _Inbox,
        producer: Producer[Any, Any],
        group: _Group,
        index: int,
        record: Outgoing[Any, Any],
    ) -> None:
        self.inbox, self.producer, self.group = inbox, producer, group
        self.index, self.record = index, record

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.inbox.put(self, sent(message), None)
        else:
            why = self.producer.explain_delivery(error, message.topic() or "")
            self.inbox.put(self, None, why)

    def end(self, where: Sent | None, error: ClientError | None) -> None:
        tell(self.producer.interceptors, self.record, where, error)
        self.group.end(self.index, error if where is None else where)  # type: ignore[arg-type]


class AsyncTransaction:
    """Made by `producer.transaction()`; use it with `async with`, once."""

    def __init__(
        self, producer: Producer[Any, Any], consumer: AsyncConsumer[Any, Any] | None
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._transaction: Transaction | None = None

    async def send_offsets(self, consumer: AsyncConsumer[Any, Any]) -> None:
        """Commit the position of `consumer` as a part of this transaction."""
        assert self._transaction is not None, "inside `async with`"
        await consumer.run(self._transaction.send_offsets, consumer.sync)

    async def __aenter__(self) -> AsyncTransaction:
        consumer = None if self._consumer is None else self._consumer.sync
        made = await uninterrupted(asyncio.to_thread(self._producer.transaction, consumer=consumer))
        self._transaction = made
        try:
            await uninterrupted(asyncio.to_thread(made.begin))
        except asyncio.CancelledError:  # it has begun, and no other code will end it
            with contextlib.suppress(ClientError):
                await uninterrupted(asyncio.to_thread(made.abort))
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._transaction is not None
        end = self._transaction.__exit__
        if self._consumer is None:
            await uninterrupted(asyncio.to_thread(end, kind, error, trace))
        else:  # on the consumer's thread, so that it does not poll meanwhile
            await uninterrupted(self._consumer.run(end, kind, error, trace))


class AsyncProducer(Generic[SentKey, SentValue]):
    """Takes what `Producer` takes; use it with `async with`."""

    def __init__(
        self,
        bootstrap: str | ClientSettings | None = None,
        *,
        key_serializer: Serializer[SentKey] | None = None,
        value_serializer: Serializer[SentValue] | None = None,
        partitioner: str | Partitioner = "murmur2_random",
        interceptors: Sequence[ProducerInterceptor] = (),
        transactional_id: str | None = None,
        max_block_s: float = 60.0,
        settings: Mapping[str, Setting] | None = None,
        polled_by_loop: bool = False,
    ) -> None:
        """`polled_by_loop`: the event loop polls every millisecond while records are unanswered,
        instead of a thread that wakes it. If each record is awaited, that saves a third of the
        processor time, for up to a millisecond more of waiting."""
        self._producer: Producer[SentKey, SentValue] = _NeverWaits(
            bootstrap,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
            transactional_id=transactional_id,
            max_block_s=max_block_s,
            settings=settings,
        )
        self._inbox: _Inbox | None = None
        self._sends = 0
        self._poll = self._producer.poll_by_hand() if polled_by_loop else None
        self._is_polling = False

    async def send(
        self,
        topic: str,
        value: SentValue | None = None,
        *,
        key: SentKey | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        **when: Unpack[When],
    ) -> asyncio.Future[Sent]:
        """Send a record; await the returned future for its partition and offset.

        `delay=`, `deliver_at=`, `cron=` and `id=` are those of `Producer.send`.
        """
        future: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
        record = Outgoing(topic, value, key, header_list(headers), partition, timestamp_ms)
        await self._take(await self.scheduled(record, when), future)
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: SentValue | None = None,
        *,
        key: SentKey | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        **when: Unpack[When],
    ) -> Sent:
        """Send and wait for the acknowledgement; raise the reason if the record was not written."""
        return await (
            await self.send(
                topic,
                value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
                **when,
            )
        )

    async def send_one_way(
        self,
        topic: str,
        value: SentValue | None = None,
        *,
        key: SentKey | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        **when: Unpack[When],
    ) -> None:
        """Send without waiting; `one_way_failures` counts the records that failed."""
        record = Outgoing(topic, value, key, header_list(headers), partition, timestamp_ms)
        await self._take(await self.scheduled(record, when), None)

    async def send_all(
        self, records: Sequence[Outgoing[SentKey, SentValue]]
    ) -> asyncio.Future[list[Sent | ClientError]]:
        """Take several records. The future gives the result of each, in order: where it was
        written, or why not. Cheaper than a future for each record (`scheduled` makes delayed
        ones)."""
        future: asyncio.Future[list[Sent | ClientError]] = (
            asyncio.get_running_loop().create_future()
        )

        def told(ends: list[Sent | ClientError]) -> None:
            if not future.done():  # cancelled by the one who waited
                future.set_result(ends)

        group = _Group(len(records), told)
        if not records:
            future.set_result([])
        inbox = self._inbox_here()
        for index, record in enumerate(records):
            try:
                await self._hand_over(record, _OfGroup(inbox, self._producer, group, index, record))
            except ClientError as refusal:
                group.end(index, refusal)
        return future

    def send_all_now(
        self,
        records: Sequence[Outgoing[SentKey, SentValue]],
        told: Callable[[list[Sent | ClientError]], None],
    ) -> None:
        """As `send_all`, without waiting for anything. `told` is called on the event loop with the
        result of each record, maybe before this returns; it must not raise, nor send: it may be
        called inside librdkafka's poll, which must not be nested. A full buffer is such a result.
        Only for producers with librdkafka's own partitioner, which asks the cluster nothing
        first."""
        group = _Group(len(records), told)
        inbox = self._inbox_here()
        for index, record in enumerate(records):
            ended = _OfGroup(inbox, self._producer, group, index, record)
            try:
                record = ended.record = intercept(self._producer.interceptors, record)
                assert self._producer.knows_partitions_of(record.topic)
                self._hand_over_now(self._producer.dressed(record), ended)
            except BufferFull:
                group.end(index, self._producer.buffer_full())
            except ClientError as refusal:
                group.end(index, refusal)

    async def cancel(
        self, topic: str, id: str, *, key: SentKey | None = None, partition: int | None = None
    ) -> asyncio.Future[Sent]:
        """Cancel the delayed record `id` that was sent with this key, as `Producer.cancel`."""
        record = cancelling(topic, id, key, partition)
        future: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
        await self._require_companion(topic)
        await self._take(record, future)
        return future

    async def scheduled(self, record: Outgoing[Any, Any], when: When) -> Outgoing[Any, Any]:
        """The record as it is sent: addressed to the companion if `when` has a time and there is
        one."""
        if not when:
            return record
        target = record.topic
        record = delayed(record, when)
        if record.topic != target:
            await self._require_companion(target)
        return record

    async def _require_companion(self, topic: str) -> None:
        companions = self._producer.companions
        if not companions.knows(topic):
            await asyncio.to_thread(companions.require, topic)

    def _inbox_here(self) -> _Inbox:
        loop = asyncio.get_running_loop()
        if self._inbox is None or self._inbox.loop is not loop:
            self._inbox = _Inbox(loop)
        return self._inbox

    async def _take(self, record: Outgoing[Any, Any], future: asyncio.Future[Sent] | None) -> None:
        ended = _AsyncDelivery(self._inbox_here(), self._producer, future, record)
        await self._hand_over(record, ended)

    async def _hand_over(
        self, record: Outgoing[Any, Any], ended: _AsyncDelivery | _OfGroup
    ) -> None:
        self._sends += 1
        if not self._sends & TURN_MASK:
            await asyncio.sleep(0)
        producer = self._producer
        record = ended.record = intercept(producer.interceptors, record)
        if not producer.knows_partitions_of(record.topic):
            await asyncio.to_thread(producer.partition_count, record.topic)
        dressed = producer.dressed(record)
        deadline = 0.0
        while True:
            try:
                self._hand_over_now(dressed, ended)
                return
            except BufferFull as full:
                now = time.monotonic()
                deadline = deadline or now + producer.max_block_s
                if now > deadline:
                    raise producer.buffer_full() from full
                await asyncio.sleep(STEP_ASIDE_S)

    def _hand_over_now(self, dressed: Dressed, ended: _AsyncDelivery | _OfGroup) -> None:
        topic, value, key, partition, timestamp_ms, headers = dressed
        self._producer.take(topic, value, key, partition, ended, timestamp_ms, headers)
        if self._poll is not None and not self._is_polling:
            self._is_polling = True
            asyncio.get_running_loop().call_later(POLL_EVERY_S, self._look)

    def _look(self) -> None:
        """Poll, which delivers results; again in a while if some records are unanswered."""
        assert self._poll is not None
        self._poll(0)
        self._is_polling = bool(len(self._producer))
        if self._is_polling:
            asyncio.get_running_loop().call_later(POLL_EVERY_S, self._look)

    @property
    def failed_for_good(self) -> bool:
        """True after a fatal error: the producer takes no more records; close it and make a new
        one."""
        return self._producer.failed_for_good

    async def prepare_transactions(self) -> None:
        """Fence older producers of the same transactional id, as `Producer` does."""
        await uninterrupted(asyncio.to_thread(self._producer.prepare_transactions))

    @property
    def one_way_failures(self) -> int:
        return self._producer.one_way_failures

    def transaction(self, *, consumer: AsyncConsumer[Any, Any] | None = None) -> AsyncTransaction:
        """All or nothing: `async with producer.transaction():`, as `Producer.transaction`."""
        return AsyncTransaction(self._producer, consumer)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record is acknowledged or failed."""
        await asyncio.to_thread(self._producer.flush, timeout_s)
        await asyncio.sleep(0)  # let tasks that await the futures run

    async def close(self, timeout_s: float | None = None) -> None:
        await asyncio.to_thread(self._producer.close, timeout_s)
        await asyncio.sleep(0)

    async def __aenter__(self) -> AsyncProducer[SentKey, SentValue]:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
