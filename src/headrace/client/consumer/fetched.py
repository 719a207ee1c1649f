"""Records that librdkafka has handed over and the program has not seen yet, in order.

Fetching many at once and returning them one by one makes iteration quick; it also means that the
position of the *program* must be kept here, because for librdkafka all of these are read. Records
of paused partitions are set aside; those of revoked or sought partitions are dropped.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import methodcaller
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message

from headrace.client.errors import (
    NOBODY_ANSWERS,
    ClientError,
    NoSuchTopic,
    PoisonRecord,
    explain,
)
from headrace.client.records import HeaderList, K, Record, TopicPartition, V
from headrace.client.serializers import Deserializer
from headrace.wire.contract.headers import UNREADABLE

RECORDS_PER_FETCH = 500
# For programs that pass records on as librdkafka has them.
NativeMessage = Message

# How often librdkafka is polled while records are left to return; a group removes a member that
# does not poll for max.poll.interval.ms, five minutes unless set.
SIGN_OF_LIFE_S = 0.2


class Fetched:
    def __init__(self) -> None:
        self.ready: deque[Message] = deque()
        self._held: dict[TopicPartition, deque[Message]] = {}
        self._silent_from = 0.0

    def fetch(self, native: Consumer, timeout_s: float) -> bool:
        """Wait for records; returns whether some came."""
        first = native.poll(timeout_s)
        self._silent_from = time.monotonic() + SIGN_OF_LIFE_S
        if first is None:
            return False
        # Kept before the next call: a rebalance inside it may take this partition away.
        self.add([first])
        self.add(native.consume(RECORDS_PER_FETCH, timeout=0))
        return True

    @property
    def can_give(self) -> bool:
        """Whether there is a record to return, and no poll is due before."""
        return bool(self.ready) and time.monotonic() < self._silent_from

    @property
    def is_silent(self) -> bool:
        """Whether there is a record to return, but a poll is due before."""
        return bool(self.ready) and time.monotonic() >= self._silent_from

    def show_life(self, native: Consumer) -> None:
        """Poll for one record at most, so that what is kept does not grow while the program is
        slow."""
        one = native.poll(0)
        self._silent_from = time.monotonic() + SIGN_OF_LIFE_S
        if one is not None:
            self.add([one])

    def given(
        self,
        most: int,
        said: Callable[[Message], ClientError | None],
        gave: Callable[[str, int, int], None],
    ) -> list[Message]:
        """Up to `most` messages as they are, for a program that only passes them on: that saves
        half of the cost of a small record. An error between them is raised when it comes first."""
        messages: list[Message] = []
        while self.ready and len(messages) < most:
            if self.ready[0].error() is None:
                messages.append(self.ready.popleft())
                continue
            if messages:
                break  # the next call raises it
            if (failure := said(self.ready.popleft())) is not None:
                raise failure
        for message in ends_of_rows(messages):
            gave(message.topic() or "", message.partition() or 0, message.offset() or 0)
        return messages

    def add(self, messages: Iterable[Message]) -> None:
        if not self._held:
            self.ready.extend(messages)
            return
        for message in messages:
            held = self._held.get(place_of(message))
            (self.ready if held is None or message.error() else held).append(message)

    def forget(self, places: Collection[TopicPartition], *, errors: bool = False) -> None:
        """Drop the records of partitions that are revoked or sought; a pause stays.

        Events about them between the records stay, unless `errors` is set.
        """
        for place in places:
            if place in self._held:
                self._held[place].clear()
        if self.ready:
            self.ready = deque(
                m for m in self.ready if (m.error() and not errors) or place_of(m) not in places
            )

    def hold(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._held.setdefault(place, deque())
        waiting, self.ready = self.ready, deque()
        self.add(waiting)

    def release(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self.ready.extend(self._held.pop(place, ()))

    def has(self, place: TopicPartition) -> bool:
        """Whether fetched records of the partition wait here to be taken."""
        here = any(place_of(m) == place and not m.error() for m in self.ready)
        return here or bool(self._held.get(place))

    def places(self) -> set[TopicPartition]:
        """The partitions of all records here."""
        return {place_of(each) for each in self.ready if not each.error()} | self.held

    @property
    def held(self) -> set[TopicPartition]:
        return set(self._held)


def place_of(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)


def ends_of_rows(messages: Sequence[Message]) -> list[Message]:
    """The last message of each run of messages of the same partition."""
    ends: list[Message] = []
    topic = partition = None
    for message in reversed(messages):
        if message.partition() != partition or message.topic() != topic:
            topic, partition = message.topic(), message.partition()
            ends.append(message)
    ends.reverse()
    return ends


def said_between(message: Message, bootstrap: str, group: str | None) -> ClientError | None:
    """The events of librdkafka between records; None for problems that it repairs itself."""
    error = message.error()
    assert error is not None
    code = error.code()
    if code == KafkaError._PARTITION_EOF or (code in NOBODY_ANSWERS and not error.fatal()):
        return None
    if code == KafkaError.GROUP_AUTHORIZATION_FAILED and not group:
        return None  # about the group name that librdkafka insists on: that right is not needed
    said = explain(error, bootstrap, topic=message.topic())
    if isinstance(said, NoSuchTopic):
        said.args = (f"{said} Create it, and poll again.",)
    return said


def deserialized(
    message: Message, read_key: Deserializer[K] | None, read_value: Deserializer[V] | None
) -> Record[K, V]:
    record = record_of(message)
    part = "key"
    try:
        if read_key is not None and record.key is not None:
            record.key = read_key(record.key)
        part = "value"
        if read_value is not None and record.value is not None:
            record.value = read_value(record.value)
    except Exception as failure:
        raise PoisonRecord(part, record_of(message), failure) from failure
    return record


def is_of(message: Message, record: Record[Any, Any]) -> bool:
    """Whether this message has the topic, partition and offset of that record."""
    return place_of(message) == record.place and message.offset() == record.offset


# A plain call does not always see the exception that is left behind; this one always does.
_native_headers = methodcaller("headers")


def headers_of(message: Message) -> HeaderList:
    """The headers. Replaced by a substitute if a header's name is not UTF-8: any client may write
    any bytes, and reading them must not end the program.

    confluent-kafka 2.16 raises SystemError for such a name and keeps a half-made list: a second
    call returns that list, and the process ends with a segmentation fault.
    """
    try:
        headers: Any = _native_headers(message)
    except (SystemError, UnicodeDecodeError):  # the first because of the second
        instead: Any = [(UNREADABLE, b"a header's name is no UTF-8")]
        message.set_headers(instead)
        return list(instead)
    if not headers:
        return []
    return [(k, v.encode() if isinstance(v, str) else v) for k, v in headers]


def record_of(message: Message) -> Record[Any, Any]:
    """A message of librdkafka as a record, its key and value still bytes."""
    kind, timestamp_ms = message.timestamp()
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        timestamp_ms if kind else None,
        _TIMESTAMP_TYPES[kind],
        message.key(),
        message.value(),
        headers_of(message),
    )


_TIMESTAMP_TYPES = {0: None, 1: "create", 2: "append"}
