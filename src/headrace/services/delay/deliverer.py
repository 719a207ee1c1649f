"""The transactional producer: due messages and the group's progress, in one transaction.

`send` any number of records, then `commit` with the group's offsets. The errors: `Aborted` (nothing
became visible; begin again), `TargetRefused` (as well, because the cluster does not take certain
records, which it names), `Barred` (as well, because a topic takes nothing of ours) and `Lost` (the
producer cannot be used any more, and whether the transaction was committed is known only after
`open` of a new one). After each of them the truth is what the group has committed. A producer that
saw its cluster fail is given up as well, even if it could go on: transactions that ended meanwhile
are looked at before a new one begins (`obstacles/evidence.py`). Belongs to one thread. Knows
nothing of due times.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from headrace.client.connection import ClientSettings, program_settings
from headrace.client.faults import NOT_AUTHORIZED, PURGED_UNSENT, Fault, codes
from headrace.client.intake import GroupMember, GroupOffset, RawRecord
from headrace.client.once.outcome import insist
from headrace.client.transaction_writer import TransactionWriter

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
OF_THE_RECORD = codes(
    "MSG_SIZE_TOO_LARGE",
    "INVALID_RECORD",
    "INVALID_MSG",
    "POLICY_VIOLATION",
    "_UNKNOWN_PARTITION",
    "RECORD_LIST_TOO_LARGE",
)
# The errors of a topic for every writer at the moment: no permission, or a clock that it does not
# accept.
INVALID_TIMESTAMP = "INVALID_TIMESTAMP"
OF_A_TOPIC = codes(NOT_AUTHORIZED, INVALID_TIMESTAMP)
# Of a transaction's other topics, when one of them may not be written to; it can come first.
OF_A_NEIGHBOUR = codes("OPERATION_NOT_ATTEMPTED")


# A connection that broke, in whatever way.
OF_A_BROKER = codes("_TRANSPORT", "_ALL_BROKERS_DOWN")


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

    def __init__(self, record: RawRecord, fault: Fault) -> None:
        self.topic = str(record.topic())
        self.partition = record.partition()
        self.key = record.key()
        self.value = record.value()
        self.code = fault.code
        self.why = str(fault)

    def sentence(self) -> str:
        """The error of the topic, and the remedy."""
        if self.code == NOT_AUTHORIZED:
            return f"the service may not write to {self.topic}: give it the permission"
        if self.code == INVALID_TIMESTAMP:
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
                # After a re-bootstrap librdkafka 2.16 often hangs (client/transaction_offsets.py).
                "metadata.recovery.strategy": "none",
                # A report for each record would cost as much as sending it.
                "delivery.report.only.error": True,
            },
        )
        self._writer = TransactionWriter(settings, refused=self._refused, failed=self._failed)
        self._send = self._writer.send

    def open(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Take over the transactional id: an open transaction of an earlier process is aborted."""
        while True:
            try:
                self._writer.take_over(PATIENCE_S)
                self._trouble = None
                return
            except Fault as fault:
                if not fault.may_call_again or stopping():
                    raise Lost(str(fault)) from fault

    def begin(self) -> None:
        self._refusals.clear()
        self._require_health()
        self._began_at = monotonic()
        try:
            self._writer.begin()
        except Fault as fault:
            raise Lost(str(fault)) from fault

    def send(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header],
        timestamp_ms: int,
    ) -> None:
        try:
            self._send(topic, partition, key, value, headers, timestamp_ms)
        except Fault as fault:
            raise self._ended(fault) from fault

    def commit(self, offsets: list[GroupOffset], member: GroupMember) -> None:
        """An older generation of the group than its present one fails."""
        writer = self._writer
        self._require_health()
        self._insist(lambda: writer.send_offsets(offsets, member, PATIENCE_S))
        self._insist(lambda: writer.commit(PATIENCE_S))
        if monotonic() - self._began_at > SLOW_S:
            raise Lost("the transaction was committed, but it took long")

    def close(self) -> None:
        """Without a word to the cluster: no transaction is open, or it is lost."""
        self._writer.close()
        del self._send, self._writer  # its threads end with it

    # ---- what goes wrong

    def _insist(self, call: Callable[[], object]) -> None:
        try:
            insist(call, LONGEST_INSISTENCE_S)
        except Fault as fault:
            raise self._ended(fault) from fault

    def _ended(self, fault: Fault) -> Aborted | Lost:
        """Abort if that is all it takes, and say what became of the transaction."""
        if fault.is_fatal or not fault.must_abort:
            return Lost(fault.named)
        try:
            insist(lambda: self._writer.abort(PATIENCE_S), LONGEST_INSISTENCE_S)
        except Fault as worse:
            return Lost(f"{fault.named}; then {worse}")
        told, self._refusals = self._refusals, []
        if refusals := [each for each in told if each.code in OF_THE_RECORD]:
            return TargetRefused(refusals)
        barred = {each.topic: each.sentence() for each in told if each.code in OF_A_TOPIC}
        if barred or fault.code in OF_A_TOPIC | OF_A_NEIGHBOUR:
            return Barred(fault.named, barred)
        if monotonic() - self._began_at > SLOW_S:
            return Lost(f"{fault.named}; aborted, but it took long")
        return Aborted(fault.named)

    def _require_health(self) -> None:
        if self._trouble is not None:
            raise Lost(f"the cluster failed: {self._trouble}")

    def _failed(self, fault: Fault) -> None:
        if fault.code in OF_A_BROKER:
            self._trouble = str(fault)

    def _refused(self, fault: Fault, record: RawRecord) -> None:
        if fault.code != PURGED_UNSENT:
            self._refusals.append(Refusal(record, fault))
