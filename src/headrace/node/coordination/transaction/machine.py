"""All transactional ids of one partition of `__transaction_state`: the machine behind a shard.

The rules for each state of a transaction, in Apache Kafka's order of checks and with its codes.
Refusals are raised. Two generations of clients are distinguished by the version of their request:
older ones end a transaction and keep their epoch; those of KIP-890 get a new epoch with each end,
so that a late message of an old transaction is refused wherever it arrives, and an end that is sent
again can be distinguished from the next one. The broker writes the markers: `prepared` names the
transactions that wait for them, `complete` is called when all are written. Producer ids come from
outside: `wants_producer_id` returns whether a request needs one, and `fresh_id` returns one for
decisions by time (None: there is none now). Not done: two-phase commit (KIP-939).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from headrace.environment import Now
from headrace.node.coordination.deadlines import Deadlines
from headrace.node.coordination.records import Record
from headrace.node.coordination.shard import Decision
from headrace.node.coordination.transaction import transaction as steps
from headrace.node.coordination.transaction.states import AT_REST, PREPARED, TransactionState
from headrace.node.coordination.transaction.transaction import (
    CODEC,
    EXHAUSTED_EPOCH,
    LAST_EPOCH,
    NO_EPOCH,
    NO_ID,
    Partition,
    Transaction,
)
from headrace.wire.protocol.errors import ErrorCode, KafkaError, MalformedMessage

log = logging.getLogger(__name__)

# A log that refuses appends (a full disk) is not retried ten times a second.
AGAIN_AFTER_REFUSAL_MS = 1_000


@dataclass(slots=True)
class TransactionSettings:
    """The broker's present settings and features."""

    expiration_ms: int  # of an id that is not used
    abort_interval_ms: int  # the interval between two searches for transactions that have timed out
    expiration_interval_ms: int
    server_version: int  # the finalized transaction.version


class Producer(NamedTuple):
    """The identity that a producer sends, or that it gets."""

    id: int
    epoch: int


# Decisions by time are made in parts of so many partitions or ids; then other work has a turn.
PARTITIONS_AT_ONCE = 1_000
SOON_MS = 1
NOT_SEEN = -2, 0  # -1 is the start of a transaction that was not begun


