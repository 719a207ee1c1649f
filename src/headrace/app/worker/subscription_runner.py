"""Runs one subscription: guards its dispatcher by a lock, and performs the dispatcher's effects.

The polling thread, the slots and the producer's thread call it. Each call is one event: the
dispatcher decides under the lock, where nothing waits, and the effects follow after it: slots are
woken, copies written, failures logged. It adds what the dispatcher lacks: the clock, random
numbers, the log, and the lease, until which this worker may rely on owning its partitions.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from headrace.app.dispatch.dispatcher import Dispatcher
from headrace.app.dispatch.effects import Failure, Move, Transacted, Write
from headrace.app.dispatch.lanes import Run
from headrace.app.dispatch.owned_partition import (
    Acknowledgement,
    HeadersOf,
    Offsets,
    OwnedPartition,
    Stream,
)
from headrace.app.dispatch.record_in_hand import DeliveredRecord, FetchedRecord, RecordInHand
from headrace.app.names import dead_topic, retry_topic
from headrace.app.observation.bounded_log import BoundedLog
from headrace.app.observation.failure_log import FailureLog
from headrace.app.observation.observer import Observer
from headrace.app.retries.copies import copy_to_move, copy_to_write
from headrace.app.retries.failure_fate import Fate
from headrace.app.retry import TryLater
from headrace.app.subscription import Subscription
from headrace.app.worker.timers import WallClock
from headrace.client.consumer.fetched import headers_of
from headrace.client.records import HeaderList, Outgoing

log = logging.getLogger("headrace.app")

# The log names the cause of a wait at most this often.
SAY_LATER_EVERY_MS = 30_000
DROPPED = "dropped, because the handler has no dead letters"

Ended = Callable[[BaseException | None], None]
Results = Sequence[tuple[RecordInHand, list[Outgoing[Any, Any]]]]


class Outlet(Protocol):
    """What a runner needs from its worker."""

    def write(self, record: Outgoing[Any, Any], ended: Ended) -> None:
        """Send a record; `ended` is called, on any thread, when it is written or with the reason
        why not."""
        ...

    def after(self, due_ms: int, do: Callable[[], None]) -> None:
        """Call `do` at this time of the wall clock."""
        ...

    def hurry(self) -> None:
        """There is work for the polling thread."""
        ...


class HandledPartition(OwnedPartition):
    """A partition with the runner that performs the dispatcher's decisions on it."""

    __slots__ = ("runner",)
    runner: SubscriptionRunner  # the polling thread's


