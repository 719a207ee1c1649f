"""One partition as one share group sees it (KIP-932): the holder and delivery count of each record.

A window over the log goes from the start offset (everything before is done) to the end (nothing
after it was acquired yet). In it each record is available, acquired by a member until its lock
expires, acknowledged, or archived; and with dead letters it is archiving first. The rules:

- A record has at most one holder. Only the holder may acknowledge it, and only before its lock
  expires.
- A record that was released or whose lock expired is available again, until it was handed out
  `ShareLimits.deliveries` times; then it is archived. A member that leaves gives its records back
  as if they had not been handed out.
- With `ShareLimits.backoff_ms` it waits first, longer after each delivery; other records do not
  wait for it. Waits are not stored: the next leader hands such a record out at once.
- The start offset moves over acknowledged and archived records only.
- An acknowledgement counts when its `StateUpdate` is written: until `written` is called its records
  stay with the member, and no other gets them. Lock expiry counts at once; its update is written
  so that a new leader knows the delivery counts.
- With `ShareLimits.keeps_letters` a record that is rejected or used up its deliveries is archiving
  until the caller has stored its dead letter (`letters_due`, `letters_stored`). The letter must not
  be written before that state is: a new leader could deliver the record again, and one record would
  be both accepted and a dead letter.
- Offsets that have no record (compacted, control records, aborted transactions) are archived when a
  read passes them.

Pure: the caller reads the log, writes the updates in their order, and calls `expire` when
`next_expiry_ms` is reached. A change takes time in the number of runs: an acknowledgement 0.8 ms of
processor time where 2,000 records alternate between two states, the worst case (2026-11-18).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from heapq import heappop, heappush
from itertools import groupby
from typing import NamedTuple

from headrace.node.coordination.share.runs import (
    NEVER_MS,
    NO_MEMBER,
    DeliveryRun,
    DeliveryState,
    DeliveryWindow,
)
from headrace.wire.protocol.errors import ErrorCode, KafkaError

AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
ACKNOWLEDGED = DeliveryState.ACKNOWLEDGED
ARCHIVING, ARCHIVED = DeliveryState.ARCHIVING, DeliveryState.ARCHIVED

# Instead of a start offset: the stored state has a later one, or will have.
UNCHANGED = -1


class AcknowledgeType(IntEnum):
    """The numbers are those of the requests."""

    GAP = 0  # the member found no record at this offset
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4  # the lock is to last longer


@dataclass(slots=True)
class ShareLimits:
    lock_ms: int = 30_000
    deliveries: int = 5  # deliveries of a record before it is archived
    in_flight: int = 2_000  # records of the window that are not acknowledged or archived
    backoff_ms: int = 0  # wait after the first delivery, doubled with each further one; 0: none
    backoff_max_ms: int = 60_000
    keeps_letters: bool = False  # a record is archived when its dead letter is stored

    @property
    def careful_from(self) -> int:
        """Records with many deliveries may be what makes members fail, so they come in small
        portions (Kafka 4.3: from half of the limit, rounded up, at least 2)."""
        return max(2, (self.deliveries + 1) // 2)

    def backoff_after(self, deliveries: int, offset: int) -> int:
        """Returns the wait of records that begin at `offset`: up to a fifth shorter than the
        setting says, so that records that failed together come back spread out."""
        most = min(self.backoff_ms << max(deliveries - 1, 0), self.backoff_max_ms)
        return most - most * _spread(offset) // (5 * _SPREAD)


# Fibonacci hashing: consecutive offsets, spread evenly. The machine has no source of chance.
_SPREAD = 1 << 16


def _spread(offset: int) -> int:
    return (offset * 2_654_435_761 & 0xFFFF_FFFF) >> 16


class LogBatch(NamedTuple):
    """A batch of records in the log; both offsets inclusive."""

    first: int
    last: int


class AcquiredRange(NamedTuple):
    first: int
    last: int
    deliveries: int


class LetterDue(NamedTuple):
    """Records to be written as dead letters; both offsets inclusive."""

    first: int
    last: int
    deliveries: int


class Acknowledgement(NamedTuple):
    """`types` has one element for all offsets, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class StateBatch(NamedTuple):
    first: int
    last: int
    state: DeliveryState
    deliveries: int


@dataclass(slots=True)
class StateUpdate:
    """An update to write; the caller reports the outcome by `written`."""

    batches: list[StateBatch]
    start_offset: int
    finished: int  # acknowledged and archived records from the start offset on
    waits: bool  # its records stay as they are until it is written


