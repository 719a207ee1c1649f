"""Reading partitions of a topic in the order of their records' times, in bounded memory.

Each partition keeps the order of its offsets: a record counts as no older than those before it in
its partition. Between partitions the older record comes first. A record is returned when every
partition that is still being read has one to compare it with. A partition that is far ahead is
paused, so memory does not grow with the topic.

Reads committed records only, up to end offsets that are fixed at the start; no group is involved.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from headrace.client.connection import ClientSettings
from headrace.client.consumer.fetched import record_of
from headrace.client.errors import NOBODY_ANSWERS, ClientError, explain
from headrace.client.lookup.record_pages import Browser
from headrace.client.records import HeaderList, Record
from headrace.wire.contract.headers import UNREADABLE

MESSAGES_PER_CALL = 500
# A partition with so many waiting records is paused until it has few.
MANY, FEW = 2_000, 200
# How long brokers may be silent before the reading gives up.
PATIENCE_S = 60.0


class TimeOrder:
    """Pure: records of several partitions in, the same in the order of their times out."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self._queues: dict[int, deque[Record]] = {p: deque() for p in partitions}
        self._reached_ms = dict.fromkeys(self._queues, 0)  # latest time given out or queued
        self._heads: list[tuple[int, int]] = []  # time and partition of each queue's first record
        self.open = set(self._queues)  # partitions that may bring more records

    def add(self, record: Record) -> None:
        queue = self._queues[record.partition]
        queue.append(record)
        if len(queue) == 1:
            self._push_head(record)

    def close(self, partition: int) -> None:
        """No more records come from this partition; its waiting ones are still returned."""
        self.open.discard(partition)

    def ready(self) -> Iterator[Record]:
        """Every record that no later record can precede."""
        while self._heads and all(self._queues[p] for p in self.open):
            _, partition = heapq.heappop(self._heads)
            queue = self._queues[partition]
            record = queue.popleft()
            if queue:
                self._push_head(queue[0])
            yield record

    def in_hand(self, partition: int) -> int:
        return len(self._queues[partition])

    def _push_head(self, record: Record) -> None:
        moment = max(self._reached_ms[record.partition], record.timestamp_ms or 0)
        self._reached_ms[record.partition] = moment
        heapq.heappush(self._heads, (moment, record.partition))


class TimeOrderedReader:
    """Reads `spans` of a topic, first and end offset by partition; `records()`, then `close()`."""

    def __init__(
        self,
        connection: ClientSettings,
        topic: str,
        spans: Mapping[int, tuple[int, int]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._clock = clock
        self._ends = {p: end for p, (first, end) in spans.items() if first < end}
        self._order = TimeOrder(self._ends)
        self._paused: set[int] = set()
        self._consumer: Consumer = connection.consumer(
            group_id="headrace-cli",  # librdkafka needs a name; nothing is committed under it
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
            isolation_level="read_committed",
        )
        self._consumer.assign([TopicPartition(topic, p, spans[p][0]) for p in sorted(self._ends)])

    def records(self) -> Iterator[Record]:
        heard_at = self._clock()
        while True:
            yield from self._order.ready()
            if not self._order.open:
                return
            self._steer()
            messages = self._some_messages()
            if messages:
                heard_at = self._clock()
            elif self._clock() - heard_at > PATIENCE_S:
                raise ClientError(
                    f"No broker has sent records of {self._topic} for {PATIENCE_S:g} seconds."
                )
            for message in messages:
                self._take(message)

    def close(self) -> None:
        self._consumer.close()

    def _some_messages(self) -> list[Message]:
        first = self._consumer.poll(1.0)
        if first is None:
            return []
        return [first, *self._consumer.consume(MESSAGES_PER_CALL, timeout=0)]

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self._hear(error, message)
            return
        record = record_of(message)
        if record.headers and record.headers[0][0] == UNREADABLE:
            record.headers = self._headers_read_otherwise(record)
        end = self._ends[record.partition]
        if record.offset < end and record.partition in self._order.open:
            self._order.add(record)
        if record.offset >= end - 1:
            self._close(record.partition)

    def _headers_read_otherwise(self, record: Record) -> HeaderList:
        """Reads headers with our own codecs, which replace bytes that are not text by a sign."""
        with closing(Browser(self._connection, self._topic)) as browser:
            page = browser.onwards(
                {record.partition: record.offset},
                want=1,
                accepts=lambda seen: seen.record.offset == record.offset,
            )
        return page.found[0].record.headers if page.found else record.headers

    def _hear(self, error: KafkaError, message: Message) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._close(message.partition() or 0)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise ClientError(
                f"Records of {self._topic}-{message.partition()} that were still to be read were "
                "deleted: its first offset has moved."
            )
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return  # about the group name that librdkafka insists on: that right is not needed
        elif error.code() not in NOBODY_ANSWERS:
            raise explain(error, self._connection.bootstrap, topic=self._topic)

    def _close(self, partition: int) -> None:
        if partition in self._order.open:
            self._order.close(partition)
            self._consumer.pause([TopicPartition(self._topic, partition)])

    def _steer(self) -> None:
        """Pause partitions that are far ahead, resume those with few records waiting."""
        full = {p for p in self._order.open - self._paused if self._order.in_hand(p) >= MANY}
        dry = {p for p in self._order.open & self._paused if self._order.in_hand(p) <= FEW}
        if full:
            self._consumer.pause([TopicPartition(self._topic, p) for p in full])
        if dry:
            self._consumer.resume([TopicPartition(self._topic, p) for p in dry])
        self._paused = (self._paused | full) - dry
