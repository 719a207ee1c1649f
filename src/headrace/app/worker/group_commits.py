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

from headrace.app.attempts.sender import LARGEST_MESSAGE
from headrace.app.dispatch.effects import Move
from headrace.app.dispatch.owned_partition import Offsets, OwnedPartition
from headrace.client.connection import ClientSettings, program_settings
from headrace.client.errors import ClientError, Misuse
from headrace.client.faults import NOT_OURS, Fault, NotSendable, codes
from headrace.client.intake import GroupOffset, Intake
from headrace.client.producer.no_loss import defaults_for
from headrace.client.records import Outgoing
from headrace.client.transaction_writer import ANY_PARTITION, TransactionWriter

log = logging.getLogger("headrace.app")

# A dead worker's open transaction hides what follows it for so long at most.
TRANSACTION_TIMEOUT_MS = 10_000
CALL_S = 10.0
COMMIT_TRIES = 3
# Errors of one record that no transaction will ever take.
NEVER_TAKEN = codes("INVALID_RECORD", "MSG_SIZE_TOO_LARGE", "TOPIC_EXCEPTION", "_UNKNOWN_PARTITION")


class NotOurs(Exception):
    """The group has given partitions to another; what was to be committed is not."""


class OutcomeUnknown(Exception):
    """A transaction was to be committed, and nobody said whether it is."""


class GroupCommits:
    def __init__(self, member: Intake, connection: ClientSettings) -> None:
        self._member = member
        self._connection = connection
        self._writer: TransactionWriter | None = None
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
                refused = self._member.commit(offsets)
            else:  # the intake is told of failures
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

    def still_ours(self, owned: Iterable[OwnedPartition]) -> bool | None:
        """Ask the group, by a commit that repeats what is committed or says what is new. None: it
        is being rebalanced and does not say; ask again.
        """
        asked = [one for one in owned if not one.moving and not one.gone]
        offsets = _as_sent([said for one in asked for said in one.runner.offsets(one)])
        return self._member.holds(offsets) if offsets else True

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
        except Fault:
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

        Raises NotOurs, or Fault when the cluster does not let us; nothing is written then.
        Raises OutcomeUnknown if nobody says whether it is. `refused` gets the records that no
        transaction will ever take, by number.
        """
        never_taken = {} if refused is None else refused
        writer = self._ready_writer()
        try:
            writer.begin()
            for number, record in enumerate(records):
                self._send(writer, number, record, written, never_taken)
                if self._one_by_one:
                    writer.flush(CALL_S)
            found = [said for one in owned for said in one.runner.offsets(one)]
            writer.send_offsets(_as_sent(found), self._member.group_member(), CALL_S)
            self._commit_transaction(writer)
        except Fault as fault:
            self._give_up(writer, fault)
            if fault.code in NOT_OURS:
                raise NotOurs(str(fault)) from fault
            raise
        for stream, said in found:
            stream.committed = said

    def _commit_transaction(self, writer: TransactionWriter) -> None:
        """A commit whose time ran out is under way: librdkafka goes on with it when asked again."""
        why = ""
        for _ in range(COMMIT_TRIES):
            try:
                return writer.commit(CALL_S)
            except Fault as fault:
                if fault.must_abort:
                    raise
                why = str(fault)
                if not fault.may_call_again:
                    break
        self._writer = None
        raise OutcomeUnknown(why)

    def _send(
        self,
        writer: TransactionWriter,
        number: int,
        record: Outgoing[Any, Any],
        written: Callable[[int, int], None] | None,
        refused: dict[int, ClientError],
    ) -> None:
        def ended(fault: Fault | None, offset: int) -> None:
            if fault is not None:
                refuse(fault)
            elif written is not None:
                written(number, offset)

        def refuse(fault: Fault) -> None:
            if fault.code in NEVER_TAKEN:
                at = self._connection.bootstrap
                refused[number] = fault.delivery_explained(at, record.topic)

        partition = ANY_PARTITION if record.partition is None else record.partition
        headers = record.headers or None
        try:
            writer.send_reported(record.topic, partition, record.key, record.value, headers, ended)
        except Fault as fault:
            if isinstance(fault, NotSendable):
                refused[number] = Misuse(f"This cannot be sent to {record.topic}: {fault}.")
            else:
                refuse(fault)
            raise

    def _ready_writer(self) -> TransactionWriter:
        if self._writer is None:
            at = self._connection
            name = f"headrace-app-{uuid.uuid4().hex}"
            chosen = defaults_for(at.settings, name)
            chosen["transaction.timeout.ms"] = TRANSACTION_TIMEOUT_MS
            chosen["partitioner"] = "murmur2_random"
            chosen["message.max.bytes"] = LARGEST_MESSAGE
            writer = TransactionWriter(program_settings(at, chosen))
            writer.take_over(CALL_S)
            self._writer = writer
        return self._writer

    def _give_up(self, writer: TransactionWriter, fault: Fault) -> None:
        """Abort; a producer that cannot is thrown away, and its transaction ends by time."""
        if not fault.is_fatal:
            try:
                writer.abort(CALL_S)
                return
            except Fault as worse:
                log.warning("a transaction could not be aborted: %s", worse)
        self._writer = None

    def close(self) -> None:
        self._writer = None


def _refused(fault: Fault) -> None:
    """By the group: said to the caller. By anything else: the next commit says it again."""
    if fault.code in NOT_OURS:
        raise NotOurs(str(fault))
    log.warning("offsets were not committed and will be again: %s", fault)


def _as_sent(found: Offsets) -> list[GroupOffset]:
    return [GroupOffset(stream.place, position, metadata) for stream, (position, metadata) in found]