class SharePartition:
    __slots__ = ("limits", "_window", "_deadlines", "_writes")

    def __init__(
        self, start_offset: int, limits: ShareLimits, batches: Iterable[StateBatch] = ()
    ) -> None:
        """`batches` are the stored state, in order. Offsets between them are available: an earlier
        leader handed them out, or they have no records."""
        self.limits = limits  # the owner replaces it when settings change
        self._window = DeliveryWindow(start_offset)
        # The ends of locks and waits: a heap; may have those of locks that were released.
        self._deadlines: list[int] = []
        self._writes = 0  # updates that wait to be written
        for batch in batches:
            if batch.last < self._window.end:
                continue
            first = max(batch.first, self._window.end)
            self._extend(first - 1)
            self._window.append(DeliveryRun(first, batch.last, batch.state, batch.deliveries))
        self._tidy()

    # --- the window

    @property
    def start_offset(self) -> int:
        return self._window.start

    @property
    def end_offset(self) -> int:
        """Returns the first offset that was never acquired."""
        return self._window.end

    @property
    def next_fetch_offset(self) -> int:
        """Returns the offset from which to read for the next `acquire`."""
        return next(
            (run.first for run in self._window.runs if run.can_be_acquired), self.end_offset
        )

    @property
    def in_flight(self) -> int:
        return sum(run.size for run in self._window.runs if not run.state.is_final)

    @property
    def has_room(self) -> bool:
        """Returns whether `acquire` could find something; if not, a fetch waits."""
        return self.next_fetch_offset < self.end_offset or self.in_flight < self.limits.in_flight

    @property
    def next_expiry_ms(self) -> int | None:
        """Returns a time before which no lock expires and no wait ends; None: there are none."""
        return self._deadlines[0] if self._deadlines else None

    @property
    def waiting(self) -> int:
        """Returns how many records are not available before their wait is over."""
        return sum(
            run.size for run in self._window.runs if run.waits_until_ms and run.state is AVAILABLE
        )

    @property
    def is_archiving(self) -> bool:
        """Returns whether records are given up and not archived yet, or will be."""
        return any(ARCHIVING in (run.state, run.becomes) for run in self._window.runs)

    @property
    def letters_due(self) -> list[LetterDue]:
        """Returns the records whose dead letters are to be written: that they are given up is
        stored."""
        return [
            LetterDue(run.first, run.last, run.deliveries)
            for run in self._window.runs
            if run.state is ARCHIVING and run.becomes is None
        ]

    def runs(self) -> list[DeliveryRun]:
        """The runs; read them, do not change them."""
        return self._window.runs

    # --- handing out

    def acquire(
        self,
        member: str,
        batches: Sequence[LogBatch],
        read_to: int,
        most_records: int,
        now_ms: int,
        *,
        exactly: bool = False,
    ) -> list[AcquiredRange]:
        """Acquire records for a member; `batches` were read from `next_fetch_offset` up to and
        including `read_to`, without those that the group must not see. Whole batches, so there may
        be more than `most_records`, unless `exactly`."""
        found: list[AcquiredRange] = []
        count = 0
        position = self.next_fetch_offset
        for first, last in batches:
            first = max(first, position)
            if last < first:
                continue
            self._archive(position, first - 1)
            position = last + 1
            self._extend(min(last, self.end_offset + self._room() - 1))
            for run in self._acquirable(first, last):
                careful = run.deliveries >= self.limits.careful_from
                if careful and count:
                    return self._acquired(found)
                most = self._portion(run) if careful else run.size
                if exactly:
                    most = min(most, most_records - count)
                self._lock(run, most, member, now_ms)
                found.append(AcquiredRange(run.first, run.last, run.deliveries))
                count += run.size
                if careful or (exactly and count >= most_records):
                    return self._acquired(found)
            if count >= most_records or self.end_offset <= last:
                return self._acquired(found)
        self._archive(position, read_to)
        return self._acquired(found)

    def _acquired(self, found: list[AcquiredRange]) -> list[AcquiredRange]:
        self._tidy()
        return found

    def _acquirable(self, first: int, last: int) -> list[DeliveryRun]:
        return [run for run in self._window.between(first, last) if run.can_be_acquired]

    def _room(self) -> int:
        return max(self.limits.in_flight - self.in_flight, 0)

    def _portion(self, run: DeliveryRun) -> int:
        """Returns fewer records with each attempt, and a single one with the last."""
        if run.deliveries >= self.limits.deliveries - 1:
            return 1
        return max(run.size >> (run.deliveries - self.limits.careful_from + 1), 1)

    def _lock(self, run: DeliveryRun, most: int, member: str, now_ms: int) -> None:
        self._window.split(run.first + most)
        run.state, run.member = ACQUIRED, member
        run.deliveries += 1
        self._lock_until(run, now_ms + self.limits.lock_ms)

    def _lock_until(self, run: DeliveryRun, end_ms: int) -> None:
        run.lock_until_ms = end_ms
        self._wake_at(end_ms)

    def _wake_at(self, at_ms: int) -> None:
        if at_ms not in self._deadlines[:1]:
            heappush(self._deadlines, at_ms)

    def _extend(self, last: int) -> None:
        """Extend the window to at least `last`, inclusive."""
        if last >= self._window.end:
            self._window.append(DeliveryRun(self._window.end, last))

    def _archive(self, first: int, last: int) -> None:
        """Archive these offsets: they have no records, or none that the group may see."""
        if first > last:
            return
        self._extend(last)
        for run in self._acquirable(first, last):
            run.state = ARCHIVED

    # --- giving back

    def acknowledge(
        self, member: str, acknowledgements: Sequence[Acknowledgement], now_ms: int
    ) -> StateUpdate | None:
        """Take all acknowledgements, or raise KafkaError without a change. Returns None if there is
        nothing to write."""
        wishes = _wishes(acknowledgements)
        for first, last, _ in wishes:
            self._require_held(member, first, last, now_ms)
        changed: list[DeliveryRun] = []
        for first, last, kind in wishes:
            for run in self._window.between(first, last):
                if kind is AcknowledgeType.RENEW:
                    self._lock_until(run, now_ms + self.limits.lock_ms)
                else:
                    run.becomes = self._state_after(kind, run)
                    if run.becomes is AVAILABLE:
                        run.waits_until_ms = self._wait_end(run, now_ms)
                    changed.append(run)
        update = self._update_of(changed, waits=True)
        self._tidy()
        return update

    def _require_held(self, member: str, first: int, last: int, now_ms: int) -> None:
        if last >= self.end_offset:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Offset {last} was not handed out to anyone."
            )
        # Everything before the start offset is done, also if its holder does not know it yet.
        for run in self._window.whole_between(max(first, self.start_offset), last):
            if not run.is_held_by(member) or run.lock_until_ms <= now_ms:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"The member does not hold all records from offset {first} to {last}.",
                )

    def _state_after(self, kind: AcknowledgeType, run: DeliveryRun) -> DeliveryState:
        if kind is AcknowledgeType.ACCEPT:
            return ACKNOWLEDGED
        if kind is AcknowledgeType.RELEASE:
            return self._state_of_returned(run)
        # There is no record in a gap, so nothing to write.
        return ARCHIVED if kind is AcknowledgeType.GAP else self._state_of_given_up

    def _state_of_returned(self, run: DeliveryRun) -> DeliveryState:
        return self._state_of_given_up if run.deliveries >= self.limits.deliveries else AVAILABLE

    @property
    def _state_of_given_up(self) -> DeliveryState:
        return ARCHIVING if self.limits.keeps_letters else ARCHIVED

    def _wait_end(self, run: DeliveryRun, now_ms: int) -> int:
        """Returns 0 if records of the group do not wait."""
        wait_ms = self.limits.backoff_after(run.deliveries, run.first)
        return now_ms + wait_ms if wait_ms else 0

    def written(self, update: StateUpdate, *, succeeded: bool) -> None:
        """Call when the update is stored, or failed: then the members hold their records as
        before."""
        if not update.waits:
            return
        self._writes -= 1
        for batch in update.batches:
            for run in self._window.between(batch.first, batch.last):
                assert run.becomes is batch.state, "one update at a time changes a record"
                run.becomes = None
                if succeeded:
                    _give_up_lock(run, batch.state)
                    if run.waits_until_ms:
                        self._wake_at(run.waits_until_ms)
                else:
                    run.waits_until_ms = 0
                    if run.state is ACQUIRED:  # the lock may have expired meanwhile
                        self._lock_until(run, run.lock_until_ms)
        self._tidy()

    def give_up_expired(self, now_ms: int) -> StateUpdate | None:
        """Begin to archive the records whose last lock has expired; returns None if there are none.
        Call before `expire`, which leaves them out if their dead letters are kept."""
        used_up = [
            run for run in self._expired(now_ms) if self._state_of_returned(run) is ARCHIVING
        ]
        for run in used_up:
            run.becomes = ARCHIVING
        update = self._update_of(used_up, waits=True)
        self._tidy()
        return update

    def letters_stored(self, ranges: Iterable[tuple[int, int]]) -> StateUpdate | None:
        """Archive records of `letters_due`. Returns None if they were deleted from the log
        meanwhile."""
        stored = [
            run
            for first, last in ranges
            for run in self._window.between(first, last)
            if run.state is ARCHIVING and run.becomes is None
        ]
        for run in stored:
            run.becomes = ARCHIVED
        update = self._update_of(stored, waits=True)
        self._tidy()
        return update

    def _expired(self, now_ms: int) -> list[DeliveryRun]:
        return [
            run
            for run in self._window.runs
            if run.state is ACQUIRED and run.becomes is None and run.lock_until_ms <= now_ms
        ]

    def expire(self, now_ms: int) -> StateUpdate | None:
        """Take back the records whose locks have expired; returns None if there are none. Makes
        those available whose waits are over, which needs no update."""
        while self._deadlines and self._deadlines[0] <= now_ms:
            heappop(self._deadlines)
        expired = [
            run for run in self._expired(now_ms) if self._state_of_returned(run) is not ARCHIVING
        ]
        for run in self._window.runs:
            if run.waits_until_ms <= now_ms and run.state is AVAILABLE:
                run.waits_until_ms = 0
        for run in expired:
            _give_up_lock(run, self._state_of_returned(run))
            if run.state is AVAILABLE and self.limits.backoff_ms:
                run.waits_until_ms = self._wait_end(run, now_ms)
                self._wake_at(run.waits_until_ms)
        return self._taken_back(expired)

    def release_all(self, member: str) -> StateUpdate | None:
        """The member is gone. It may not have looked at its records, so that does not count as a
        delivery (as in Kafka 4.3)."""
        held = [run for run in self._window.runs if run.is_held_by(member)]
        for run in held:
            run.deliveries -= 1
            _give_up_lock(run, AVAILABLE)
        return self._taken_back(held)

    def _taken_back(self, runs: list[DeliveryRun]) -> StateUpdate | None:
        update = self._update_of(runs, waits=False)
        self._tidy()
        return update

    def _update_of(self, changed: list[DeliveryRun], *, waits: bool) -> StateUpdate | None:
        if not changed:
            return None
        batches = [
            StateBatch(
                run.first,
                run.last,
                run.state if run.becomes is None else run.becomes,
                run.deliveries,
            )
            for run in changed
        ]
        # While another update waits, the first open record is not known yet. And a start offset
        # that was written must not be taken back by an update that was made before.
        start_offset = UNCHANGED
        own = {id(run) for run in changed}
        states = [
            (run.becomes if run.becomes is not None and id(run) in own else run.state, run)
            for run in self._window.runs
        ]
        if not self._writes:
            open_runs = (run.first for state, run in states if not state.is_final)
            start_offset = next(open_runs, self.end_offset)
        finished = sum(
            run.size for state, run in states if state.is_final and run.first >= start_offset
        )
        self._writes += waits
        return StateUpdate(batches, start_offset, finished, waits)

    # --- the log

    def log_starts_at(self, offset: int) -> None:
        """Records before `offset` were deleted: they are done, also those that a member holds."""
        if offset > self.start_offset:
            self._window.drop_before(offset)
            self._tidy()

    def _tidy(self) -> None:
        window = self._window
        window.merge()
        done = next((run.first for run in window.runs if not run.state.is_final), self.end_offset)
        if done > window.start:
            window.drop_before(done)


def _give_up_lock(run: DeliveryRun, state: DeliveryState) -> None:
    run.state, run.member, run.lock_until_ms = state, NO_MEMBER, NEVER_MS


def _wishes(
    acknowledgements: Sequence[Acknowledgement],
) -> list[tuple[int, int, AcknowledgeType]]:
    """Returns ranges of offsets of one type, in order; refuses them if they overlap or are
    invalid."""
    wishes: list[tuple[int, int, AcknowledgeType]] = []
    position = -1
    for first, last, types in acknowledgements:
        if not 0 <= first <= last or first < position or len(types) not in (1, last - first + 1):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if first == position:
            # As in Apache Kafka 4.3: the first range has changed the record that both name.
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE, f"Offset {first} is acknowledged twice."
            )
        position = last
        if len(types) == 1:
            wishes.append((first, last, _type_of(types[0])))
            continue
        at = first
        for number, alike in groupby(types):
            size = sum(1 for _ in alike)
            wishes.append((at, at + size - 1, _type_of(number)))
            at += size
    return wishes


def _type_of(number: int) -> AcknowledgeType:
    try:
        return AcknowledgeType(number)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST) from None
