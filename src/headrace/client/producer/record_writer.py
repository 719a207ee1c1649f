"""Writes records to a topic for the command line: many, quickly, with one result at the end.

`RecordWriter.write` returns at once; `finish` waits until every record is answered for and raises
if one was not. Settings, waiting for room and errors are the `Producer`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from confluent_kafka import KafkaError, Message

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, sentence
from headrace.client.producer.producer import ANY_PARTITION as ANY_PARTITION
from headrace.client.producer.producer import Producer

Headers = Sequence[tuple[str, bytes | None]]


class RecordWriter:
    """Sends records to one topic; use it in a `with` statement."""

    def __init__(
        self, connection: ClientSettings, topic: str, *, compression: str | None = None
    ) -> None:
        chosen = connection.settings
        if compression and "compression.type" not in chosen:
            chosen = chosen | {"compression.type": compression}
        self.topic = topic
        self.taken = 0  # records given to `write`
        self.written = 0  # acknowledged by the cluster
        self.bytes_written = 0  # bytes of their values
        self.failed = 0
        self._first_failure: KafkaError | None = None
        self._producer: Producer = Producer(connection, settings=chosen)
        self.partitions = self._producer.partition_count(topic)

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.finish()
        else:
            self._producer.close(timeout_s=0)

    def write(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int = ANY_PARTITION,
    ) -> None:
        if partition >= self.partitions:
            raise ClientError(
                f"Topic {self.topic} has no partition {partition}; "
                f"it has {self.partitions}, counted from 0."
            )
        self.taken += 1
        self._producer.take(
            self.topic, value, key, partition, self._answered, None, list(headers) or None
        )
        if self._first_failure is not None:
            self.finish()

    def finish(self) -> None:
        """Wait for all answers; raise if any record was not written."""
        self._producer.close()
        if self._first_failure is not None:
            raise ClientError(
                f"{self.failed} of {self.failed + self.written} records were not written. "
                + sentence(str(self._producer.explain_delivery(self._first_failure, self.topic)))
            )

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
            if self._first_failure is None:
                self._first_failure = error  # explained at the end: its cause may come later
        else:
            self.written += 1
            self.bytes_written += len(message)
