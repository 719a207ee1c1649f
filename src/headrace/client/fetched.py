"""Records that librdkafka has handed over and the program has not seen yet, in order.

Taking many at once and giving them out one by one is what makes iteration quick; it also means that
the place of the *program* must be kept here, because librdkafka thinks that all of these are read.
Paused partitions are set aside, those that are gone or sought elsewhere are forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

from confluent_kafka import Message

from headrace.client.errors import PoisonRecord
from headrace.client.records import K, Record, TopicPartition, V
from headrace.client.serializers import Deserializer


class Fetched:
    def __init__(self) -> None:
        self.ready: deque[Message] = deque()
        self._held: dict[TopicPartition, deque[Message]] = {}

    def add(self, messages: Iterable[Message]) -> None:
        if not self._held:
            self.ready.extend(messages)
            return
        for message in messages:
            held = self._held.get(_place(message))
            (self.ready if held is None or message.error() else held).append(message)

    def forget(self, places: Collection[TopicPartition]) -> None:
        """These partitions are gone or will be read from elsewhere; a pause goes on."""
        for place in places:
            if place in self._held:
                self._held[place].clear()
        if self.ready:
            self.ready = deque(m for m in self.ready if m.error() or _place(m) not in places)

    def hold(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._held.setdefault(place, deque())
        waiting, self.ready = self.ready, deque()
        self.add(waiting)

    def release(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self.ready.extend(self._held.pop(place, ()))

    @property
    def held(self) -> set[TopicPartition]:
        return set(self._held)


def _place(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)


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
    """Whether this message lies where that record does."""
    return _place(message) == record.place and message.offset() == record.offset


def record_of(message: Message) -> Record[Any, Any]:
    """A message of librdkafka as a record, its key and value still bytes."""
    kind, timestamp_ms = message.timestamp()
    headers: Any = message.headers()
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        timestamp_ms if kind else None,
        _TIMESTAMP_TYPES[kind],
        message.key(),
        message.value(),
        [(k, v.encode() if isinstance(v, str) else v) for k, v in headers] if headers else [],
    )


_TIMESTAMP_TYPES = {0: None, 1: "create", 2: "append"}
