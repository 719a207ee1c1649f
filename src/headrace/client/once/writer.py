"""One fenced writer: records and their mark in one transaction, again and again.

    writer = FencedWriter(settings_for(at, "relay-1", transaction_ms=30_000), patience)
    mark = writer.open(read_mark)                        # others of this id are fenced first
    outcome = writer.write(records, RecordMark(...))     # all or nothing, or Unknown

Call `open` before the first transaction; after an outcome that `is_spent` only `close`, and make a
new writer. Nothing is lost or duplicated if each write follows from the mark of the last
`Committed`, or from the mark that the next `open` reads. A broker that fails may leave a
transaction without one of its markers (`hanging.py`), and the next marker of the same producer
would end that one too: so a service replaces its writer when the cluster had a failure. Belongs to
one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

from headrace.client.connection import ClientSettings, Setting, program_settings
from headrace.client.faults import PURGED, Fault
from headrace.client.intake import RawRecord
from headrace.client.once.marks import Mark
from headrace.client.once.outcome import (
    Committed,
    NothingWritten,
    Outcome,
    RecordsRefused,
    RefusedRecord,
    Unknown,
    can_abort,
    insist,
    is_undecided,
)
from headrace.client.transaction_writer import TransactionWriter

# A batch larger than the topic's max.message.bytes is refused as a whole; librdkafka never splits.
LARGEST_BATCH_BYTES = 900_000
# Enough for one transaction; sending waits when it is full.
QUEUED_RECORDS = 100_000
QUEUED_KIB = 256 * 1024
# Back-to-back transactions meet CONCURRENT_TRANSACTIONS for a moment; the default of 100 ms showed
# as the p99 of lateness.
RETRY_MS, LONGEST_RETRY_MS = 2, 50

Known = TypeVar("Known")
# Sends the records of one transaction, by the fastest suitable call. Raises Fault.
Records = Callable[[TransactionWriter], object]


@dataclass(slots=True)
class Patience:
    """The length of one call of librdkafka, and how long it is repeated while that is allowed."""

    call_s: float
    commit_s: float  # the commit; each call continues the one before
    other_s: float  # offsets and abort


def settings_for(
    at: ClientSettings,
    transactional_id: str,
    *,
    transaction_ms: int,
    largest_batch_bytes: int = LARGEST_BATCH_BYTES,
    more: Mapping[str, Setting] | None = None,
) -> dict[str, Setting]:
    """The settings of a service that writes large transactions back to back."""
    chosen: dict[str, Setting] = {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": transaction_ms,
        "linger.ms": 0,
        "batch.size": largest_batch_bytes,
        "batch.num.messages": 20_000,
        # The topics' own limits decide, not this one.
        "message.max.bytes": 1_000_000_000,
        "queue.buffering.max.messages": QUEUED_RECORDS,
        "queue.buffering.max.kbytes": QUEUED_KIB,
        "retry.backoff.ms": RETRY_MS,
        "retry.backoff.max.ms": LONGEST_RETRY_MS,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
        # After a re-bootstrap librdkafka 2.16 often does not return
        # (client/transaction_offsets.py).
        "metadata.recovery.strategy": "none",
        # A report for each record would cost as much as sending it.
        "delivery.report.only.error": True,
    }
    return program_settings(at, {**chosen, **(more or {})})


class FencedWriter:
    """`never_taken`: codes of records that can never be written. `distrusted`: errors of brokers
    after which the writer is given up."""

    def __init__(
        self,
        settings: Mapping[str, object],
        patience: Patience,
        *,
        never_taken: frozenset[str] = frozenset(),
        distrusted: frozenset[str] = frozenset(),
    ) -> None:
        self.patience = patience
        self._never_taken, self._distrusted = never_taken, distrusted
        self._refusals: list[RefusedRecord] = []
        self._trouble: Fault | None = None
        self._is_open = False  # others of this id are fenced, and it is not spent
        # librdkafka logs what no callback of ours handles.
        failed = self._failed if distrusted else None
        self.calls = TransactionWriter(settings, refused=self._refused, failed=failed)

    def open(
        self, read: Callable[[], Known], stopping: Callable[[], bool] = lambda: False
    ) -> Known:
        """Fence the writer that had this id before, abort its open transaction, then read the mark.

        Repeats its calls until `stopping`. Raises ClientError; then close the writer.
        """
        patience = self.patience
        insist(lambda: self.calls.take_over(patience.call_s), float("inf"), stopping=stopping)
        self._trouble = None
        known = read()
        self._is_open = True
        return known

    def write(self, records: Records, mark: Mark) -> Outcome:
        """Write the records and the mark in one transaction."""
        assert self._is_open, "a writer is opened first, and replaced when it is spent"
        calls, patience = self.calls, self.patience
        began = commit_began = monotonic()
        commit_asked = False
        self._refusals.clear()
        try:
            self._require_trust()
            calls.begin()
            records(calls)
            self._require_trust()
            mark.add_to(calls, patience.call_s, patience.other_s)
            commit_began = monotonic()
            commit_asked = True
            insist(lambda: calls.commit(patience.call_s), patience.commit_s)
        except Fault as fault:
            outcome = self._failed_by(fault, began, commit_asked=commit_asked)
            self._is_open = not outcome.is_spent
            return outcome
        ended = monotonic()
        return Committed(ended - began, ended - commit_began)

    def close(self) -> None:
        """Close without a request to the cluster: no transaction is open, or the next writer ends
        it."""
        self.calls.close()

    # ---- errors

    def _failed_by(self, fault: Fault, began: float, *, commit_asked: bool) -> Outcome:
        if is_undecided(fault, commit_asked=commit_asked):
            return Unknown(fault, fault.named)
        is_spent, why = True, fault.named
        if fault is self._trouble:
            why = f"the cluster failed: {fault}"
        elif can_abort(fault):
            try:
                insist(lambda: self.calls.abort(self.patience.call_s), self.patience.other_s)
                is_spent = False
            except Fault as worse:
                why = f"{fault.named}; then {worse}"
        refusals, self._refusals = self._refusals, []
        took_s = monotonic() - began
        never = [each for each in refusals if each.fault.code in self._never_taken]
        if never and not is_spent:
            return RecordsRefused(fault, why, is_spent, took_s, refusals, never)
        return NothingWritten(fault, why, is_spent, took_s, refusals)

    def _require_trust(self) -> None:
        if self._trouble is not None:
            raise self._trouble

    def _failed(self, fault: Fault) -> None:
        if fault.code in self._distrusted:
            self._trouble = fault

    def _refused(self, fault: Fault, record: RawRecord) -> None:
        if fault.code not in PURGED:
            self._refusals.append(RefusedRecord(fault, record))