class TransactionMachine:
    codec = CODEC

    def __init__(
        self,
        settings: Callable[[], TransactionSettings],
        fresh_id: Callable[[], int | None],
    ) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.prepared: dict[str, None] = {}  # ids whose markers are to be written
        self._ongoing: dict[str, None] = {}
        # For each: when it began by the wall clock, and when it was first seen (monotonic).
        self._seen: dict[str, tuple[int, int]] = {}
        self.deadlines = Deadlines()  # always empty: `due` searches at intervals
        self._settings = settings
        self._fresh_id = fresh_id
        self._next_abort_ms: int | None = None  # monotonic
        self._next_expiry_ms: int | None = None

    # --- called by the shard

    @property
    def next_due_ms(self) -> int | None:
        if self._next_abort_ms is None or self._next_expiry_ms is None:
            return None
        if self._ongoing:
            return min(self._next_abort_ms, self._next_expiry_ms)
        return self._next_expiry_ms if self.transactions else None

    def replay(self, record: Record) -> None:
        transactional_id: str = record.key.transactional_id
        self.transactions.pop(transactional_id, None)
        self.prepared.pop(transactional_id, None)
        self._ongoing.pop(transactional_id, None)
        if record.value is None:
            return
        try:
            found = steps.from_value(transactional_id, record.value)
        except MalformedMessage as malformed:
            log.error("transactional id %s cannot be read: %s", transactional_id, malformed)
            return
        self.transactions[transactional_id] = found
        if found.state in PREPARED:
            self.prepared[transactional_id] = None
        elif found.state is TransactionState.ONGOING:
            self._ongoing[transactional_id] = None

    def replay_pending(self, producer_id: int, record: Record) -> None:
        """Does nothing: no producer writes here in a transaction of its own."""

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Does nothing: see `replay_pending`."""

    def loaded(self, now: Now) -> None:
        settings = self._settings()
        self._next_abort_ms = now.monotonic_ms + settings.abort_interval_ms
        self._next_expiry_ms = now.monotonic_ms + settings.expiration_interval_ms

    def abandon(self) -> None:
        """Does nothing: no request waits here."""

    def dismantle(self) -> Iterator[None]:
        while self.transactions:
            self.transactions.popitem()
            yield

    def due(self, now: Now) -> Decision:
        assert self._next_abort_ms is not None
        if self._ongoing and self._next_abort_ms <= now.monotonic_ms:
            return self._abort_forgotten(now)
        return self._expire(now)

    # --- by time

    def _abort_forgotten(self, now: Now) -> Decision:
        settings = self._settings()
        self._see_ongoing(now)
        late: list[Transaction] = []
        partitions = 0
        for found in self._ongoing:
            if self._is_late(self.transactions[found], now):
                aborted = self._aborted(self.transactions[found], now)
                if aborted is not None:
                    late.append(aborted)
                    partitions += 1 + len(aborted.partitions)
                    if partitions >= PARTITIONS_AT_ONCE:
                        break
        is_rest_left = partitions >= PARTITIONS_AT_ONCE

        def looked() -> None:
            pause_ms = SOON_MS if is_rest_left else settings.abort_interval_ms
            self._next_abort_ms = now.monotonic_ms + pause_ms
            for aborted in late:
                self._remember_last_epoch(aborted)

        def refused(_: KafkaError) -> None:
            self._next_abort_ms = now.monotonic_ms + AGAIN_AFTER_REFUSAL_MS

        records = [self._record(aborted) for aborted in late]
        return Decision(records, None, looked, otherwise=refused)

    def _aborted(self, found: Transaction, now: Now) -> Transaction | None:
        """Returns None if it would need another producer id, and there is none now."""
        version = self._settings().server_version
        next_id: int | None = NO_ID
        if version >= steps.BUMPS_EPOCH and found.epoch_is_exhausted:
            next_id = self._fresh_id()
        if next_id is None:
            return None
        return steps.fenced(
            found, client_version=version, next_producer_id=next_id, wall_ms=now.wall_ms
        )

    def _see_ongoing(self, now: Now) -> None:
        seen, self._seen = self._seen, {}
        for each in self._ongoing:
            started_ms = self.transactions[each].started_ms
            before = seen.get(each, NOT_SEEN)
            is_same = before[0] == started_ms
            self._seen[each] = before if is_same else (started_ms, now.monotonic_ms)

    def _is_late(self, found: Transaction, now: Now) -> bool:
        """Returns whether it has timed out by the wall clock, as in Apache Kafka; or since this
        coordinator first saw it, since the wall clock may be far behind that of the former
        coordinator, or was set back."""
        waited_ms = now.monotonic_ms - self._seen[found.id][1]
        return found.started_ms + found.timeout_ms < now.wall_ms or found.timeout_ms < waited_ms

    def _expire(self, now: Now) -> Decision:
        settings = self._settings()
        before_ms = now.wall_ms - settings.expiration_ms
        old = (
            found.id
            for found in self.transactions.values()
            if found.state in AT_REST and found.updated_ms <= before_ms
        )
        expired = [steps.forgotten(found) for found in islice(old, PARTITIONS_AT_ONCE)]
        is_rest_left = len(expired) >= PARTITIONS_AT_ONCE

        def looked() -> None:
            pause_ms = SOON_MS if is_rest_left else settings.expiration_interval_ms
            self._next_expiry_ms = now.monotonic_ms + pause_ms

        def refused(_: KafkaError) -> None:
            self._next_expiry_ms = now.monotonic_ms + AGAIN_AFTER_REFUSAL_MS

        return Decision(expired, None, looked, otherwise=refused)

    # --- a producer begins

    def wants_producer_id(self, transactional_id: str, *, if_unknown: bool) -> bool:
        """Returns whether the next request of this id may need a new producer id.

        `if_unknown`: also if the id is not known, since the request would create it.
        """
        found = self.transactions.get(transactional_id)
        return if_unknown if found is None else found.epoch_is_exhausted

    def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None,
        fresh_id: int,
        now: Now,
    ) -> Decision:
        """The answer is a Producer. The former producer of this id is fenced, and its open
        transaction is aborted."""
        found = self.transactions.get(transactional_id) or steps.unused(transactional_id, fresh_id)
        _require_no_end_under_way(found)
        if expected is not None and not _is_known(found, expected):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if found.state is TransactionState.ONGOING:
            version = self._settings().server_version
            rotates = version >= steps.BUMPS_EPOCH and found.epoch_is_exhausted
            aborted = steps.fenced(
                found,
                client_version=version,
                next_producer_id=fresh_id if rotates else NO_ID,
                wall_ms=now.wall_ms,
            )
            # The client retries when the markers are written, and gets another epoch then.
            return self._kept(aborted, ErrorCode.CONCURRENT_TRANSACTIONS)
        after = _taken_over(found, timeout_ms, expected, fresh_id, now.wall_ms)
        return self._kept(after, Producer(after.producer_id, after.epoch))

    # --- partitions

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        added: frozenset[Partition],
        client_version: int,
        now: Now,
    ) -> Decision:
        known = self.transactions.get(transactional_id)
        if known is not None:
            _require_no_end_under_way(known)
        found = self._of(transactional_id, producer)
        if found.state is TransactionState.ONGOING and added <= found.partitions:
            return Decision(response=ErrorCode.NONE)
        after = steps.with_partitions(
            found, added, client_version=client_version, wall_ms=now.wall_ms
        )
        return self._kept(after, ErrorCode.NONE)

    def verify(
        self, transactional_id: str, producer: Producer, wanted: frozenset[Partition]
    ) -> Decision:
        """The answer has a code for each partition: whether it is in the open transaction."""
        found = self._of(transactional_id, producer)
        if found.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return Decision(
            response={
                partition: ErrorCode.NONE
                if partition in found.partitions
                else ErrorCode.TRANSACTION_ABORTABLE
                for partition in wanted
            }
        )

    def look_at(self, transactional_id: str) -> Decision:
        """The answer is the present Transaction."""
        found = self.transactions.get(transactional_id)
        if found is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return Decision(response=found)

    # --- the end

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        commit: bool,
        client_version: int,
        fresh_id: int,
        now: Now,
    ) -> Decision:
        """The answer is the Producer with which the client continues."""
        found = self.transactions.get(transactional_id)
        if found is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if client_version >= steps.BUMPS_EPOCH:
            proceed = _may_end_and_bump(found, producer, commit)
        else:
            proceed = _may_end(found, producer, commit)
        if not proceed:
            return Decision(response=Producer(found.producer_id, found.epoch))
        rotates = client_version >= steps.BUMPS_EPOCH and found.epoch_is_exhausted
        after = steps.prepared(
            found,
            commit=commit,
            client_version=client_version,
            next_producer_id=fresh_id if rotates else NO_ID,
            wall_ms=now.wall_ms,
        )
        goes_on_as = Producer(after.producer_id, after.epoch)
        return self._kept(after, Producer(fresh_id, 0) if rotates else goes_on_as)

    def complete(self, transactional_id: str, epoch: int, now: Now) -> Decision:
        """All markers of the transaction that was prepared with this epoch are written."""
        found = self.transactions.get(transactional_id)
        if found is None or found.state not in PREPARED or found.epoch != epoch:
            return Decision()
        return self._kept(steps.completed(found, wall_ms=now.wall_ms), None)

    # --- internal steps

    def _of(self, transactional_id: str, producer: Producer) -> Transaction:
        found = self.transactions.get(transactional_id)
        if found is None or found.producer_id != producer.id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if found.epoch != producer.epoch or found.epoch == LAST_EPOCH:  # a producer never gets it
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return found

    def _kept(self, after: Transaction, response: object) -> Decision:
        return Decision([self._record(after)], response, lambda: self._remember_last_epoch(after))

    def _record(self, after: Transaction) -> Record:
        return steps.to_record(
            after, int(self._settings().server_version >= steps.FLEXIBLE_RECORDS)
        )

    def _remember_last_epoch(self, after: Transaction) -> None:
        kept = self.transactions.get(after.id)
        if kept is not None:
            kept.last_epoch = after.last_epoch


# --- checks of producers


def _require_no_end_under_way(found: Transaction) -> None:
    """Checked before the producer: it may have got the identity that begins when the markers are
    written, and use it already."""
    if found.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)


def _is_known(found: Transaction, expected: Producer) -> bool:
    """Returns whether the producer is the last one, or has lost the answer that rotated its
    exhausted id (KIP-360). With a new id any producer is accepted: the old id was deleted."""
    return (
        found.epoch == NO_EPOCH
        or expected.id == found.producer_id
        or (expected.id == found.previous_producer_id and expected.epoch >= EXHAUSTED_EPOCH)
    )


def _taken_over(
    found: Transaction, timeout_ms: int, expected: Producer | None, fresh_id: int, wall_ms: int
) -> Transaction:
    """Returns the idle id, with the epoch for the producer that asks for it now."""
    producer_id, epoch, last_epoch = found.producer_id, found.epoch + 1, NO_EPOCH
    if found.epoch_is_exhausted and (expected is None or expected.epoch == found.epoch):
        producer_id, epoch = fresh_id, 0
        last_epoch = NO_EPOCH if expected is None else found.epoch
    elif expected is not None:
        if found.epoch in (NO_EPOCH, expected.epoch):
            last_epoch = found.epoch
        elif expected.epoch == found.last_epoch:
            epoch, last_epoch = found.epoch, found.last_epoch  # asked again: the same answer
        else:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return steps.with_producer(
        found,
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        wall_ms=wall_ms,
    )


def _may_end(found: Transaction, producer: Producer, commit: bool) -> bool:
    """For clients before KIP-890. Returns False if the transaction has ended in the same way
    already."""
    if found.producer_id != producer.id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if found.epoch != producer.epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    _require_no_end_under_way(found)
    if found.state is TransactionState.ONGOING:
        return True
    if found.state is (
        TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    ):
        return False
    raise KafkaError(ErrorCode.INVALID_TXN_STATE)


def _may_end_and_bump(found: Transaction, producer: Producer, commit: bool) -> bool:
    """For clients of KIP-890. Returns False if this is the same end again, because its answer was
    lost."""
    _require_no_end_under_way(found)
    rotated = (
        found.previous_producer_id == producer.id
        and producer.epoch == EXHAUSTED_EPOCH
        and found.epoch == 0
    )
    again = rotated or found.epoch == producer.epoch + 1
    if found.producer_id != producer.id and not rotated:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    current = producer.epoch == found.epoch
    if found.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        in_time = again or current
    else:
        in_time = current
    if not in_time:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if found.state is TransactionState.ONGOING:
        return True
    if found.state in AT_REST and not commit and not again:
        return True  # nothing was written, but the new epoch fences late messages
    if (
        found.state
        is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
        and again
    ):
        # The coordinator aborted it with the last epoch but one: no producer ever gets the last
        # one, in which no marker could end a transaction. Ended once more, it gets another id.
        return found.epoch == LAST_EPOCH and not commit
    raise KafkaError(ErrorCode.INVALID_TXN_STATE)
