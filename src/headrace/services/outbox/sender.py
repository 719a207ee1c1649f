"""The transactional producer of one shard: records and the position, all of it or nothing.

`open` takes over the shard's transactional id: the producer that had it before is fenced. The
errors are exceptions: `NothingSent` (it may be tried again), `RowRefused` (a record is refused for
its own fault), `SenderLost` (make a new one; the position tells what was committed). Belongs to one
thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AclOperation

from headrace.client.connection import ClientSettings, made, program_settings, wait_for_topic
from headrace.client.errors import (
    ClientError,
    NoSuchTopic,
    explain,
    explain_delivery,
    explained,
    kafka_error,
)
from headrace.protocol.errors import MalformedMessage
from headrace.services.outbox import positions
from headrace.services.outbox.hanging_transactions import RowsOf, end_own
from headrace.services.outbox.rows import OutboxRecord
from headrace.services.outbox.shard import Position

log = logging.getLogger("headrace.outbox")

PATIENCE_S = 5.0
# Another shard's transaction may be open that long before its coordinator aborts it.
LONGEST_HELD_BACK_S = 90.0
# Apache Kafka that was killed in between comes back no sooner, and may have lost a marker
# (`hanging_transactions.py`). The next marker of this producer would end that transaction as well,
# whatever was decided about it, so the shard is taken over anew before anything else is sent.
SLOW_COMMIT_S = 2.0
# A transaction that is not ended by then is aborted by its coordinator.
TRANSACTION_MS = 30_000
# A batch larger than the topic's max.message.bytes is refused as a whole; librdkafka never splits.
LARGEST_BATCH_BYTES = 900_000
# Somebody may be about to create the topic, or to give the right to write to it.
REFUSED_TOPIC_S = 30.0
# A cluster that creates topics answers "unknown" to the very request that creates one.
NEW_TOPIC_S = 1.0
FORBIDDEN = "TOPIC_AUTHORIZATION_FAILED"
RETRY_MS, LONGEST_RETRY_MS = 2, 50
ANY_PARTITION = -1  # the partitioner decides

# The errors of the cluster that are about a record, not about the moment.
OF_THE_RECORD = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


class NothingSent(Exception):
    """Nothing of the transaction is visible."""


class RowRefused(NothingSent):
    """As well, and trying again will not help; the text says why.

    `topics` are those that take no record at all, and why, if that is the reason.
    """

    def __init__(self, reason: str, topics: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.topics = topics or {}


class SenderLost(Exception):
    """Fenced, or worse. Whether the transaction is committed, the position tells.

    `forbidden`: the next sender must look which topic it may not write to. The cluster does not
    tell which one it was, and the producer is lost by it.
    """

    forbidden = False


class Sender:
    def __init__(
        self,
        at: ClientSettings,
        outbox_id: str,
        shard: int,
        *,
        rows_of: RowsOf | None = None,
        checks_rights: bool = False,
    ) -> None:
        """Without `rows_of` nobody can tell what a hanging transaction was, so none is ended."""
        self._at, self._checks_rights = at, checks_rights
        self._outbox_id, self._rows_of = outbox_id, rows_of
        self._key = positions.key_of(outbox_id, shard)
        self.transactional_id = f"headrace-outbox-{outbox_id}-{shard}"
        self._known: set[str] = set()  # topics that are there
        self._refused_since: dict[str, float] = {}  # topics that are missing or forbidden
        self._refusals: list[tuple[KafkaError, str]] = []
        settings = program_settings(
            at,
            {
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": TRANSACTION_MS,
                "partitioner": "murmur2_random",  # keys where the Java client puts them
                "linger.ms": 0,
                "batch.size": LARGEST_BATCH_BYTES,
                "batch.num.messages": 20_000,
                "message.max.bytes": 1_000_000_000,  # the topics' own limits decide
                "queue.buffering.max.messages": 100_000,
                "queue.buffering.max.kbytes": 256 * 1024,
                "retry.backoff.ms": RETRY_MS,
                "retry.backoff.max.ms": LONGEST_RETRY_MS,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 500,
                # librdkafka 2.16 can hang in a transaction after a re-bootstrap.
                "metadata.recovery.strategy": "none",
                "delivery.report.only.error": True,
            },
        )
        settings["on_delivery"] = self._reported
        self._producer: Producer = made(lambda: Producer(settings))
        self._positions_partition = -1

    def open(self, stopping: Callable[[], bool] = lambda: False) -> Position | None:
        """Fence whoever was before, then read where it came to."""
        while True:
            try:
                self._producer.init_transactions(PATIENCE_S)
                break
            except KafkaException as failure:
                error = kafka_error(failure)
                if not error.retriable() or stopping():
                    raise SenderLost(error.str()) from failure
        try:
            count = wait_for_topic(self._producer, self._at, positions.TOPIC)
            self._positions_partition = positions.partition_of(self._key, count)
            return self._position(stopping)
        except ClientError as failure:
            raise SenderLost(str(failure)) from failure

    def _position(self, stopping: Callable[[], bool]) -> Position | None:
        """Wait for transactions of other shards; end one of this shard that hangs."""
        deadline = monotonic() + LONGEST_HELD_BACK_S
        while True:
            try:
                return positions.read(self._at, self._key)
            except positions.HeldBack as held_back:
                ended = self._end_hanging(held_back)
                if not ended and (monotonic() > deadline or stopping()):
                    raise

    def _end_hanging(self, held_back: positions.HeldBack) -> bool:
        if self._rows_of is None:
            return False
        try:
            told = end_own(
                self._at,
                transactional_id=self.transactional_id,
                outbox_id=self._outbox_id,
                place=(positions.TOPIC, self._positions_partition),
                key=self._key,
                held_back=held_back,
                rows_of=self._rows_of,
            )
        except MalformedMessage as failure:
            raise ClientError(f"{held_back} It cannot be read: {failure}.") from failure
        except ClientError as failure:
            raise ClientError(f"{held_back} It cannot be ended: {failure}") from failure
        if told is not None:
            log.warning("%s", told)
        return told is not None

    def send(self, records: Sequence[OutboxRecord], position: Position) -> None:
        """One transaction."""
        self._require_topics(records)
        self._refusals.clear()
        try:
            self._producer.begin_transaction()
            self._produce(records)
            self._producer.produce(
                positions.TOPIC,
                positions.written(position),
                self._key,
                partition=self._positions_partition,
            )
            began = monotonic()
            self._insist(lambda: self._producer.commit_transaction(PATIENCE_S))
        except KafkaException as failure:
            raise self._ended(kafka_error(failure)) from failure
        if (took_s := monotonic() - began) > SLOW_COMMIT_S:
            raise SenderLost(f"a commit took {took_s:.0f} s, so the shard is taken over anew")

    def close(self) -> None:
        """Without a word to the cluster: no transaction is open, or it is lost."""
        self._producer.purge()
        del self._producer  # its threads end with it

    def _produce(self, records: Sequence[OutboxRecord]) -> None:
        """All arguments by their places (the fifth and sixth are callbacks): by their names a call
        takes 1.4 us, not 0.8."""
        produce: Callable[..., None] = self._producer.produce
        for topic, key, value, headers, timestamp_ms, _ in records:
            while True:
                try:
                    produce(topic, value, key, ANY_PARTITION, None, None, timestamp_ms, headers)
                    break
                except BufferError:
                    self._producer.poll(0.005)

    def _require_topics(self, records: Sequence[OutboxRecord]) -> None:
        """librdkafka would wait half a minute for a topic that is not there. All that are missing
        are noted, or each of them would be waited for after the others."""
        missing = {}
        for topic in sorted({record.topic for record in records} - self._known):
            try:
                self._require_topic(topic)
            except ClientError as failure:
                if not isinstance(failure, NoSuchTopic) and failure.code != FORBIDDEN:
                    raise NothingSent(str(failure)) from failure
                self._refused_since.setdefault(topic, monotonic())
                missing[topic] = str(failure)
                continue
            self._refused_since.pop(topic, None)
            self._known.add(topic)
        if not missing:
            return
        latest = monotonic() - REFUSED_TOPIC_S
        refused = {
            each: why for each, why in missing.items() if self._refused_since[each] <= latest
        }
        if refused:
            raise RowRefused(next(iter(refused.values())), refused)
        raise NothingSent(next(iter(missing.values())))

    def _require_topic(self, topic: str) -> None:
        """Raises ClientError if it is not there, or may not be written to."""
        patience_s = 0.0 if topic in self._refused_since else NEW_TOPIC_S
        wait_for_topic(self._producer, self._at, topic, unknown_s=patience_s)
        if self._checks_rights:
            self._require_right(topic)

    def _require_right(self, topic: str) -> None:
        """Raises ClientError with the code FORBIDDEN if this user may not write to the topic."""
        admin = self._at.admin()  # the answer ends with its client, so it has a name
        asked = admin.describe_topics(
            TopicCollection([topic]),
            include_authorized_operations=True,
            request_timeout=self._at.timeout_s,
        )
        try:
            rights = asked[topic].result().authorized_operations
        except KafkaException as failure:
            raise explained(failure, self._at.bootstrap, topic=topic) from failure
        if rights is not None and AclOperation.WRITE not in rights:
            raise explain(
                KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), self._at.bootstrap, topic=topic
            )

    # ---- what goes wrong

    def _insist(self, call: Callable[[], object]) -> None:
        """Again as long as librdkafka says that the same call may be made again."""
        deadline = monotonic() + 2 * TRANSACTION_MS / 1000
        while True:
            try:
                call()
                return
            except KafkaException as failure:
                if not kafka_error(failure).retriable() or monotonic() > deadline:
                    raise

    def _ended(self, error: KafkaError) -> NothingSent | SenderLost:
        """Abort if that is all it takes, and say what became of the transaction."""
        self._known.clear()
        if error.name() == FORBIDDEN:  # there is nothing to abort, and the producer is of no use
            lost = SenderLost(str(explain(error, self._at.bootstrap)))
            lost.forbidden = True
            return lost
        if error.fatal() or not error.txn_requires_abort():
            return SenderLost(f"{error.name()}: {error.str()}")
        try:
            self._insist(lambda: self._producer.abort_transaction(PATIENCE_S))
        except KafkaException as worse:
            return SenderLost(f"{error.name()}: {error.str()}; then {kafka_error(worse).str()}")
        for refusal, topic in self._refusals:
            if topic == positions.TOPIC:  # no row is guilty of that
                return SenderLost(str(explain_delivery(refusal, self._at.bootstrap, topic)))
        for refusal, topic in self._refusals:
            if refusal.code() in OF_THE_RECORD:
                return RowRefused(str(explain_delivery(refusal, self._at.bootstrap, topic)))
        for refusal, topic in self._refusals:
            return NothingSent(str(explain_delivery(refusal, self._at.bootstrap, topic)))
        return NothingSent(f"{error.name()}: {error.str()}")

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and error.code() not in (
            KafkaError._PURGE_QUEUE,
            KafkaError._PURGE_INFLIGHT,
        ):
            self._refusals.append((error, str(message.topic())))
