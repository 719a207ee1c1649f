"""One user's way to the cluster: a producer, an admin client, a name. Made when first needed.

The server acts with the rights of the user who sent the request, so each user has connections of
their own (`logins.py` bounds how many). Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headrace.client.admin.admin import Admin
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.delay.schedules import When
from headrace.client.errors import ClientError
from headrace.client.producer.async_producer import AsyncProducer
from headrace.client.records import Outgoing, Sent
from headrace.services.http.cluster_refusals import unwritten
from headrace.services.http.dialects.v2 import Outcome, Written
from headrace.services.http.limits import HttpLimits
from headrace.services.http.questions import Questions
from headrace.services.http.writes.own_topic import refuse_own_topic
from headrace.services.http.writes.writes import Write

if TYPE_CHECKING:
    from headrace.services.http.streams.topic_feed import TopicFeed
    from headrace.services.http.writes.keyed_writes import KeyedWrites

T = TypeVar("T")

# A topic that a producer hears of for the first time may just be on its way to all brokers.
NEW_TOPIC_MS = 5_000


def producer_settings(limits: HttpLimits) -> dict[str, Any]:
    return {
        # Requests within half a millisecond share a batch: without it each request wakes
        # librdkafka's thread and is a request to the broker (68 us of processor time, now 13).
        "linger.ms": 0.5,
        "batch.size": 131_072,
        "message.timeout.ms": int(limits.delivery_s * 1000),
        "message.max.bytes": limits.record_bytes + 65_536,
        # A mistyped name is refused instead of becoming a topic.
        "allow.auto.create.topics": limits.create_topics,
        "topic.metadata.propagation.max.ms": NEW_TOPIC_MS,
        # Our own bound comes first (`budget.py`); these are never reached.
        "queue.buffering.max.kbytes": limits.in_flight_bytes * 2 // 1024,
        "queue.buffering.max.messages": 2_000_000,
    }


class UserAccess:
    def __init__(
        self,
        name: str,
        connection: ClientSettings,
        limits: HttpLimits,
        questions: Questions,
        *,
        expires_s: float | None = None,
    ) -> None:
        self.name = name  # for the log and for the topic of idempotency keys
        self.connection = connection
        self.expires_s = expires_s  # of the token, by the wall clock
        self._limits = limits
        self._questions = questions
        self._producer: AsyncProducer[bytes, bytes] | None = None
        # Held until they end: asyncio itself refers to a task only weakly.
        self._closing: set[asyncio.Future[None]] = set()
        self._admin: Admin | None = None
        self._making = threading.Lock()
        self._cluster_id: str | None = None
        self.feeds: dict[str, TopicFeed] = {}  # of its streams, by topic
        self.keyed: KeyedWrites | None = None  # its idempotency keys
        self.in_use = 0  # requests, streams and instances of this user

    # ---- writing

    @property
    def producer(self) -> AsyncProducer[bytes, bytes]:
        if self._producer is not None and self._producer.failed_for_good:
            closing = asyncio.ensure_future(self._producer.close(0))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._producer = None
        if self._producer is None:
            self._producer = AsyncProducer(
                self.connection,
                max_block_s=0,
                settings=producer_settings(self._limits),
                polled_by_loop=True,
            )
        return self._producer

    async def write(self, topic: str, writes: Sequence[Write]) -> list[Outcome]:
        """Returns the outcome of each record, in order. The records of a request are sent
        together."""
        producer = self.producer
        outgoing = [await outgoing_of(producer, topic, each) for each in writes]
        ends = await (await producer.send_all(outgoing))
        return [outcome_of(end) for end in ends]

    # ---- asking

    async def ask(self, question: Callable[[Admin], T]) -> T:
        return await self._questions.ask(lambda: question(self._administered()))

    async def ask_topics(self, question: Callable[[Topics], T]) -> T:
        return await self.ask(lambda admin: question(admin.topics))

    async def run(self, call: Callable[[], T]) -> T:
        return await self._questions.ask(call)

    def _administered(self) -> Admin:
        with self._making:
            if self._admin is None:
                self._admin = Admin(self.connection)
            return self._admin

    async def cluster_id(self) -> str:
        if self._cluster_id is None:
            self._cluster_id = await self.ask(lambda admin: admin.cluster.describe().id)
        return self._cluster_id

    async def close(self, grace_s: float) -> None:
        for feed in self.feeds.values():
            await feed.close()
        if self.keyed is not None:
            await self.keyed.close()
        if self._producer is not None:
            await self._producer.close(grace_s)


async def outgoing_of(
    producer: AsyncProducer[bytes, bytes], topic: str, write: Write
) -> Outgoing[bytes, bytes]:
    refuse_own_topic(topic)
    record: Outgoing[bytes, bytes] = Outgoing(
        topic, write.value, write.key, write.headers, write.partition, write.timestamp_ms
    )
    if write.when is None:
        return record
    return await producer.scheduled(record, cast(When, write.when))


def outcome_of(end: Sent | ClientError) -> Outcome:
    if isinstance(end, Sent):
        return Written(end.partition, end.offset, end.timestamp_ms)
    return unwritten(end)
