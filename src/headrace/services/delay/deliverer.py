"""The transactional producer: due messages and the group's progress, in one transaction.

`send` any number of records, then `commit` with the group's offsets. The errors: `Aborted` (nothing
became visible; begin again), `TargetRefused` (as well, because the cluster does not take certain
records, which it names), `Barred` (as well, because a topic takes nothing of ours) and `Lost` (the
producer cannot be used any more, and whether the transaction was committed is known only after
`open` of a new one). After each of them the truth is what the group has committed. A producer that
saw its cluster fail is given up as well, even if it could go on: transactions that ended meanwhile
are looked at before a new one begins (`hanging_transactions.py`). Belongs to one thread. Knows
nothing of due times.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from headrace.client.connection import ClientSettings, program_settings
from headrace.client.errors import kafka_error

log = logging.getLogger("headrace.delay")

Header = tuple[str, bytes | None]

# One call to librdkafka; it is made again as long as it may be.
PATIENCE_S = 5.0
# A transaction that is not ended by then is aborted by its coordinator.
TRANSACTION_MS = 10_000
LONGEST_INSISTENCE_S = 2 * TRANSACTION_MS / 1000
# A batch larger than the topic's max.message.bytes is refused as a whole; librdkafka never splits.
LARGEST_BATCH_BYTES = 900_000
# A transaction that took longer has seen a broker fail, whatever its calls say.
SLOW_S = 2.0
# Enough for one transaction; `send` waits when it is full.
QUEUED_RECORDS = 100_000
QUEUED_KIB = 256 * 1024
# Back-to-back transactions meet CONCURRENT_TRANSACTIONS for a moment; the default of 100 ms showed
# as the p99 of lateness.
RETRY_MS = 2
LONGEST_RETRY_MS = 50

# The errors of a topic that are about the record, not about the moment.
OF_THE_RECORD = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
        KafkaError.POLICY_VIOLATION,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.RECORD_LIST_TOO_LARGE,
    }
)
# The errors of a topic for every writer at the moment: no permission, or a clock that it does not
# accept.
OF_A_TOPIC = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.INVALID_TIMESTAMP})
# Of a transaction's other topics, when one of them may not be written to; it can come first.
OF_A_NEIGHBOUR = KafkaError.OPERATION_NOT_ATTEMPTED


# A connection that broke, in whatever way.
OF_A_BROKER = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})


class Aborted(Exception):
    """Nothing of the transaction is visible."""


class TargetRefused(Aborted):
    """The cluster does not take some of its records: (topic, partition, why) in order."""

    def __init__(self, refusals: list[Refusal]) -> None:
        super().__init__(refusals[0].why)
        self.refusals = refusals

    @property
    def topics(self) -> dict[str, str]:
        """That refused something, and why."""
        return {each.topic: each.sentence() for each in self.refusals}


class Barred(Aborted):
    """A topic takes nothing of ours now: which and why, if that was told."""

    def __init__(self, why: str, topics: dict[str, str]) -> None:
        super().__init__(why)
        self.topics = topics  # and a sentence for people


class Lost(Exception):
    """Fenced, or worse: make a new producer and ask the group how far it is."""


class Refusal:
    """One record that the cluster refused."""

    __slots__ = ("code", "key", "partition", "topic", "value", "why")

    def __init__(self, message: Message, error: KafkaError) -> None:
        self.topic = str(message.topic())
        self.partition = message.partition()
        self.key = message.key()
        self.value = message.value()
        self.code = error.code()
        self.why = error.str()

    def sentence(self) -> str:
        """The error of the topic, and the remedy."""
        if self.code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return f"the service may not write to {self.topic}: give it the permission"
        if self.code == KafkaError.INVALID_TIMESTAMP:
            return (
                f"{self.topic} does not take the time of delivery: the clocks of the service and "
                "of the broker differ by more than message.timestamp.after.max.ms"
            )
        return f"{self.topic} refuses what must go there: {self.why}"


class Deliverer:
    """One producer of one transactional id; `open` before the first transaction."""

    def __init__(
        self,
        connection: ClientSettings,
        transactional_id: str,
        *,
        largest_batch_bytes: int = LARGEST_BATCH_BYTES,
    ) -> None:
        self.transactional_id = transactional_id
        self.largest_batch_bytes = min(largest_batch_bytes, LARGEST_BATCH_BYTES)
        self._refusals: list[Refusal] = []
        self._began_at = 0.0
        self._trouble: str | None = None
        settings = program_settings(
            connection,
            {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_MS,
                "allow.auto.create.topics": False,
                "linger.ms": 0,
                "batch.size": self.largest_batch_bytes,
                "batch.num.messages": 20_000,
                # The topics' own limits decide, not this one.
                "message.max.bytes": 1_000_000_000,
                "queue.buffering.max.messages": QUEUED_RECORDS,
                "queue.buffering.max.kbytes": QUEUED_KIB,
                "retry.backoff.ms": RETRY_MS,
                "retry.backoff.max.ms": LONGEST_RETRY_MS,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 500,
                # librdkafka 2.16 can hang in send_offsets_to_transaction after a re-bootstrap.
                "metadata.recovery.strategy": "none",
                # A report for each record would cost as much as sending it.
                "delivery.report.only.error": True,
            },
        )
        settings["on_delivery"] = self._reported
        settings["error_cb"] = self._failed
        self._producer = Producer(settings)
        self._produce = self._producer.produce

    def open(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Take over the transactional id: an open transaction of an earlier process is aborted."""
        while True:
            try:
                self._producer.init_transactions(PATIENCE_S)
                self._trouble = None
                return
            except KafkaException as failure:
                error = kafka_error(failure)
                if not error.retriable() or stopping():
                    raise Lost(error.str()) from failure

    def begin(self) -> None:
        self._refusals.clear()
        self._require_health()
        self._began_at = monotonic()
        try:
            self._producer.begin_transaction()
        except KafkaException as failure:
            raise Lost(kafka_error(failure).str()) from failure

    def send(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header],
        timestamp_ms: int,
    ) -> None:
        while True:
            try:
                self._produce(
                    topic,
                    value,
                    key,
                    partition=partition,
                    headers=headers,  # type: ignore[arg-type]  # lists of str are lists of both
                    timestamp=timestamp_ms,
                )
                return
            except BufferError:
                self._producer.poll(0.005)
            except KafkaException as failure:
                raise self._ended(kafka_error(failure)) from failure

    def commit(self, offsets: list[TopicPartition], group: Any) -> None:
        """`group` is the consumer's group metadata: an older generation than the group's fails."""
        producer = self._producer
        self._require_health()
        self._insist(lambda: producer.send_offsets_to_transaction(offsets, group, PATIENCE_S))
        self._insist(lambda: producer.commit_transaction(PATIENCE_S))
        if monotonic() - self._began_at > SLOW_S:
            raise Lost("the transaction was committed, but it took long")

    def close(self) -> None:
        """Without a word to the cluster: no transaction is open, or it is lost."""
        self._producer.purge()
        del self._produce, self._producer  # its threads end with it

    # ---- what goes wrong

    def _insist(self, call: Callable[[], object]) -> None:
        try:
            _insistently(call)
        except KafkaException as failure:
            raise self._ended(kafka_error(failure)) from failure

    def _ended(self, error: KafkaError) -> Aborted | Lost:
        """Abort if that is all it takes, and say what became of the transaction."""
        if error.fatal() or not error.txn_requires_abort():
            return Lost(f"{error.name()}: {error.str()}")
        try:
            _insistently(lambda: self._producer.abort_transaction(PATIENCE_S))
        except KafkaException as worse:
            return Lost(f"{error.name()}: {error.str()}; then {kafka_error(worse).str()}")
        told, self._refusals = self._refusals, []
        if refusals := [each for each in told if each.code in OF_THE_RECORD]:
            return TargetRefused(refusals)
        barred = {each.topic: each.sentence() for each in told if each.code in OF_A_TOPIC}
        if barred or error.code() in OF_A_TOPIC or error.code() == OF_A_NEIGHBOUR:
            return Barred(f"{error.name()}: {error.str()}", barred)
        if monotonic() - self._began_at > SLOW_S:
            return Lost(f"{error.name()}: {error.str()}; aborted, but it took long")
        return Aborted(f"{error.name()}: {error.str()}")

    def _require_health(self) -> None:
        if self._trouble is not None:
            raise Lost(f"the cluster failed: {self._trouble}")

    def _failed(self, error: KafkaError) -> None:
        if error.code() in OF_A_BROKER:
            self._trouble = error.str()

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and error.code() != KafkaError._PURGE_QUEUE:
            self._refusals.append(Refusal(message, error))


def _insistently(call: Callable[[], object]) -> None:
    """Again as long as librdkafka says that the same call may be made again."""
    deadline = monotonic() + LONGEST_INSISTENCE_S
    while True:
        try:
            call()
            return
        except KafkaException as failure:
            if not kafka_error(failure).retriable() or monotonic() > deadline:
                raise
