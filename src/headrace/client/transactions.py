"""One transaction of a producer: commit at the end of the `with` block, abort on an exception.

The transaction's own rules are the broker's; here they become three outcomes. Committed: all of it
is visible to read_committed readers at once. `TransactionAborted`, or the block's own exception:
nothing of it is. `Fenced`: a newer producer of the same transactional id took over; stop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as NativePartition

from headrace.client.connection import Connection
from headrace.client.consumer import Consumer
from headrace.client.errors import ClientError, Fenced, TransactionAborted, explain, kafka_error

log = logging.getLogger("headrace.client")

# Commit and abort are tried again for this long; the broker ends forgotten ones after 60 s anyway.
PATIENCE_S = 60.0


class Transaction:
    """Made by `producer.transaction()`; use it in a `with` statement, once."""

    def __init__(
        self,
        producer: Producer,
        connection: Connection,
        consumer: Consumer[Any, Any] | None = None,
    ) -> None:
        self._producer = producer
        self._connection = connection
        self._consumer = consumer
        self._sent_offsets_of: list[Consumer[Any, Any]] = []

    def send_offsets(self, consumer: Consumer[Any, Any]) -> None:
        """Commit how far `consumer` has come as a part of this transaction.

        For one consumer, `producer.transaction(consumer=...)` does it at the end by itself.
        """
        if consumer not in self._sent_offsets_of:
            self._sent_offsets_of.append(consumer)
        offsets = [NativePartition(*place, at) for place, at in consumer.positions().items()]
        if not offsets:
            return
        member = consumer.group_metadata()
        self._tried(lambda: self._producer.send_offsets_to_transaction(offsets, member, PATIENCE_S))

    def begin(self) -> None:
        self._tried(self._producer.begin_transaction)

    def commit(self) -> None:
        """Called at the end of the block."""
        try:
            if self._consumer is not None:
                self.send_offsets(self._consumer)
            self._tried(lambda: self._producer.commit_transaction(PATIENCE_S))
        except TransactionAborted:
            self.abort()
            raise

    def abort(self) -> None:
        """Called when the block raises; consumers go back to what is committed."""
        try:
            self._tried(lambda: self._producer.abort_transaction(PATIENCE_S))
        finally:  # whatever became of it, what was read must be read again
            consumers = [self._consumer] if self._consumer is not None else []
            for consumer in {id(c): c for c in (*consumers, *self._sent_offsets_of)}.values():
                consumer.rewind()

    def _tried(self, call: Callable[[], Any]) -> None:
        """Do it, again while the cluster says "later"; an error says what became of the whole."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                call()
                return
            except KafkaException as failure:
                error = kafka_error(failure)
                if not error.retriable() or time.monotonic() > deadline:
                    raise self._explained(error) from failure

    def _explained(self, error: KafkaError) -> ClientError:
        said = explain(error, self._connection.bootstrap)
        if isinstance(said, Fenced) or not error.txn_requires_abort():
            return said
        aborted = TransactionAborted(f"The transaction is aborted and may be tried anew. {said}")
        aborted.code, aborted.retriable = said.code, True
        return aborted

    def __enter__(self) -> Transaction:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.commit()
            return
        try:
            self.abort()
        except ClientError:  # the block's own exception is the one to raise
            log.exception("a transaction could not be aborted; the broker will end it in time")
