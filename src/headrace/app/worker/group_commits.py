"""The commits of a worker: its offsets, and the records that moved to a retry topic.

Offsets of a source partition and of its retry partition are committed in one request: a key that
was unblocked by the one may have gone on in the other. Moves are written in a transaction that
commits the offsets of the records that they replace (KIP-447): a worker that has lost its
partitions cannot move anything. All calls come from the polling thread, because otherwise
librdkafka's call for group metadata does not return.

One commit at a time. librdkafka sends a commit that was refused with a temporary error (the
coordinator has moved, its disk is full) again after a while, and does not hold back later commits:
the older commit may arrive last, and the last one counts, without any error. So while one is
unanswered no other is sent, and no transaction is begun. Only when the group revokes partitions,
where waiting is not possible, a second one may follow; if the first arrives after it, records are
handled again, and none is lost.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from typing import Any

from headrace.app.attempts.sender import LARGEST_MESSAGE
from headrace.app.dispatch.effects import Move
from headrace.app.dispatch.owned_partition import Offsets
from headrace.app.worker.subscription_runner import HandledPartition
from headrace.client.connection import ClientSettings, program_settings
from headrace.client.errors import ClientError, Misuse
from headrace.client.faults import NOT_OURS, Fault, NotSendable, codes
from headrace.client.intake import GroupOffset, Intake
from headrace.client.once.marks import GroupMark
from headrace.client.once.outcome import Committed, NothingWritten, Outcome
from headrace.client.once.writer import FencedWriter, Patience
from headrace.client.producer.no_loss import defaults_for
from headrace.client.records import Outgoing
from headrace.client.transaction_writer import ANY_PARTITION, TransactionWriter

log = logging.getLogger("headrace.app")

# How long a dead worker's open transaction hides later records at most.
TRANSACTION_TIMEOUT_MS = 10_000
# A commit whose time ran out is under way: librdkafka continues it at the next call.
PATIENCE = Patience(call_s=10.0, commit_s=25.0, other_s=0.0)
# Errors of one record that the cluster will never accept.
NEVER_TAKEN = codes("INVALID_RECORD", "MSG_SIZE_TOO_LARGE", "TOPIC_EXCEPTION", "_UNKNOWN_PARTITION")


class NotOurs(Exception):
    """The group has given partitions to another member; their offsets were not committed."""


class GroupCommits:
    def __init__(self, member: Intake, connection: ClientSettings) -> None:
        self._member = member
        self._connection = connection
        self._writer: FencedWriter | None = None
        self._one_by_one = False  # until a transaction commits, each record has its own batch
        self.unanswered = 0  # commits not waited for; the callback of each counts it down

    # ---- offsets

    def commit(self, owned: Iterable[HandledPartition], *, wait: bool) -> None:
        """Commit what has changed, unless the commit before is unanswered. With `wait` commit
        anyway, and include what was sent and not answered. Raises NotOurs if the group refuses this
        member, which only happens with `wait`.
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
                refused = self._member.commit(offsets)
            else:  # failures come to the intake
                self._member.commit_unawaited(offsets)
                self.unanswered += 1
                refused = {}
        except Fault as fault:
            _refused(fault)
            return
        for stream, said in found:
            if stream.place not in refused:
                stream.committed = said
        for refusal in refused.values():
            _refused(refusal)

    def still_ours(self, owned: Iterable[HandledPartition]) -> bool | None:
        """Ask the group, by a commit that repeats committed offsets or has new ones. None: the
        answer is open during a rebalance; ask again.
        """
        asked = [one for one in owned if not one.moving and not one.gone]
        offsets = _as_sent([said for one in asked for said in one.runner.offsets(one)])
        return self._member.holds(offsets) if offsets else True

    # ---- transactions

    def transact(self, owned: list[HandledPartition]) -> Outcome | None:
        """Write the moves of these partitions and commit their offsets, all or nothing. Returns
        None, and does nothing yet, while a commit is unanswered: it could set the offsets back.

        May be called again with the same partitions after any outcome but Unknown. Raises Fault if
        no writer can be made.
        """
        if self.unanswered:
            return None
        records: list[Outgoing[Any, Any]] = []
        moves: list[tuple[HandledPartition, Move]] = []  # by the number of the record
        copies: list[tuple[HandledPartition, Move, int]] = []  # with the number of the record
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
        outcome = self._write(records, owned, offsets, refused)
        if isinstance(outcome, Committed):
            self._one_by_one = False
            for one in owned:
                written = [(move, offsets[number]) for of, move, number in copies if of is one]
                one.runner.transaction_committed(one, written)
        elif isinstance(outcome, NothingWritten) and outcome.fault.code not in NOT_OURS:
            self._blame(moves, refused)
        return outcome

    def _blame(
        self, moves: list[tuple[HandledPartition, Move]], refused: dict[int, ClientError]
    ) -> None:
        """A broker refuses a whole batch for one of its records: single batches then show which."""
        if len(refused) > 1 and not self._one_by_one:
            self._one_by_one = True
            return
        for number, error in refused.items():
            of, move = moves[number]
            if move.results is not None:
                of.runner.results_refused(move, error)

    def _write(
        self,
        records: list[Outgoing[Any, Any]],
        owned: list[HandledPartition],
        offsets: dict[int, int],
        refused: dict[int, ClientError],
    ) -> Outcome:
        """Run one transaction: these records, and the present offsets of these partitions.

        `offsets` gets the offsets of the records, `refused` the records that the cluster will never
        accept, by number.
        """
        found: Offsets = []

        def send(calls: TransactionWriter) -> None:
            for number, record in enumerate(records):
                self._send(calls, number, record, offsets, refused)
                if self._one_by_one:
                    calls.flush(PATIENCE.call_s)

        def progress() -> list[GroupOffset]:
            found.extend(said for one in owned for said in one.runner.offsets(one))
            return _as_sent(found)

        outcome = self._ready_writer().write(send, GroupMark(progress, self._member.group_member))
        if outcome.is_spent:
            if isinstance(outcome, NothingWritten):
                log.warning("a transaction is left to its time limit: %s", outcome.why)
            self.close()
        if isinstance(outcome, Committed):
            for stream, said in found:
                stream.committed = said
        return outcome

    def _send(
        self,
        calls: TransactionWriter,
        number: int,
        record: Outgoing[Any, Any],
        offsets: dict[int, int],
        refused: dict[int, ClientError],
    ) -> None:
        def ended(fault: Fault | None, offset: int) -> None:
            if fault is None:
                offsets[number] = offset
            else:
                refuse(fault)

        def refuse(fault: Fault) -> None:
            if fault.code in NEVER_TAKEN:
                at = self._connection.bootstrap
                refused[number] = fault.delivery_explained(at, record.topic)

        partition = ANY_PARTITION if record.partition is None else record.partition
        headers = record.headers or None
        try:
            calls.send_reported(record.topic, partition, record.key, record.value, headers, ended)
        except Fault as fault:
            if isinstance(fault, NotSendable):
                refused[number] = Misuse(f"This cannot be sent to {record.topic}: {fault}.")
            else:
                refuse(fault)
            raise

    def _ready_writer(self) -> FencedWriter:
        """The writer. Its id is new, so opening it fences no other: the group's generation
        fences."""
        if self._writer is None:
            at = self._connection
            name = f"headrace-app-{uuid.uuid4().hex}"
            chosen = defaults_for(at.settings, name)
            chosen["transaction.timeout.ms"] = TRANSACTION_TIMEOUT_MS
            chosen["partitioner"] = "murmur2_random"
            chosen["message.max.bytes"] = LARGEST_MESSAGE
            writer = FencedWriter(program_settings(at, chosen), PATIENCE)
            try:
                writer.open(lambda: None, stopping=lambda: True)  # do not block this thread
            except Fault:
                writer.close()
                raise
            self._writer = writer
        return self._writer

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _refused(fault: Fault) -> None:
    """Raise a refusal by the group. After any other error the next commit repeats the offsets."""
    if fault.code in NOT_OURS:
        raise NotOurs(str(fault))
    log.warning("offsets were not committed and will be again: %s", fault)


def _as_sent(found: Offsets) -> list[GroupOffset]:
    return [GroupOffset(stream.place, position, metadata) for stream, (position, metadata) in found]
