"""Sends for an app: values by type, delays, and the results of handlers.

The message id of a published record is made from the id of the record it came from, the group and a
number, so that a handler that runs twice publishes the same ids twice and a reader with `once=`
gets each once. A record is done when all its results are acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.app.decoding import Codec, encoded
from headrace.app.headers import MESSAGE_ID
from headrace.app.message import Message, Publish
from headrace.client.connection import ClientSettings
from headrace.client.delay.schedules import When, delayed
from headrace.client.producer.delivery import Delivery
from headrace.client.producer.producer import Producer
from headrace.client.records import GivenHeaders, HeaderList, Outgoing, header_list

# A copy for retry is larger than its source by some headers: the broker's limit decides, not ours.
LARGEST_MESSAGE = 100_000_000


class Sender:
    """Sends values of any type that `decoding.encoded` knows."""

    def __init__(self, connection: ClientSettings, *, codec: Codec | None = None) -> None:
        self._codec = codec
        limit = {"message.max.bytes": LARGEST_MESSAGE}
        self.producer: Producer[bytes | str, bytes | str] = Producer(
            connection, settings={**limit, **connection.settings}
        )

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: bytes | str | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        **when: Any,
    ) -> Delivery:
        record = outgoing(
            Publish(topic, value, key=key, headers=headers, partition=partition),
            codec=self._codec,
            when=when,
        )
        return self.put(record)

    def put(self, record: Outgoing[Any, Any]) -> Delivery:
        return self.producer.send(
            record.topic,
            record.value,
            key=record.key,
            headers=record.headers or None,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )

    def close(self) -> None:
        self.producer.close()


def outgoing(
    publish: Publish, *, codec: Codec | None = None, when: dict[str, Any] | None = None
) -> Outgoing[Any, Any]:
    """A record as it is sent: encoded, and addressed to the companion if it is delayed."""
    record: Outgoing[Any, Any] = Outgoing(
        publish.topic,
        encoded(publish.value, topic=publish.topic, codec=codec),
        publish.key,
        header_list(publish.headers),
        publish.partition,
    )
    said: Any = dict(when or {})
    if publish.delay is not None:
        said["delay"] = publish.delay
    if publish.deliver_at is not None:
        said["deliver_at"] = publish.deliver_at
    chosen: When = said
    return delayed(record, chosen) if said else record


def published(
    results: Iterator[Any],
    message: Message,
    *,
    group: str,
    default_topic: str | None,
    codec: Codec | None,
    headers: HeaderList | None = None,
) -> list[Outgoing[Any, Any]]:
    """The results of a handler, as records to send."""
    records = []
    for number, result in enumerate(r for r in results if r is not None):
        publish = _as_publish(result, default_topic)
        record = outgoing(publish, codec=codec)
        if record.key is None and record.partition is None:
            record.key = message.key
        if not any(name == MESSAGE_ID for name, _ in record.headers):
            record.headers.append((MESSAGE_ID, f"{message.id}~{group}~{number}".encode()))
        record.headers.extend(headers or ())
        records.append(record)
    return records


def _as_publish(result: Any, default_topic: str | None) -> Publish:
    if isinstance(result, Publish):
        return result
    if default_topic is None:
        raise TypeError(
            f"The handler gave a {type(result).__name__}, without a topic to publish it to: "
            "return a Publish(topic, value), or name the topic with @app.on(..., publish=)."
        )
    return Publish(default_topic, result)
