"""The commits of a worker: its offsets, and the records that moved to a retry topic.

Offsets of a source partition and of its retry partition are committed in one request: a key that
was unblocked by the one may have gone on in the other. Moves are written in a transaction that
commits the offsets of what they replace (KIP-447): a worker that has lost its partitions cannot
move anything. All calls come from the polling thread, because librdkafka's group metadata hangs
otherwise.

One commit at a time. librdkafka sends a commit that was refused with a temporary error (the
coordinator has moved, its disk is full) again after a while, and does not hold back later commits:
the older commit may arrive last, and the last one counts, without any error. So while one is
unanswered no other is sent, and no transaction is begun. Only where nothing can be waited for, when
the group takes partitions away, a second one may follow; if the first comes after it, records are
handled again, and none is lost.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as NativePartition

from headrace.app.attempts.sender import LARGEST_MESSAGE
from headrace.app.dispatch.dispatcher import Offsets
from headrace.app.dispatch.effects import Move
from headrace.app.dispatch.owned_partition import OwnedPartition
from headrace.client.connection import ClientSettings, made, program_settings
from headrace.client.errors import (
    NO_LONGER_OURS,
    ClientError,
    Misuse,
    explain_delivery,
    kafka_error,
)
from headrace.client.producer.no_loss import defaults_for
from headrace.client.records import Outgoing

log = logging.getLogger("headrace.app")

# A dead worker's open transaction hides what follows it for so long at most.
TRANSACTION_TIMEOUT_MS = 10_000
CALL_S = 10.0
COMMIT_TRIES = 3
# A group that is being rebalanced says neither yes nor no: its members keep what they have until
# they are told otherwise.
UNDECIDED = frozenset({KafkaError.REBALANCE_IN_PROGRESS, KafkaError.STALE_MEMBER_EPOCH})
# Errors of one record that no transaction will ever take.
NEVER_TAKEN = frozenset(
    {
        KafkaError.INVALID_RECORD,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._UNKNOWN_PARTITION,
    }
)


class NotOurs(Exception):
    """The group has given partitions to another; what was to be committed is not."""


class OutcomeUnknown(Exception):
    """A transaction was to be committed, and nobody said whether it is."""


class GroupCommits:
    def __init__(self, consumer: confluent_kafka.Consumer, connection: ClientSettings) -> None:
        self._consumer = consumer
        self._connection = connection
        self._producer: confluent_kafka.Producer | None = None
        self._one_by_one = False  # until a transaction is committed, each record is a batch alone
        self.unanswered = 0  # commits that nobody waited for; whoever hears of one counts it down

    # ---- offsets

    def commit(self, owned: Iterable[OwnedPartition], *, wait: bool) -> None:
        """Commit what has changed, unless the commit before is unanswered; with `wait` anyway, and
        what was sent and not answered once more. Raises NotOurs if told so, which only happens
        with `wait`.
        """
        if self.unanswered and not wait:
            return
        again = wait and self.unanswered > 0
        found = [said for one in owned for said in one.runner.changed_offsets(one, sent_too=again)]
        if not found:
            return
        offsets = _as_sent(found)
        try:
            if wait:
                answered: Any = self._consumer.commit(offsets=offsets, asynchronous=False)
            else:  # `on_commit` is told of failures
                self._consumer.commit(offsets=offsets, asynchronous=True)
                self.unanswered += 1
                answered = []
        except KafkaException as failure:
            _refused(kafka_error(failure))
            return
        failed = {(place.topic, place.partition) for place in answered if place.error is not None}
        for stream, said in found:
            if stream.place not in failed:
                stream.committed = said
        for place in answered:
            if place.error is not None:
                _refused(place.error)

    def still_ours(self, owned: Iterable[OwnedPartition]) -> bool | None:
        """Ask the group, by a commit that repeats what is committed or says what is new. None: it
        is being rebalanced and does not say; ask again.
        """
        asked = [one for one in owned if not one.moving and not one.gone]
        offsets = _as_sent([said for one in asked for said in one.runner.offsets(one)])
        if not offsets:
            return True
        try:
            answered: Any = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as failure:
            codes = {kafka_error(failure).code()}
        else:
            codes = {place.error.code() for place in answered if place.error is not None}
        if codes & (NO_LONGER_OURS - UNDECIDED):
            return False
        return None if codes & UNDECIDED else True

    # ---- transactions

    def transact(self, owned: list[OwnedPartition]) -> None:
        """Write the moves of these partitions and commit their offsets, all or nothing; nothing
        yet while a commit is unanswered, which could take the offsets back.

        Raises NotOurs; then nothing was written, and the group will say what is still ours. May be
        called again with the same partitions after any failure but OutcomeUnknown.
        """
        if self.unanswered:
            return
        records: list[Outgoing[Any, Any]] = []
        moves: list[tuple[OwnedPartition, Move]] = []  # by the number of the record
        copies: list[tuple[OwnedPartition, Move, int]] = []  # with the number of the record
        for one in owned:
            for move in one.runner.begin_transaction(one):
                if move.results is None:
                    copies.append((one, move, len(records)))
                    records.append(one.runner.copy_to_move(move))
                else:
                    records += move.results
                moves += [(one, move)] * (len(records) - len(moves))
        offsets: dict[int, int] = {}  # number of the record -> its offset
        refused: dict[int, ClientError] = {}
        try:
            self.write(records, owned, offsets.__setitem__, refused)
        except KafkaException:
            # A broker refuses a whole batch, also for one of its records: next time tells which.
            if len(refused) > 1 and not self._one_by_one:
                self._one_by_one = True
                raise
            for number, error in refused.items():
                of, move = moves[number]
                if move.results is not None:
                    of.runner.results_refused(move, error)
            raise
        self._one_by_one = False
        for one in owned:
            written = [(move, offsets[number]) for of, move, number in copies if of is one]
            one.runner.transaction_committed(one, written)

    def write(
        self,
        records: list[Outgoing[Any, Any]],
        owned: list[OwnedPartition],
        written: Callable[[int, int], None] | None = None,
        refused: dict[int, ClientError] | None = None,
    ) -> None:
        """One transaction: these records, and the offsets of these partitions as they stand.

        Raises NotOurs, or KafkaException when the cluster does not let us; nothing is written then.
        Raises OutcomeUnknown if nobody says whether it is. `refused` gets the records that no
        transaction will ever take, by number.
        """
        never_taken = {} if refused is None else refused
        producer = self._ready_producer()
        try:
            producer.begin_transaction()
            for number, record in enumerate(records):
                self._produce(producer, number, record, written, never_taken)
                if self._one_by_one:
                    producer.flush(CALL_S)
            found = [said for one in owned for said in one.runner.offsets(one)]
            member = self._consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(_as_sent(found), member, CALL_S)
            self._commit_transaction(producer)
        except KafkaException as failure:
            self._give_up(producer, kafka_error(failure))
            if kafka_error(failure).code() in NO_LONGER_OURS:
                raise NotOurs(kafka_error(failure).str()) from failure
            raise
        for stream, said in found:
            stream.committed = said

    def _commit_transaction(self, producer: confluent_kafka.Producer) -> None:
        """A commit whose time ran out is under way: librdkafka goes on with it when asked again."""
        for _ in range(COMMIT_TRIES):
            try:
                return producer.commit_transaction(CALL_S)
            except KafkaException as failure:
                error = kafka_error(failure)
                if error.txn_requires_abort():
                    raise
                if not error.retriable():
                    break
        self._producer = None
        raise OutcomeUnknown(error.str())

    def _produce(
        self,
        producer: confluent_kafka.Producer,
        number: int,
        record: Outgoing[Any, Any],
        written: Callable[[int, int], None] | None,
        refused: dict[int, ClientError],
    ) -> None:
        def ended(error: KafkaError | None, message: confluent_kafka.Message) -> None:
            if error is not None:
                refuse(error)
            elif written is not None:
                written(number, message.offset() or 0)

        def refuse(error: KafkaError) -> None:
            if error.code() in NEVER_TAKEN:
                at = self._connection.bootstrap
                refused[number] = explain_delivery(error, at, record.topic)

        headers: Any = record.headers or None
        while True:
            try:
                producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    -1 if record.partition is None else record.partition,
                    on_delivery=ended,
                    headers=headers,
                )
                return
            except BufferError:
                producer.poll(0.1)
            except KafkaException as failure:
                refuse(kafka_error(failure))
                raise
            except (TypeError, ValueError, OverflowError) as wrong:  # such as a number for a key
                refused[number] = Misuse(f"This cannot be sent to {record.topic}: {wrong}.")
                raise KafkaException(KafkaError(KafkaError.INVALID_RECORD, str(wrong))) from wrong

    def _ready_producer(self) -> confluent_kafka.Producer:
        if self._producer is None:
            at = self._connection
            name = f"headrace-app-{uuid.uuid4().hex}"
            chosen = defaults_for(at.settings, name)
            chosen["transaction.timeout.ms"] = TRANSACTION_TIMEOUT_MS
            chosen["partitioner"] = "murmur2_random"
            chosen["message.max.bytes"] = LARGEST_MESSAGE
            conf = program_settings(at, chosen)
            producer = made(lambda: confluent_kafka.Producer(conf))
            producer.init_transactions(CALL_S)
            self._producer = producer
        return self._producer

    def _give_up(self, producer: confluent_kafka.Producer, error: KafkaError) -> None:
        """Abort; a producer that cannot is thrown away, and its transaction ends by time."""
        if not error.fatal():
            try:
                producer.abort_transaction(CALL_S)
                return
            except KafkaException as failure:
                log.warning("a transaction could not be aborted: %s", kafka_error(failure).str())
        self._producer = None

    def close(self) -> None:
        self._producer = None


def _refused(error: KafkaError) -> None:
    """By the group: said to the caller. By anything else: the next commit says it again."""
    if error.code() in NO_LONGER_OURS:
        raise NotOurs(error.str())
    log.warning("offsets were not committed and will be again: %s", error.str())


def _as_sent(found: Offsets) -> list[NativePartition]:
    return [
        NativePartition(*stream.place, position, metadata=metadata)
        for stream, (position, metadata) in found
    ]
