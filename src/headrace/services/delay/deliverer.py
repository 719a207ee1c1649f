"""The writer of an instance: due messages and the group's progress, in one transaction.

`client/once/writer.py` with this service's settings, and what its outcomes mean here: `barred`
tells whether a topic takes nothing of ours now. A writer that saw its cluster fail, or whose
transaction took long, is given up even if it could go on: transactions that ended meanwhile are
looked at before a new one begins (`obstacles/evidence.py`). After an outcome that `is_spent` the
truth is what the group has committed. Knows nothing of due times.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.client.connection import ClientSettings
from headrace.client.faults import NOT_AUTHORIZED, codes
from headrace.client.once.marks import GroupMark
from headrace.client.once.outcome import Committed, NothingWritten, Outcome, RefusedRecord, Unknown
from headrace.client.once.writer import (
    LARGEST_BATCH_BYTES,
    FencedWriter,
    Patience,
    Records,
    settings_for,
)

Header = tuple[str, bytes | None]

# A transaction that is not ended by then is aborted by its coordinator.
TRANSACTION_MS = 10_000
PATIENCE = Patience(
    call_s=5.0, commit_s=2 * TRANSACTION_MS / 1000, other_s=2 * TRANSACTION_MS / 1000
)
# A transaction that took longer has seen a broker fail, whatever its calls say.
SLOW_S = 2.0

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
# Errors of a transaction's other topics, when one of them may not be written to; such an error can
# come first.
OF_A_NEIGHBOUR = codes("OPERATION_NOT_ATTEMPTED")

# Errors of a connection that broke, in whatever way.
OF_A_BROKER = codes("_TRANSPORT", "_ALL_BROKERS_DOWN")


def sentence(refused: RefusedRecord) -> str:
    """Returns the error of the topic, and the remedy."""
    code, topic = refused.fault.code, refused.topic
    if code == NOT_AUTHORIZED:
        return f"the service may not write to {topic}: give it the permission"
    if code == INVALID_TIMESTAMP:
        return (
            f"{topic} does not take the time of delivery: the clocks of the service and "
            "of the broker differ by more than message.timestamp.after.max.ms"
        )
    return f"{topic} refuses what must go there: {refused.fault}"


def barred(outcome: NothingWritten) -> dict[str, str] | None:
    """Topics that take nothing of ours now, each with a sentence for people: empty if the cluster
    does not name them; None if that is not the reason."""
    named = {
        each.topic: sentence(each) for each in outcome.refusals if each.fault.code in OF_A_TOPIC
    }
    if named or outcome.fault.code in OF_A_TOPIC | OF_A_NEIGHBOUR:
        return named
    return None


class Deliverer:
    """One writer of one transactional id; `open` before the first transaction."""

    def __init__(
        self,
        connection: ClientSettings,
        transactional_id: str,
        *,
        largest_batch_bytes: int = LARGEST_BATCH_BYTES,
    ) -> None:
        self.transactional_id = transactional_id
        self.largest_batch_bytes = min(largest_batch_bytes, LARGEST_BATCH_BYTES)
        settings = settings_for(
            connection,
            transactional_id,
            transaction_ms=TRANSACTION_MS,
            largest_batch_bytes=self.largest_batch_bytes,
            more={"allow.auto.create.topics": False},
        )
        self._writer = FencedWriter(
            settings, PATIENCE, never_taken=OF_THE_RECORD, distrusted=OF_A_BROKER
        )

    def open(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Raises ClientError. The marks are read for each partition when the group gives it."""
        self._writer.open(lambda: None, stopping)

    def write(self, records: Records, mark: GroupMark) -> Outcome:
        outcome = self._writer.write(records, mark)
        if isinstance(outcome, Unknown) or outcome.is_spent or outcome.took_s <= SLOW_S:
            return outcome
        if isinstance(outcome, Committed):
            outcome.is_spent, outcome.why = True, "the transaction was committed, but it took long"
        elif type(outcome) is NothingWritten and barred(outcome) is None:
            outcome.is_spent, outcome.why = True, f"{outcome.why}; aborted, but it took long"
        return outcome

    def close(self) -> None:
        """Closes without a request to the cluster: no transaction is open, or it is lost."""
        self._writer.close()
