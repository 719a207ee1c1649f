"""Writing transactions for a service: one call of librdkafka each, with its outcome as a `Fault`.

Programs of users take `Producer.transaction()`. A service takes this if it must decide itself what
follows when the outcome of a transaction is uncertain. No policy: it never retries, aborts or
closes by itself (`once/writer.py` does). Belongs to one thread, which also runs the callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.client.connection import ClientSettings, made, wait_for_topic
from headrace.client.errors import kafka_error
from headrace.client.faults import Fault, NotSendable, faults
from headrace.client.intake import GroupMember, GroupOffset, RawRecord, natives_of
from headrace.client.transaction_offsets import send_offsets

ANY_PARTITION = -1  # the partitioner decides
NOW = 0
# Between two tries while the local buffer is full.
FULL_WAIT_S = 0.005

Headers = list[tuple[str, bytes | None]]
# Topic, key, value, headers, timestamp in ms, and an object of the caller.
KeyedRow = tuple[str, bytes | None, bytes | None, Any, int, object]


class TransactionWriter:
    """One producer of one transactional id. `settings` are all settings of the client.

    `refused` is called for each record that was not written, `failed` for what librdkafka reports
    about brokers and connections; both inside calls of this class.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        refused: Callable[[Fault, RawRecord], None] | None = None,
        failed: Callable[[Fault], None] | None = None,
    ) -> None:
        given = dict(settings)
        if refused is not None:
            given["on_delivery"] = lambda error, message: _pass_on(refused, error, message)
        if failed is not None:
            given["error_cb"] = lambda error: failed(Fault(error))
        self._native = made(lambda: Producer(given))
        self._produce: Callable[..., None] = self._native.produce

    def take_over(self, timeout_s: float) -> None:
        """Fence the previous writer with this transactional id; aborts its open transaction."""
        with faults():
            self._native.init_transactions(timeout_s)

    def begin(self) -> None:
        with faults():
            self._native.begin_transaction()

    def send(
        self,
        topic: str,
        partition: int,
        key: bytes | str | None,
        value: bytes | str | None,
        headers: Any,
        timestamp_ms: int,
    ) -> None:
        """Send a record; waits while the buffer is full. All arguments are positional (librdkafka's
        fifth and sixth are callbacks): with names a call takes 1.4 us, not 0.8."""
        while True:
            try:
                self._produce(topic, value, key, partition, None, None, timestamp_ms, headers)
                return
            except BufferError:
                self._native.poll(FULL_WAIT_S)
            except KafkaException as failure:
                raise Fault(kafka_error(failure)) from failure

    def send_all(self, rows: Iterable[KeyedRow]) -> None:
        """As `send` for each row, to the partition of its key. Without the call to `send`, which is
        a tenth of the cost of a small record."""
        produce, poll = self._produce, self._native.poll
        try:
            for topic, key, value, headers, timestamp_ms, _ in rows:
                while True:
                    try:
                        produce(topic, value, key, ANY_PARTITION, None, None, timestamp_ms, headers)
                        break
                    except BufferError:
                        poll(FULL_WAIT_S)
        except KafkaException as failure:
            raise Fault(kafka_error(failure)) from failure

    def send_reported(
        self,
        topic: str,
        partition: int,
        key: Any,
        value: Any,
        headers: Headers | None,
        ended: Callable[[Fault | None, int], None],
    ) -> None:
        """As `send`, for a record of a user; `ended` is called with its fault or its offset.

        Raises NotSendable for a key or a value that is neither bytes nor text.
        """

        def reported(error: KafkaError | None, message: Message) -> None:
            ended(None if error is None else Fault(error), message.offset() or 0)

        while True:
            try:
                self._produce(topic, value, key, partition, reported, None, NOW, headers)
                return
            except BufferError:
                self._native.poll(FULL_WAIT_S)
            except KafkaException as failure:
                raise Fault(kafka_error(failure)) from failure
            except (TypeError, ValueError, OverflowError) as wrong:  # such as a number for a key
                raise NotSendable(str(wrong)) from wrong

    def flush(self, timeout_s: float) -> None:
        self._native.flush(timeout_s)

    def send_offsets(
        self, offsets: Iterable[GroupOffset], member: GroupMember, timeout_s: float
    ) -> None:
        """Commit offsets with the transaction; the broker refuses an older generation of the group.

        Raises a fatal Fault if librdkafka does not return; the outcome is the same as if the
        producer had died.
        """
        with faults():
            send_offsets(self._native, natives_of(offsets), member, timeout_s)

    def commit(self, timeout_s: float) -> None:
        with faults():
            self._native.commit_transaction(timeout_s)

    def abort(self, timeout_s: float) -> None:
        with faults():
            self._native.abort_transaction(timeout_s)

    def wait_for_topic(self, at: ClientSettings, topic: str, *, unknown_s: float = 1.0) -> int:
        """Wait until the topic has leaders; returns its number of partitions. A cluster with
        automatic topic creation creates it. Raises ClientError."""
        return wait_for_topic(self._native, at, topic, unknown_s=unknown_s)

    def close(self) -> None:
        """Close without a request to the cluster: no transaction is open, or it is lost."""
        self._native.purge()
        del self._produce, self._native  # its threads end with it


def _pass_on(
    refused: Callable[[Fault, RawRecord], None], error: KafkaError | None, message: Message
) -> None:
    if error is not None:
        refused(Fault(error), message)
