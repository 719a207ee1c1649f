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

from headrace.client.admin.requests import Requests
from headrace.client.connection import ClientSettings, program_settings
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.client.faults import (
    NOT_AUTHORIZED,
    PURGED,
    Fault,
    codes,
    insist,
    not_authorized,
)
from headrace.client.intake import RawRecord
from headrace.client.transaction_writer import NOW, TransactionWriter
from headrace.protocol.errors import MalformedMessage
from headrace.services.outbox import positions
from headrace.services.outbox.evidence import RowsOf, end_own
from headrace.services.outbox.rows import OutboxRecord
from headrace.services.outbox.shard import Position

log = logging.getLogger("headrace.outbox")

PATIENCE_S = 5.0
# Another shard's transaction may be open that long before its coordinator aborts it.
LONGEST_HELD_BACK_S = 90.0
# Apache Kafka that was killed in between comes back no sooner, and may have lost a marker
# (`client/once/hanging.py`). The next marker of this producer would end that transaction as well,
# whatever was decided about it, so the shard is taken over anew before anything else is sent.
SLOW_COMMIT_S = 2.0
# A transaction that is not ended by then is aborted by its coordinator.
TRANSACTION_MS = 30_000
LONGEST_INSISTENCE_S = 2 * TRANSACTION_MS / 1000
# A batch larger than the topic's max.message.bytes is refused as a whole; librdkafka never splits.
LARGEST_BATCH_BYTES = 900_000
# Somebody may be about to create the topic, or to give the right to write to it.
REFUSED_TOPIC_S = 30.0
# A cluster that creates topics answers "unknown" to the very request that creates one.
NEW_TOPIC_S = 1.0
RETRY_MS, LONGEST_RETRY_MS = 2, 50

# The errors of the cluster that are about a record, not about the moment.
OF_THE_RECORD = codes(
    "MSG_SIZE_TOO_LARGE",
    "INVALID_RECORD",
    "INVALID_MSG",
    "INVALID_TIMESTAMP",
    "POLICY_VIOLATION",
    "RECORD_LIST_TOO_LARGE",
    "TOPIC_EXCEPTION",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
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
        self._refusals: list[tuple[Fault, str]] = []
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
        self._writer = TransactionWriter(settings, refused=self._refused)
        self._positions_partition = -1

    def open(self, stopping: Callable[[], bool] = lambda: False) -> Position | None:
        """Fence whoever was before, then read where it came to."""
        while True:
            try:
                self._writer.take_over(PATIENCE_S)
                break
            except Fault as fault:
                if not fault.may_call_again or stopping():
                    raise SenderLost(str(fault)) from fault
        try:
            count = self._writer.wait_for_topic(self._at, positions.TOPIC)
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
            self._writer.begin()
            self._writer.send_all(records)
            at, written = self._positions_partition, positions.written(position)
            self._writer.send(positions.TOPIC, at, self._key, written, None, NOW)
            began = monotonic()
            insist(lambda: self._writer.commit(PATIENCE_S), LONGEST_INSISTENCE_S)
        except Fault as fault:
            raise self._ended(fault) from fault
        if (took_s := monotonic() - began) > SLOW_COMMIT_S:
            raise SenderLost(f"a commit took {took_s:.0f} s, so the shard is taken over anew")

    def close(self) -> None:
        """Without a word to the cluster: no transaction is open, or it is lost."""
        self._writer.close()

    def _require_topics(self, records: Sequence[OutboxRecord]) -> None:
        """librdkafka would wait half a minute for a topic that is not there. All that are missing
        are noted, or each of them would be waited for after the others."""
        missing = {}
        for topic in sorted({record.topic for record in records} - self._known):
            try:
                self._require_topic(topic)
            except ClientError as failure:
                if not isinstance(failure, NoSuchTopic) and failure.code != NOT_AUTHORIZED:
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
        self._writer.wait_for_topic(self._at, topic, unknown_s=patience_s)
        if self._checks_rights:
            self._require_right(topic)

    def _require_right(self, topic: str) -> None:
        """Raises ClientError with that code if this user may not write to the topic."""
        try:
            may_write = Requests(self._at).may_write(topic, self._at.timeout_s)
        except Fault as fault:
            raise fault.explained(self._at.bootstrap, topic=topic) from fault
        if not may_write:
            raise not_authorized().explained(self._at.bootstrap, topic=topic)

    # ---- what goes wrong

    def _ended(self, fault: Fault) -> NothingSent | SenderLost:
        """Abort if that is all it takes, and say what became of the transaction."""
        self._known.clear()
        bootstrap = self._at.bootstrap
        if fault.code == NOT_AUTHORIZED:  # there is nothing to abort, and the producer is of no use
            lost = SenderLost(str(fault.explained(bootstrap)))
            lost.forbidden = True
            return lost
        if fault.is_fatal or not fault.must_abort:
            return SenderLost(fault.named)
        try:
            insist(lambda: self._writer.abort(PATIENCE_S), LONGEST_INSISTENCE_S)
        except Fault as worse:
            return SenderLost(f"{fault.named}; then {worse}")
        for refusal, topic in self._refusals:
            if topic == positions.TOPIC:  # no row is guilty of that
                return SenderLost(str(refusal.delivery_explained(bootstrap, topic)))
        for refusal, topic in self._refusals:
            if refusal.code in OF_THE_RECORD:
                return RowRefused(str(refusal.delivery_explained(bootstrap, topic)))
        for refusal, topic in self._refusals:
            return NothingSent(str(refusal.delivery_explained(bootstrap, topic)))
        return NothingSent(fault.named)

    def _refused(self, fault: Fault, record: RawRecord) -> None:
        if fault.code not in PURGED:
            self._refusals.append((fault, str(record.topic())))
