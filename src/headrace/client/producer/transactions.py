"""One transaction of a producer: commit at the end of the `with` block, abort on an exception.

The broker defines the rules of transactions; here they become four outcomes. Committed: all of it
is visible to read_committed readers at once. `TransactionAborted`, or the block's own exception:
nothing of it is visible, and its consumers go back before they return another record. `Fenced`: a
newer producer of the same transactional id took over, or the cluster gave up waiting; stop.
`Unreachable` raised by a commit: it is unknown which of the first two it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as NativePartition

from headrace.client.connection import ClientSettings
from headrace.client.consumer.consumer import Consumer
from headrace.client.errors import ClientError, Misuse, TransactionAborted, Unreachable
from headrace.client.faults import Fault, faults
from headrace.client.once.outcome import explained, insist
from headrace.client.refusals import Refusals
from headrace.client.transaction_offsets import send_offsets

log = logging.getLogger("headrace.client")

# Commit and abort are tried again for this long; the broker ends forgotten ones after 60 s anyway.
PATIENCE_S = 60.0
# How long librdkafka waits between two checks for a refused login.
LOOK_S = 1.0
AGAIN_S = 0.05


def take_over(producer: Producer, refusals: Refusals, within_s: float) -> None:
    """Call `init_transactions`, which continues where it was; a refused login ends the wait.

    The error may be the cause of librdkafka's wait, such as a coordinator that is loading.
    """

    def call() -> None:
        with faults():
            producer.init_transactions(min(LOOK_S, within_s))

    insist(
        call,
        within_s - LOOK_S,
        stopping=lambda: refusals.taken() is not None,
        pause_s=AGAIN_S,
    )


class Transaction:
    """Made by `producer.transaction()`; use it in a `with` statement, once."""

    def __init__(
        self,
        producer: Producer,
        connection: ClientSettings,
        consumer: Consumer[Any, Any] | None = None,
    ) -> None:
        self._producer = producer
        self._connection = connection
        self._consumer = consumer
        self._consumers: list[Consumer[Any, Any]] = []
        self.must_abort = False  # the commit failed, and the cluster could not be asked about it
        if consumer is not None:
            self._admit(consumer)

    def _admit(self, consumer: Consumer[Any, Any]) -> None:
        if consumer.auto_commit:
            raise Misuse(
                "A consumer whose offsets are part of a transaction must not commit them by "
                "itself: leave auto_commit=True away."
            )
        if not consumer.group:
            raise Misuse("Offsets are kept for a group: give the consumer group=.")
        if consumer not in self._consumers:
            self._consumers.append(consumer)

    def send_offsets(self, consumer: Consumer[Any, Any]) -> None:
        """Commit the position of `consumer` as a part of this transaction.

        For one consumer, `producer.transaction(consumer=...)` does this by itself at the end.
        """
        self._admit(consumer)
        offsets = [NativePartition(*place, at) for place, at in consumer.positions().items()]
        if not offsets:
            return
        member = consumer.group_metadata()
        self._tried(lambda: send_offsets(self._producer, offsets, member, PATIENCE_S))

    def begin(self) -> None:
        self._tried(self._producer.begin_transaction)

    def commit(self) -> None:
        """Called at the end of the block."""
        try:
            if self._consumer is not None:
                self.send_offsets(self._consumer)
        except BaseException:
            self._abort_at_last()
            raise
        try:
            self._tried(lambda: self._producer.commit_transaction(PATIENCE_S))
        except TransactionAborted:
            self._abort_at_last()
            raise
        except Unreachable as silence:
            silence.args = (
                f"{silence} It is unknown whether the transaction is committed: close this "
                "producer, make a new one with the same transactional_id, which decides it, and "
                "continue from the group's committed offsets.",
            )
            raise

    def abort(self) -> None:
        """Called when the block raises; consumers go back to their committed offsets."""
        for consumer in self._consumers:  # in any case: its records are read again
            consumer.must_rewind = True
        try:
            self._tried(lambda: self._producer.abort_transaction(PATIENCE_S))
        except ClientError as failure:
            self.must_abort = failure.retriable
            raise
        self.must_abort = False

    def _abort_at_last(self) -> None:
        """Abort while another exception is raised, which must be the one that the caller gets."""
        try:
            self.abort()
        except ClientError:
            if self.must_abort:
                log.exception("a transaction could not be aborted; the next one tries again")

    def _tried(self, call: Callable[[], Any]) -> None:
        """Make the call, again while the cluster answers "later"; an error becomes one of the
        outcomes."""

        def once() -> None:
            with faults():
                call()

        try:
            insist(once, PATIENCE_S)
        except Fault as fault:
            raise explained(fault, self._connection.bootstrap) from fault.__cause__

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
        else:
            self._abort_at_last()
