"""The writer of one shard: records and the position, all of it or nothing (`client/once/`).

`open` takes over the shard's transactional id: the writer that had it before is fenced. `send` says
what became of one transaction, in words for people, and gives a writer up (`is_spent`) that cannot
be trusted any more. Belongs to one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from headrace.client.admin.requests import Requests
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.client.faults import NOT_AUTHORIZED, Fault, codes, not_authorized
from headrace.client.once.marks import RecordMark
from headrace.client.once.outcome import (
    Committed,
    NothingWritten,
    Outcome,
    RecordsRefused,
    Unknown,
)
from headrace.client.once.writer import FencedWriter, Patience, settings_for
from headrace.services.outbox import positions
from headrace.services.outbox.evidence import RowsOf, end_own
from headrace.services.outbox.rows import OutboxRecord
from headrace.services.outbox.shard import Position
from headrace.wire.protocol.errors import MalformedMessage

log = logging.getLogger("headrace.outbox")

# A transaction that is not ended by then is aborted by its coordinator.
TRANSACTION_MS = 30_000
PATIENCE = Patience(
    call_s=5.0, commit_s=2 * TRANSACTION_MS / 1000, other_s=2 * TRANSACTION_MS / 1000
)
# Another shard's transaction may be open that long before its coordinator aborts it.
LONGEST_HELD_BACK_S = 90.0
# Apache Kafka that was killed in between comes back no sooner, and may have lost a marker
# (`client/once/hanging.py`). The next marker of this producer would end that transaction as well,
# whatever was decided about it, so the shard is taken over again before anything else is sent.
SLOW_COMMIT_S = 2.0
# A user may be about to create the topic, or to grant the right to write to it.
REFUSED_TOPIC_S = 30.0
# A cluster that creates topics answers "unknown" to the very request that creates one.
NEW_TOPIC_S = 1.0

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


@dataclass(slots=True)
class TopicsRefuse:
    """Nothing was begun: topics are missing, or may not be written to.

    `for_long` are those for which this has been so for REFUSED_TOPIC_S, and why: waiting does not
    help.
    """

    why: str
    for_long: dict[str, str]


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
        """Without `rows_of` it is unknown what a hanging transaction was, so none is aborted or
        committed."""
        self._at, self._checks_rights = at, checks_rights
        self._outbox_id, self._rows_of = outbox_id, rows_of
        self._key = positions.key_of(outbox_id, shard)
        self.transactional_id = f"headrace-outbox-{outbox_id}-{shard}"
        self._known: set[str] = set()  # topics that are there
        self._refused_since: dict[str, float] = {}  # topics that are missing or forbidden
        settings = settings_for(
            at,
            self.transactional_id,
            transaction_ms=TRANSACTION_MS,
            more={"partitioner": "murmur2_random"},  # keys where the Java client puts them
        )
        self._writer = FencedWriter(settings, PATIENCE, never_taken=OF_THE_RECORD)
        self._positions_partition = -1

    def open(self, stopping: Callable[[], bool] = lambda: False) -> Position | None:
        """Fence the writer before, then read where it came to. Raises ClientError."""

        def read() -> Position | None:
            count = self._writer.calls.wait_for_topic(self._at, positions.TOPIC)
            self._positions_partition = positions.partition_of(self._key, count)
            return self._position(stopping)

        return self._writer.open(read, stopping)

    def _position(self, stopping: Callable[[], bool]) -> Position | None:
        """Waits for transactions of other shards; ends a hanging one of this shard."""
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

    def send(self, records: Sequence[OutboxRecord], position: Position) -> Outcome | TopicsRefuse:
        """Writes one transaction."""
        refuse = self._missing_topics(records)
        if refuse is not None:
            return refuse
        mark = RecordMark(
            positions.TOPIC, self._positions_partition, self._key, positions.written(position)
        )
        outcome = self._writer.write(lambda calls: calls.send_all(records), mark)
        if isinstance(outcome, Committed):
            if outcome.commit_s > SLOW_COMMIT_S:
                outcome.is_spent = True
                outcome.why = (
                    f"a commit took {outcome.commit_s:.0f} s, so the shard is taken over again"
                )
            return outcome
        self._known.clear()
        return self._explained(outcome)

    def close(self) -> None:
        """Closes without a request to the cluster: no transaction is open, or it is lost."""
        self._writer.close()

    def _missing_topics(self, records: Sequence[OutboxRecord]) -> TopicsRefuse | None:
        """librdkafka would wait half a minute for a topic that is not there. All that are missing
        are noted, or each of them would be waited for after the others."""
        missing = {}
        for topic in sorted({record.topic for record in records} - self._known):
            try:
                self._require_topic(topic)
            except ClientError as failure:
                if not isinstance(failure, NoSuchTopic) and failure.code != NOT_AUTHORIZED:
                    return TopicsRefuse(str(failure), {})
                self._refused_since.setdefault(topic, monotonic())
                missing[topic] = str(failure)
                continue
            self._refused_since.pop(topic, None)
            self._known.add(topic)
        if not missing:
            return None
        latest = monotonic() - REFUSED_TOPIC_S
        for_long = {
            each: why for each, why in missing.items() if self._refused_since[each] <= latest
        }
        return TopicsRefuse(next(iter((for_long or missing).values())), for_long)

    def _require_topic(self, topic: str) -> None:
        """Raises ClientError if it is not there, or may not be written to."""
        patience_s = 0.0 if topic in self._refused_since else NEW_TOPIC_S
        self._writer.calls.wait_for_topic(self._at, topic, unknown_s=patience_s)
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

    def _explained(self, outcome: NothingWritten | RecordsRefused | Unknown) -> Outcome:
        """Turns a failure into words for users; `is_spent` also if another writer must read the
        position first."""
        bootstrap = self._at.bootstrap
        if is_forbidden(outcome):
            outcome.is_spent = True
            outcome.why = str(outcome.fault.explained(bootstrap))
        elif isinstance(outcome, NothingWritten) and not outcome.is_spent and outcome.refusals:
            first = outcome.refusals[0]
            if isinstance(outcome, RecordsRefused):
                first = outcome.records[0]
            for each in outcome.refusals:
                if each.topic == positions.TOPIC:  # a row is never the cause of that
                    outcome.is_spent, first = True, each
                    break
            outcome.why = str(first.fault.delivery_explained(bootstrap, first.topic))
        return outcome


def is_forbidden(outcome: Outcome) -> bool:
    """A topic may not be written to. The cluster does not tell which one: the next sender must
    look."""
    return not isinstance(outcome, Committed) and outcome.fault.code == NOT_AUTHORIZED
