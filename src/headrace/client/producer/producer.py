"""Sends records: interceptors, serializers, the partitioner, then librdkafka.

`send` returns a future at once, `send_sync` waits, `send_one_way` returns nothing. Defaults lose
nothing: acks=all, idempotent, retries without end within the delivery timeout; keys get the same
partition as in the Java client. Any setting of librdkafka may be given and wins. Memory is bounded:
when the local buffer is full, sending waits, `max_block_s` at most. All methods may be called from
many threads, but calls between the begin and the end of a transaction belong to it, from any
thread. `delay=` and the other arguments of `schedules.py` send a record to the companion topic, to
be delivered later.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Unpack, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from headrace.client import exits, forks
from headrace.client.connection import (
    ClientSettings,
    Setting,
    connected,
    made,
    program_settings,
    wait_for_topic,
)
from headrace.client.consumer.consumer import Consumer
from headrace.client.delay.registry import KnownCompanions
from headrace.client.delay.schedules import When, cancelling, delayed
from headrace.client.errors import (
    BufferFull,
    ClientError,
    DeliveryFailed,
    Misuse,
    explain,
    explain_delivery,
    kafka_error,
    too_large_for_us,
)
from headrace.client.faults import Fault
from headrace.client.producer.delivery import (
    POLL_MASK,
    Callback,
    ClosedProducer,
    Delivery,
    DeliveryPoller,
    NoPoller,
    Waiting,
    call_back,
)
from headrace.client.producer.interceptors import ProducerInterceptor, intercept, tell
from headrace.client.producer.no_loss import defaults_for
from headrace.client.producer.partitioners import Partitioner, resolved
from headrace.client.producer.transactions import Transaction, take_over
from headrace.client.records import GivenHeaders, Outgoing, Sent, SentKey, SentValue, header_list
from headrace.client.refusals import Refusals
from headrace.client.serializers import Serializer, serialized

log = logging.getLogger("headrace.client")

ANY_PARTITION = -1
PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
NOW = 0  # librdkafka's word for "the producer's clock"
# The exceptions of librdkafka's `produce` for a record that it does not take, except for a full
# buffer.
REFUSED = (KafkaException, TypeError, ValueError, OverflowError)
# A flush that gets a fatal error ends early, so it is called again.
FLUSHES = 3
# Python's message for a fatal error of librdkafka that a callback has cleared meanwhile.
CLEARED = "returned NULL without setting an exception"

# How late a partitioner in Python sees new partitions, like librdkafka's metadata.max.age.ms.
PARTITION_COUNT_AGE_S = 300.0

OnDelivery = Callable[[KafkaError | None, Message], None]
# topic, value, key, partition, timestamp_ms, headers: the arguments of `take`
Dressed = tuple[str, bytes | str | None, bytes | str | None, int | None, int | None, Any]


class Producer(Generic[SentKey, SentValue]):
    """Sends records to any topic; use it in a `with` statement, or call `close`."""

    def __init__(
        self,
        bootstrap: str | ClientSettings | None = None,
        *,
        key_serializer: Serializer[SentKey] | None = None,
        value_serializer: Serializer[SentValue] | None = None,
        partitioner: str | Partitioner = "murmur2_random",
        interceptors: Sequence[ProducerInterceptor] = (),
        transactional_id: str | None = None,
        max_block_s: float = 60.0,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        self.connection = connected(bootstrap, settings)
        self.max_block_s = max_block_s
        self.one_way_failures = 0  # records of send_one_way that were not written
        native, self._partitioner = resolved(partitioner)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self.interceptors = tuple(interceptors)
        # Without serializers or interceptors of ours the record goes to librdkafka as it is.
        self._as_it_is = not (
            key_serializer or value_serializer or self._partitioner or self.interceptors
        )
        self.transactional_id = transactional_id or self.connection.settings.get("transactional.id")
        chosen = defaults_for(self.connection.settings, self.transactional_id)
        chosen["partitioner"] = native
        self.failed_for_good = False  # by a fatal error: no more records are taken, make a new one
        self._fatal: KafkaError | None = None  # the first; later errors only say there was one
        conf = program_settings(self.connection, chosen)
        self._refusals = Refusals(conf)
        self._producer = made(lambda: confluent_kafka.Producer(conf))
        self._produce: Callable[..., None] = self._producer.produce
        self._waiting = Waiting(self.explain_delivery)
        self._poller: DeliveryPoller | NoPoller = DeliveryPoller(self._poll)
        self.companions = KnownCompanions(self.connection)
        self._partition_counts: dict[str, tuple[int, float]] = {}
        self._transactions_ready = False
        self._last_transaction: Transaction | None = None
        self._refusal: str | None = None  # why no call is accepted any more
        forks.watch(self)
        exits.watch(self)

    # ---- sending

    def send(
        self,
        topic: str,
        value: SentValue | None = None,
        *,
        key: SentKey | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        callback: Callback | None = None,
        **when: Unpack[When],
    ) -> Delivery:
        """Send a record; returns a future with its partition and offset.

        `callback(sent, error)` is called once, with one of the two, on the thread that polls; it
        should be short. `delay=timedelta(minutes=30)`, `deliver_at=`, `cron=` and `id=` make it a
        delayed record: the future then has its place in the companion.
        """
        delivery = Delivery(self._waiting)
        if callback is not None:
            delivery.add_done_callback(functools.partial(call_back, callback))
        if when:
            record = Outgoing(topic, value, key, header_list(headers), partition, timestamp_ms)
            self._take_delayed(record, delivery, when)
        elif self._as_it_is:
            plain = header_list(headers) if headers else None
            self.take(topic, value, key, partition, delivery, timestamp_ms, plain)
        else:
            record = Outgoing(topic, value, key, header_list(headers), partition, timestamp_ms)
            self._take_dressed(record, delivery)
        return delivery

    def send_sync(
        self,
        topic: str,
        value: SentValue | None = None,
        *,
        key: SentKey | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        **when: Unpack[When],
    ) -> Sent:
        """Send and wait for the acknowledgement; raise the reason if the record was not written."""
        return self.send(
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
            **when,
        ).result()

    def send_one_way(
        self,
        topic: str,
        value: SentValue | None = None,
        *,
        key: SentKey | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        **when: Unpack[When],
    ) -> None:
        """Send without a future, the fastest way; `one_way_failures` counts failures."""
        if self._as_it_is and not when:
            plain = header_list(headers) if headers else None
            self.take(topic, value, key, partition, self._one_way_ended, timestamp_ms, plain)
            return
        record = Outgoing(topic, value, key, header_list(headers), partition, timestamp_ms)
        ended = Delivery(self._waiting) if self.interceptors else self._one_way_ended
        self._take_delayed(record, ended, when)

    def cancel(
        self, topic: str, id: str, *, key: SentKey | None = None, partition: int | None = None
    ) -> Delivery:
        """Cancel the delayed record `id` of `topic` that was sent with this key.

        The future only says that the cancel record is written. The outcome is written to the topic
        of outcomes; `Admin.delayed.cancel` waits for it.
        """
        record = cancelling(topic, id, key, partition)
        delivery = Delivery(self._waiting)
        self.companions.require(topic)
        self._take_dressed(record, delivery)
        return delivery

    def _take_delayed(self, record: Outgoing[Any, Any], ended: OnDelivery, when: When) -> None:
        """Send to the companion, if `when` has a time and there is a companion."""
        target = record.topic
        record = delayed(record, when)
        if record.topic != target:
            self.companions.require(target)
        self._take_dressed(record, ended)

    def _take_dressed(self, record: Outgoing[Any, Any], ended: OnDelivery) -> None:
        record = intercept(self.interceptors, record)
        if self.interceptors:
            assert isinstance(ended, Delivery)
            ended.add_done_callback(functools.partial(self._tell, record))
        topic, value, key, partition, timestamp_ms, headers = self.dressed(record)
        self.take(topic, value, key, partition, ended, timestamp_ms, headers)

    def dressed(self, record: Outgoing[Any, Any]) -> Dressed:
        """Apply serializers and the partitioner, after the interceptors; a part of `send`."""
        topic = record.topic
        key = serialized("key", record.key, self._key_serializer, topic)
        value = serialized("value", record.value, self._value_serializer, topic)
        partition = record.partition
        if partition is None and self._partitioner is not None:
            raw = key.encode() if isinstance(key, str) else key
            partition = self._partitioner(topic, raw, self.partition_count(topic))
        return topic, value, key, partition, record.timestamp_ms, record.headers or None

    def take(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        ended: OnDelivery,
        timestamp_ms: int | None,
        headers: Any,
    ) -> None:
        """Give a record to librdkafka; waits for room if its buffer is full. A part of `send`."""
        place = ANY_PARTITION if partition is None else partition
        when = NOW if timestamp_ms is None else timestamp_ms
        poller = self._poller
        if not poller.sends:
            self._require_open()
            poller.begin()
        poller.sends += 1
        try:
            self._produce(topic, value, key, place, ended, None, when, headers)
        except BufferError:
            self.take_when_there_is_room((topic, value, key, place, ended, None, when, headers))
        except REFUSED as failure:
            raise self._refused(failure, topic, value, key) from failure
        if not poller.sends & POLL_MASK:
            self._poll(0)

    def native(self) -> Callable[..., None]:
        """librdkafka's `produce`, without the waiting and the explained errors of `take`."""
        return self._produce

    def take_when_there_is_room(self, record: tuple[Any, ...]) -> None:
        deadline = time.monotonic() + self.max_block_s
        while True:
            self._poll(min(0.01, self.max_block_s))  # with 0 a sender does not wait at all
            try:
                return self._produce(*record)
            except BufferError as full:
                if time.monotonic() > deadline:
                    raise self.buffer_full() from full
            except REFUSED as failure:
                raise self._refused(failure, record[0], record[1], record[2]) from failure

    def buffer_full(self) -> BufferFull:
        return BufferFull(
            f"The local buffer was full for {self.max_block_s:g} seconds: the cluster at "
            f"{self.connection.bootstrap} takes records more slowly than they are sent, or not at "
            "all. Send less, or raise queue.buffering.max.kbytes and queue.buffering.max.messages."
            + self._login_refused()
        )

    def _refused(self, failure: Exception, topic: str, value: Any, key: Any) -> ClientError:
        if isinstance(failure, KafkaException):
            error = kafka_error(failure)
            if error.code() == KafkaError._FATAL:
                return self._failed_for_good(error, topic)
            if error.code() == KafkaError._STATE and self.transactional_id:
                return Misuse("Send inside `with producer.transaction():`, this one is for those.")
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                return too_large_for_us(error, topic)
            return explain_delivery(error, self.connection.bootstrap, topic)
        serialized("key", key, None, topic)  # raises a better error, if one of them is wrong
        serialized("value", value, None, topic)
        return Misuse(f"This cannot be sent: {failure}.")

    def _one_way_ended(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.one_way_failures += 1

    def _tell(self, record: Outgoing[Any, Any], done: Any) -> None:
        error = done.exception()
        tell(self.interceptors, record, None if error else done.result(), error)

    def poll_by_hand(self) -> Callable[[float], int]:
        """Start no polling thread; the caller must call the returned function to get delivery
        results."""
        self._poller = NoPoller()
        return self._poll

    def _poll(self, timeout_s: float) -> int:
        """Poll for delivery results. A fatal error is raised by poll once, on the thread that
        polls; librdkafka has logged it, and every later call raises it where it can be acted on.
        """
        try:
            return self._producer.poll(timeout_s)
        except (KafkaException, SystemError) as failure:
            self._note(failure)
            return 0

    def _flush(self, timeout_s: float | None) -> int:
        for_ever_or = -1 if timeout_s is None else timeout_s
        for _ in range(FLUSHES):
            try:
                return self._producer.flush(for_ever_or)
            except (KafkaException, SystemError) as failure:  # as above
                self._note(failure)
        return len(self._producer)

    def _note(self, failure: KafkaException | SystemError) -> None:
        # A callback that runs in the same poll is called with the fatal error already raised.
        # Python takes that for an error of the callback, or the callback's own `except` clears it.
        cause = failure.__cause__ if isinstance(failure, SystemError) else failure
        if isinstance(cause, KafkaException):
            error = kafka_error(cause)
            if error.fatal():
                self.failed_for_good = True
                self._fatal = self._fatal or error
        elif str(failure).endswith(CLEARED):
            self.failed_for_good = True
        else:
            raise failure

    def _failed_for_good(self, error: KafkaError, topic: str) -> ClientError:
        """`error` only says that there is a fatal error; a poll returns the error itself, perhaps
        later."""
        if self._fatal is not None:
            return explain_delivery(self._fatal, self.connection.bootstrap, topic)
        if not self.connection.is_secured:
            return explain_delivery(error, self.connection.bootstrap, topic)
        return DeliveryFailed(
            f"The producer has failed before anything was written to the topic {topic}. The usual "
            "reason is that this user may not write to it, nor to any other: `headrace acls add` "
            "gives the right WRITE."
        )

    def explain_delivery(self, error: object, topic: str) -> ClientError:
        assert isinstance(error, KafkaError)
        if error.code() == KafkaError._FATAL or (self.failed_for_good and error.code() in PURGED):
            return self._failed_for_good(error, topic)
        said = explain_delivery(error, self.connection.bootstrap, topic)
        if error.code() == KafkaError._MSG_TIMED_OUT:
            said.args = (f"{said}{self._login_refused()}",)
        return said

    def _login_refused(self) -> str:
        """One more sentence, if a refused login is why records are not sent."""
        refused = self._refusals.recent
        return "" if refused is None else f" {explain(refused, self.connection.bootstrap)}"

    def knows_partitions_of(self, topic: str) -> bool:
        """Whether sending to this topic needs no request first."""
        if self._partitioner is None:
            return True
        count, asked_at = self._partition_counts.get(topic, (0, 0.0))
        return bool(count) and time.monotonic() - asked_at <= PARTITION_COUNT_AGE_S

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic; asked for again after some minutes."""
        if self._partitioner is None or not self.knows_partitions_of(topic):
            self._require_open()
            count = wait_for_topic(self._producer, self.connection, topic)
            self._partition_counts[topic] = (count, time.monotonic())
        return self._partition_counts[topic][0]

    # ---- transactions

    def transaction(self, *, consumer: Consumer[Any, Any] | None = None) -> Transaction:
        """All or nothing: `with producer.transaction():` commits at its end, or aborts.

        It aborts on an exception. With a consumer, its position is committed in the transaction;
        after an abort the consumer goes back to its position after the last transaction.
        """
        self._require_open()
        if not self.transactional_id:
            raise Misuse("Give the producer a transactional_id to use transactions.")
        if not self._transactions_ready:
            self.prepare_transactions()
        if self._last_transaction is not None and self._last_transaction.must_abort:
            self._last_transaction.abort()
        self._last_transaction = Transaction(self._producer, self.connection, consumer)
        return self._last_transaction

    def prepare_transactions(self) -> None:
        """Fence older producers of the same transactional id and abort their open transactions.

        The first transaction does it; call it earlier to take over at once.
        """
        self._require_open()
        self._poller.begin()
        try:
            take_over(self._producer, self._refusals, self.connection.timeout_s * 3)
        except Fault as fault:
            refused, at = self._refusals.recent, self.connection.bootstrap
            raise (explain(refused, at) if refused else fault.explained(at)) from fault.__cause__
        self._transactions_ready = True

    # ---- the end

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record is acknowledged or failed, at most for the delivery timeout."""
        self._require_open()
        self._waiting.require_an_end()
        left = self._flush(timeout_s)
        if left:
            raise ClientError(
                f"{left} records are not acknowledged yet, and are still being sent: wait longer, "
                f"or see whether {self.connection.bootstrap} answers."
            )

    def close(self, timeout_s: float | None = None) -> None:
        """Wait for acknowledgements, at most `timeout_s` (the delivery timeout), and disconnect.

        Records that are left after `timeout_s` are dropped, and their futures raise an error.
        """
        if self._refusal is not None:
            return
        self._waiting.require_an_end()
        self._refuse_from_now_on("This producer is closed; make a new one.")
        try:
            if self._flush(timeout_s):
                self._producer.purge()
                self._flush(1)
        finally:
            self._poller.end()
        if len(self._producer):  # another thread was inside a send
            self._flush(timeout_s)
        # librdkafka ends its threads and connections when the last call on it has returned.
        self._last_transaction = None
        self._producer = cast(confluent_kafka.Producer, ClosedProducer())

    def _require_open(self) -> None:
        if self._refusal is not None:
            raise Misuse(self._refusal)

    def _refuse_from_now_on(self, why: str) -> None:
        self._refusal = why
        self._produce = self._not_any_more  # a send asks nothing, so it costs nothing

    def _not_any_more(self, *record: object) -> None:
        self._require_open()

    def left_open(self) -> None:
        """Part of `exits`."""
        if self._refusal is None and self._poller.sends and len(self):
            log.warning(
                "a producer was not closed: it waits for its unsent records, %g seconds at most; "
                "use `with Producer(...)`, or call close()",
                exits.PATIENCE_S,
            )
        self.close(exits.PATIENCE_S if self._poller.sends else 0)

    def forked(self) -> object:
        """Part of `forks`."""
        self._refuse_from_now_on(forks.MADE_BEFORE_THE_FORK)
        self._waiting.abandon(forks.MADE_BEFORE_THE_FORK)
        return self._producer

    def __len__(self) -> int:
        """The number of records without a result."""
        return len(self._producer)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Producer[SentKey, SentValue]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
