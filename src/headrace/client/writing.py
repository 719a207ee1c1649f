"""Writing records to a topic as the Java client would: murmur2 on keys, idempotent, acks=all.

`RecordWriter.write` returns at once; `finish` waits until every record is answered for and raises
if one was not. Memory is bounded by librdkafka's queue: when it is full, `write` waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.client.connection import Connection, wait_for_topic
from headrace.client.errors import ClientError, explain, kafka_error, sentence

ANY_PARTITION = -1

Headers = Sequence[tuple[str, bytes]]


class RecordWriter:
    """Sends records to one topic; use it in a `with` statement."""

    def __init__(
        self, connection: Connection, topic: str, *, compression: str | None = None
    ) -> None:
        more = {"compression_type": compression} if compression else {}
        self.connection = connection
        self.topic = topic
        self.written = 0  # acknowledged by the cluster
        self.bytes_written = 0  # the values of those
        self.failed = 0
        self._first_failure: KafkaError | None = None
        self._producer: Producer = connection.producer(
            partitioner="murmur2_random",  # what the Java client does: hash keys, spread the rest
            enable_idempotence=True,
            linger_ms=5,
            **more,
        )
        self.partitions = wait_for_topic(self._producer, connection, topic)

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
            self._producer.purge()

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
        while True:
            try:
                self._producer.produce(
                    self.topic,
                    value,
                    key,
                    partition,
                    self._answered,
                    headers=list(headers) if headers else None,
                )
            except BufferError:  # the queue is full: let answers come in
                self._producer.poll(0.1)
                continue
            except KafkaException as failure:
                raise explain(
                    kafka_error(failure), self.connection.bootstrap, topic=self.topic
                ) from failure
            break
        self._producer.poll(0)
        if self._first_failure is not None:
            self.finish()

    def finish(self) -> None:
        """Wait for all answers; raise if any record was not written."""
        self._producer.flush()
        if self._first_failure is not None:
            why = explain(self._first_failure, self.connection.bootstrap, topic=self.topic)
            raise ClientError(
                f"{self.failed} of {self.failed + self.written} records were not written. "
                + sentence(str(why))
            )

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
            self._first_failure = self._first_failure or error
        else:
            self.written += 1
            self.bytes_written += len(message)
