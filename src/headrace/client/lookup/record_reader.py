"""Reading records of a topic from a chosen place, without a consumer group.

Partitions are assigned by hand and nothing is committed, so no other reader is disturbed.
(librdkafka asks for a group coordinator anyway; Apache Kafka then creates `__consumer_offsets` if
it does not exist.)
Unless it follows, a reader stops at the end offsets that it saw when it started, also when the last
offsets hold no record for it (transaction markers, compacted or aborted records).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from headrace.client.connection import ClientSettings, wait_for_topic
from headrace.client.consumer.fetched import record_of
from headrace.client.errors import (
    NOBODY_ANSWERS,
    NOT_LED_YET,
    ClientError,
    explain,
    kafka_error,
)
from headrace.client.records import Record as Record

MESSAGES_PER_CALL = 500
# The factor by which the search for the last records goes further back, if it found too few.
FURTHER_BACK = 4
LOOK_AGAIN_S = 0.05
# A partition whose last offsets hold no record (a transaction marker, a compacted record) has been
# read when a fetch returns nothing. By default the broker may hold back such an answer for 0.5 s.
BOUNDED_FETCH_WAIT_MS = 5
FOLLOWING_FETCH_WAIT_MS = 500  # librdkafka's own


@dataclass(slots=True, frozen=True)
class AtOffset:
    """From this offset of each partition, or the nearest one that the partition has."""

    offset: int


@dataclass(slots=True, frozen=True)
class AtTime:
    """From the first record that is not older than this moment."""

    wall_ms: int


@dataclass(slots=True, frozen=True)
class Last:
    """From the last `count` records of each partition."""

    count: int


BEGINNING = AtOffset(OFFSET_BEGINNING)
END = AtOffset(OFFSET_END)
Start = AtOffset | AtTime | Last


class RecordReader:
    """Reads a topic, or some of its partitions; use `records()`, then `close()`."""

    def __init__(
        self,
        connection: ClientSettings,
        topic: str,
        *,
        start: Start = BEGINNING,
        partitions: list[int] | None = None,
        follow: bool = False,
    ) -> None:
        self.connection = connection
        self.topic = topic
        self.follow = follow
        self._consumer: Consumer = connection.consumer(
            group_id="headrace-cli",  # librdkafka needs a name; nothing is committed under it
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="earliest",
            fetch_wait_max_ms=FOLLOWING_FETCH_WAIT_MS if follow else BOUNDED_FETCH_WAIT_MS,
        )
        try:
            self._begin(start, partitions)
        except BaseException:
            self._consumer.close()
            raise

    def _begin(self, start: Start, partitions: list[int] | None) -> None:
        """Find the ends of the partitions and start reading."""
        topic = self.topic
        count = wait_for_topic(self._consumer, self.connection, topic)
        chosen = range(count) if partitions is None else partitions
        for partition in chosen:
            if not 0 <= partition < count:
                raise ClientError(
                    f"Topic {topic} has no partition {partition}; it has {count}, counted from 0."
                )
        self._bounds = {partition: self._ends(partition) for partition in chosen}
        self._starts = self._start_offsets(start)
        self._open = {
            partition
            for partition, offset in self._starts.items()
            if self.follow or offset < self._bounds[partition][1]
        }
        self._consumer.assign(
            [TopicPartition(topic, p, self._starts[p]) for p in sorted(self._open)]
        )

    def records(self) -> Iterator[Record]:
        """Every record from the start to the end offsets; with `follow`, for ever."""
        while self._open:
            for message in self._some_messages():
                error = message.error()
                if error is not None:
                    self._note(error, message)
                    continue
                record = record_of(message)
                if self.follow:
                    yield record
                    continue
                end = self._bounds[record.partition][1]
                if record.offset < end:
                    yield record
                if record.offset >= end - 1:
                    self._open.discard(record.partition)

    def _some_messages(self) -> list[Message]:
        """Wait for one, then take those that have arrived; `consume` alone waits until it has as
        many."""
        first = self._consumer.poll(1.0)
        if first is None:
            return []
        return [first, *self._consumer.consume(MESSAGES_PER_CALL, timeout=0)]

    def close(self) -> None:
        self._consumer.close()

    def ends_before(self, offset: int) -> bool:
        """Whether no partition reaches this offset, so that no record would be read."""
        return all(high <= offset for _, high in self._bounds.values())

    @property
    def end_offset(self) -> int:
        """The highest end offset of its partitions."""
        return max((high for _, high in self._bounds.values()), default=0)

    def _note(self, error: KafkaError, message: Message) -> None:
        """Handle an error: without `follow` the end of a partition closes it; others end the
        reading."""
        if error.code() == KafkaError._PARTITION_EOF:
            if not self.follow:
                self._open.discard(message.partition() or 0)
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return  # about the group name that librdkafka insists on: that right is not needed
        elif not (self.follow and error.code() in NOBODY_ANSWERS):
            raise explain(error, self.connection.bootstrap, topic=self.topic)

    def _ends(self, partition: int) -> tuple[int, int]:
        """The first and the end offset. A topic that was just made, or whose leader just moved, may
        have no leader for a moment; this waits for it."""
        deadline = time.monotonic() + self.connection.timeout_s
        while True:
            try:
                return self._consumer.get_watermark_offsets(
                    TopicPartition(self.topic, partition), timeout=self.connection.timeout_s
                )
            except KafkaException as failure:
                error = kafka_error(failure)
                if error.code() not in NOT_LED_YET or time.monotonic() > deadline:
                    raise explain(error, self.connection.bootstrap, topic=self.topic) from failure
            time.sleep(LOOK_AGAIN_S)
            self._consumer.list_topics(self.topic, timeout=self.connection.timeout_s)

    def _start_offsets(self, start: Start) -> dict[int, int]:
        """The first offset to read of each partition."""
        if isinstance(start, AtTime):
            return self._offsets_by_time(start.wall_ms)
        if isinstance(start, Last):
            return {p: self._offset_of_last(p, start.count) for p in self._bounds}
        if start == BEGINNING:
            return {p: low for p, (low, _) in self._bounds.items()}
        if start == END:
            return {p: high for p, (_, high) in self._bounds.items()}
        # Partitions have different lengths: one that is shorter is read from its end.
        return {p: min(max(start.offset, low), high) for p, (low, high) in self._bounds.items()}

    def _offset_of_last(self, partition: int, count: int) -> int:
        """The offset where the last `count` records of a partition begin. Offsets have holes
        (transaction markers, compacted and aborted records), so records are read, from ever further
        back, until there are enough."""
        low, high = self._bounds[partition]
        back = count
        while back > 0:
            begin = max(low, high - back)
            found = self._offsets_between(partition, begin, high, most=count)
            if len(found) == count or begin == low:
                return found[0] if found else high
            back *= FURTHER_BACK
        return high

    def _offsets_between(self, partition: int, begin: int, end: int, *, most: int) -> list[int]:
        """The last `most` offsets in this range that hold a record for us."""
        if begin >= end:
            return []
        found: deque[int] = deque(maxlen=most)
        self._consumer.assign([TopicPartition(self.topic, partition, begin)])
        while True:
            for message in self._some_messages():
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return list(found)
                if error is not None:
                    self._note(error, message)
                    continue
                offset = message.offset() or 0
                if offset < end:
                    found.append(offset)
                if offset >= end - 1:
                    return list(found)

    def _offsets_by_time(self, wall_ms: int) -> dict[int, int]:
        asked = [TopicPartition(self.topic, p, wall_ms) for p in self._bounds]
        try:
            found = self._consumer.offsets_for_times(asked, timeout=self.connection.timeout_s)
        except KafkaException as failure:
            raise explain(
                kafka_error(failure), self.connection.bootstrap, topic=self.topic
            ) from failure
        return {
            # A partition without such a late record returns a negative offset: use its end.
            place.partition: place.offset if place.offset >= 0 else self._bounds[place.partition][1]
            for place in found
        }