class SubscriptionRunner:
    def __init__(
        self,
        subscription: Subscription,
        *,
        group: str,
        outlet: Outlet,
        clock: WallClock,
        chance: random.Random,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.subscription = subscription
        self.stats = subscription.stats
        self.group = group
        self.clock = clock
        self.observers = tuple(observers)
        self.said = FailureLog(
            BoundedLog(clock=clock, after=outlet.after),
            name=subscription.name,
            attempts=subscription.retry.attempts,
        )
        self.wake: Callable[[int], None] = _nobody  # wakes idle slots; set by the slots
        self.lease_until = float("inf")  # monotonic: no record is begun after it
        self.dispatcher = Dispatcher(subscription)
        self._lock = threading.Lock()  # around every use of the dispatcher
        self._outlet = outlet
        self._chance = chance
        self._say_later_from_ms = 0
        # Waits for a batch are short: the time of the last turn would be too old for them.
        self._batches_wait = subscription.batch is not None and subscription.batch_wait_ms > 0

    # ---- the polling thread: partitions

    def own(self, topic: str, partition: int, topic_id: str | None) -> HandledPartition:
        owned = HandledPartition(
            topic,
            partition,
            retry_topic=retry_topic(topic, self.group),
            headers_of=headers_of,
            topic_id=topic_id,
            carries=topic in self.subscription.drained,
        )
        owned.runner = self
        with self._lock:
            self.dispatcher.own(owned)
        return owned

    def own_queue(
        self, topic: str, partition: int, topic_id: str | None, headers_of: HeadersOf
    ) -> HandledPartition:
        """Take a partition of a queue, which other workers read too."""
        owned = HandledPartition(
            topic,
            partition,
            retry_topic=retry_topic(topic, self.group),
            headers_of=headers_of,
            topic_id=topic_id,
        )
        owned.acknowledgements = []
        owned.runner = self
        with self._lock:
            self.dispatcher.own(owned)
        return owned

    def close(self, owned: OwnedPartition) -> None:
        """Begin no more records of it; running ones may end."""
        with self._lock:
            self.dispatcher.close(owned)

    def forget(self, owned: OwnedPartition) -> None:
        """Another worker has it now: later results of its records do not count."""
        with self._lock:
            ended = self.dispatcher.forget(owned)
        for one in ended:
            one.then()

    def must_pause(self, owned: OwnedPartition, most: int) -> bool:
        with self._lock:  # slots finish records meanwhile
            return owned.must_pause(most)

    # ---- the polling thread: records and time

    def read(self, owned: OwnedPartition, natives: Iterable[FetchedRecord]) -> None:
        """Records of the source partition, in order."""
        with self._lock:
            ready = self.dispatcher.read(owned, natives)
        if ready:
            self.wake(ready)

    def read_queue(self, stream: Stream, natives: Iterable[DeliveredRecord]) -> None:
        """Records that a share group delivered."""
        now_ms = self.clock()
        with self._lock:
            ready, writes = self.dispatcher.read_queue(stream, natives, now_ms)
        if ready:
            self.wake(ready)
        for write in writes:
            write.outgoing = copy_to_write(write, group=self.group, worker=worker_name(), more=[])
            then = f"parked in {dead_topic(stream.owned.topic, self.group)}"
            self.said.given_up(write.record, write.error, made=write.made, then=then)
            self._write(write)

    def take_acknowledgements(
        self, owned: OwnedPartition
    ) -> list[tuple[FetchedRecord, Acknowledgement]]:
        """The acknowledgements to send now."""
        with self._lock:
            found, owned.acknowledgements = owned.acknowledgements or [], []
        return found

    def lost(self, gone: Callable[[FetchedRecord], bool]) -> None:
        """Give up records of a queue that are not ours any more."""
        with self._lock:
            self.dispatcher.lanes.drop(lambda record: gone(record.native))

    def active(self) -> int:
        """Records that wait for a slot or are in one."""
        return self.dispatcher.lanes.waiting + self.stats.in_flight

    def read_retries(self, owned: OwnedPartition, natives: Iterable[FetchedRecord]) -> None:
        """Records of the retry partition, in order."""
        with self._lock:
            ready = self.dispatcher.read_retries(owned, natives)
        if ready:
            self.wake(ready)

    def retries_read_to(self, owned: OwnedPartition, end: int) -> None:
        with self._lock:
            self.dispatcher.retries_read_to(owned, end)

    def tick(self, now_ms: int) -> None:
        """Advance the time; called in every turn of the polling thread."""
        with self._lock:
            ready, writes = self.dispatcher.tick(now_ms)
        if ready:
            self.wake(ready)
        for write in writes:
            self._write(write)

    def next_wake_ms(self) -> int | None:
        with self._lock:
            return self.dispatcher.next_wake_ms()

    # ---- the polling thread: transactions and offsets

    def begin_transaction(self, owned: OwnedPartition) -> list[Move]:
        with self._lock:
            return self.dispatcher.begin_transaction(owned)

    def copy_to_move(self, move: Move) -> Outgoing[Any, Any]:
        return copy_to_move(move, self.clock(), worker=worker_name())

    def results_refused(self, move: Move, error: BaseException) -> None:
        """Exactly once: the cluster will never accept the results of this record."""
        if move.given_up:
            return  # the dead letter itself is refused: only people can help
        now_ms, record = self.clock(), move.record
        with self._lock:
            write = self.dispatcher.results_refused(move, error, now_ms)
        then = DROPPED
        if write is not None:
            move.results = [copy_to_write(write, group=self.group, worker=worker_name(), more=[])]
            then = f"parked in {dead_topic(record.owned.topic, self.group)}"
        self.said.given_up(record, error, made=record.made + 1, then=then)

    def transaction_committed(
        self, owned: OwnedPartition, copies: Iterable[tuple[Move, int]]
    ) -> None:
        with self._lock:
            ready, ended = self.dispatcher.transaction_committed(owned, copies)
        if ready:
            self.wake(ready)
        for one in ended:
            one.then()

    def offsets(self, owned: OwnedPartition) -> Offsets:
        with self._lock:
            return owned.offsets()

    def changed_offsets(self, owned: OwnedPartition, *, sent_too: bool) -> Offsets:
        with self._lock:
            return owned.changed_offsets(sent_too=sent_too)

    # ---- slots

    @property
    def ready(self) -> int:
        """How many runs could begin now, at most."""
        return self.dispatcher.lanes.ready

    def may_begin(self) -> bool:
        return time.monotonic() < self.lease_until

    def take(self) -> Run[RecordInHand] | None:
        with self._lock:
            if self._batches_wait:
                self.dispatcher.time_is(self.clock())
            return self.dispatcher.take()

    def completed(self, records: Sequence[RecordInHand]) -> None:
        """These records are handled, and all their results are written."""
        with self._lock:
            ready = self.dispatcher.completed(records)
        if ready:
            self.wake(ready)

    def not_begun(self, records: Sequence[RecordInHand]) -> None:
        """Their partition is being revoked or lost; these records will be delivered again."""
        with self._lock:
            self.dispatcher.not_begun(records)

    def ended(self, run: Run[RecordInHand], seconds: float) -> None:
        """All of a run was handled; its lane may continue."""
        with self._lock:
            ready = self.dispatcher.ended(run, seconds)
        if ready:
            self.wake(ready)

    def transact(self, results: Results, then: Callable[[], None]) -> None:
        """Exactly once: write these results and the offsets of their records in one transaction.
        `then` is called, on any thread, when it has ended or does not matter any more.
        """
        transacted = Transacted(len(results), then)
        with self._lock:
            self.dispatcher.transact(results, transacted)
            nothing_left = not transacted.left
        if nothing_left:
            then()
        self._outlet.hurry()

    def transacted(self, records: Sequence[RecordInHand]) -> None:
        with self._lock:
            self.dispatcher.transacted(records)

    # ---- slots: failures

    def failed(
        self, run: Run[RecordInHand], at: int, error: BaseException, more: HeaderList
    ) -> Failure:
        """The attempt at this record of a run failed; those before it are finished. `more`: headers
        for records that are written because of it.
        """
        failure = self._failure(run, at, error, more)
        self._perform(failure)
        return failure

    def failed_exactly_once(
        self, run: Run[RecordInHand], at: int, error: BaseException, more: HeaderList
    ) -> list[Outgoing[Any, Any]] | None:
        """The record to write instead of a result; None if the record is not finished."""
        failure = self._failure(run, at, error, more)
        if failure.writes or failure.fate is Fate.DROPPED:
            return [write.outgoing for write in failure.writes if write.outgoing is not None]
        return None

    def batch_failed(self, run: Run[RecordInHand], error: BaseException) -> Failure:
        """A batch in order failed as a whole."""
        now_ms, chance = self.clock(), self._chance.random()
        records = list(run.records)
        with self._lock:
            failure = self.dispatcher.batch_failed(run, error, now_ms=now_ms, chance=chance)
        self._say(records, error, failure, now_ms)
        self._make_copies(failure, [])
        self._perform(failure)
        return failure

    def _failure(
        self, run: Run[RecordInHand], at: int, error: BaseException, more: HeaderList
    ) -> Failure:
        now_ms, chance = self.clock(), self._chance.random()
        with self._lock:
            failure = self.dispatcher.failed(run, at, error, now_ms=now_ms, chance=chance)
        self._say([run.records[at]], error, failure, now_ms)
        self._make_copies(failure, more)
        return failure

    def _make_copies(self, failure: Failure, more: HeaderList) -> None:
        for write in failure.writes:
            write.outgoing = copy_to_write(write, group=self.group, worker=worker_name(), more=more)

    def _perform(self, failure: Failure) -> None:
        for write in failure.writes:
            self._write(write)
        if failure.ready:
            self.wake(failure.ready)
        if failure.moves:
            self._outlet.hurry()

    def _write(self, write: Write) -> None:
        assert write.outgoing is not None
        self._outlet.write(write.outgoing, lambda error: self._written(write, error))

    def _written(self, write: Write, error: BaseException | None) -> None:
        if error is None:
            with self._lock:
                ready = self.dispatcher.written(write)
            if ready:
                self.wake(ready)
            return
        if not write.record.owned.gone and write.outgoing is not None:
            log.warning(
                "a record of %s at offset %d is not written to %s yet: %s",
                write.record.stream.place, write.record.offset, write.outgoing.topic, error,
            )  # fmt: skip
        now_ms = self.clock()
        with self._lock:
            self.dispatcher.not_written(write, now_ms)

    # ---- log lines for people

    def _say(
        self, records: list[RecordInHand], error: BaseException, failure: Failure, now_ms: int
    ) -> None:
        verdict, first = failure.verdict, records[0]
        if isinstance(error, TryLater):
            self._say_later(error, now_ms)
        elif failure.fate is Fate.DROPPED:
            for record in records:
                self.said.given_up(record, error, made=record.made + 1, then=DROPPED)
        elif failure.fate is Fate.DEAD_LETTER:
            then = f"parked in {dead_topic(first.owned.topic, self.group)}"
            for record in records:
                self.said.given_up(record, error, made=record.made + 1, then=then)
        else:
            wait_ms = verdict.wait_ms or 0
            self.said.failed(first, error, made=verdict.made, wait_ms=wait_ms, of=len(records))

    def _say_later(self, why: TryLater, now_ms: int) -> None:
        """Log once for all records that wait for the same reason, and again while it lasts."""
        if now_ms < self._say_later_from_ms:
            return
        self._say_later_from_ms = now_ms + SAY_LATER_EVERY_MS
        log.warning(
            "%s waits, nothing is lost and no attempt is counted: %s", self.subscription.name, why
        )

    @property
    def waiting(self) -> int:
        """Records that were read and have not begun."""
        return self.dispatcher.lanes.waiting

    def put_off_now(self) -> int:
        """Records that wait because something that their handler needs is away."""
        now_ms = self.clock()
        with self._lock:
            return self.dispatcher.put_off.count(now_ms)

    def is_idle(self) -> bool:
        """Whether no record runs and none could begin."""
        with self._lock:
            return not self.stats.in_flight and not self.dispatcher.lanes.ready


def _nobody(ready: int) -> None:
    """Stands in until slots are set."""


def worker_name() -> str:
    """host/process, for the headers of copies and for people who search its log."""
    return f"{socket.gethostname()}/{os.getpid()}"
