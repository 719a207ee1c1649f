"""The outcome of a transaction: Committed, NothingWritten, RecordsRefused or Unknown.

The flags of a transaction's error are interpreted only here. The rules:

- Before its commit was asked for, nothing of a transaction is visible, and nothing will be: it is
  aborted, or the next writer of the id aborts it when it fences this one.
- A commit with the answer "abort" is not made. Any other error of a commit leaves it unknown: only
  the mark decides, read by the next writer (`marks.py`).
- After a fatal error, or an abort that fails, the writer cannot be used again (`is_spent`). The
  outcome of the transaction is a separate question.

The meaning of a code for a record (its own fault, a missing right, a broker in trouble) differs
between services: they look at `fault` and `refusals`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, sleep

from headrace.client.errors import ClientError, Fenced, TransactionAborted
from headrace.client.faults import Fault
from headrace.client.intake import RawRecord


@dataclass(slots=True)
class Committed:
    """All records are visible to readers of committed records."""

    took_s: float  # since it was begun
    commit_s: float  # the commit alone
    # Set by a service that does not trust the writer any more, with `why`.
    is_spent: bool = False
    why: str = ""


@dataclass(slots=True)
class NothingWritten:
    """Nothing is visible; all records may be written again, by a new writer if `is_spent`."""

    fault: Fault
    why: str
    is_spent: bool
    took_s: float
    refusals: list[RefusedRecord] = field(default_factory=list)  # for any reason


@dataclass(slots=True)
class RecordsRefused(NothingWritten):
    """The cluster will never take some of its records as they are."""

    records: list[RefusedRecord] = field(default_factory=list)


@dataclass(slots=True)
class Unknown:
    """The outcome of the commit is not known: the next writer finds out when it opens."""

    fault: Fault
    why: str
    is_spent: bool = True


Outcome = Committed | NothingWritten | RecordsRefused | Unknown


class RefusedRecord:
    """One record that was not written, and why. Created when its transaction fails."""

    __slots__ = ("fault", "key", "partition", "topic", "value")

    def __init__(self, fault: Fault, record: RawRecord) -> None:
        self.fault = fault
        self.topic = str(record.topic())
        self.partition = record.partition()
        self.key = record.key()
        self.value = record.value()


def is_undecided(fault: Fault, *, commit_asked: bool) -> bool:
    """Whether the transaction may be visible in spite of this error."""
    return commit_asked and (fault.is_fatal or not fault.must_abort)


def can_abort(fault: Fault) -> bool:
    return not fault.is_fatal


def insist(
    call: Callable[[], object],
    within_s: float,
    *,
    stopping: Callable[[], bool] = lambda: False,
    pause_s: float = 0.0,
) -> None:
    """Repeat the call as long as librdkafka says that it may be repeated."""
    deadline = monotonic() + within_s
    while True:
        try:
            call()
            return
        except Fault as fault:
            if not fault.may_call_again or monotonic() > deadline or stopping():
                raise
        if pause_s:
            sleep(pause_s)


def explained(fault: Fault, bootstrap: str) -> ClientError:
    """The error for a program: Fenced, TransactionAborted (it may be retried), or the cluster's
    words."""
    said = fault.explained(bootstrap)
    if fault.is_fatal and not isinstance(said, Fenced):
        said.args = (
            f"{said} Close this producer and make a new one: that ends the open transaction.",
        )
    if fault.is_fatal or not fault.must_abort:
        return said
    aborted = TransactionAborted(f"The transaction is aborted and may be tried again. {said}")
    aborted.code, aborted.retriable = said.code, True
    return aborted
