"""The records of one subscription on their way: read, waiting, running, done or moved.

The polling thread feeds it, and slots take runs from it and say which records are done. One lock
guards lanes, completion and blocked keys; nothing under it waits. Writing records and waiting for a
time are left to an `Outlet`. What becomes of a failure is decided in work.py.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol

from confluent_kafka import Message as NativeMessage

from headrace.app import headers as names
from headrace.app.bounded_log import BoundedLog
from headrace.app.failure_log import FailureLog
from headrace.app.job import Job, Move, OwnedPartition, retry_job
from headrace.app.lanes import Lanes, Run
from headrace.app.names import retry_topic
from headrace.app.observing import Observer
from headrace.app.subscription import Subscription
from headrace.app.timers import WallClock
from headrace.client.records import Outgoing

# A slot takes at most so many records at once; with several slots and slow handlers one by one.
LONGEST_RUN = 256
QUICK_S = 0.0002
# With the order of keys a run takes about so long: a longer one would leave the other keys, and
# with them the committed offset, far behind.
KEY_RUN_S = 0.01
# Records of one exactly-once transaction.
LONGEST_TRANSACTION = 1_000

Ended = Callable[[BaseException | None], None]


class Outlet(Protocol):
    """What a worker offers to its works."""

    def write(self, record: Outgoing[Any, Any], ended: Ended) -> None:
        """Send a record; `ended` is told, on any thread, that it is safe or why not."""
        ...

    def after(self, due_ms: int, do: Callable[[], None]) -> None:
        """Call it when the wall clock says so."""
        ...

    def hurry(self) -> None:
        """There is something for the polling thread to do."""
        ...


class Flow:
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
        self.outlet = outlet
        self.clock = clock
        self.observers = tuple(observers)
        self.said = FailureLog(
            BoundedLog(clock=clock, after=outlet.after),
            name=subscription.name,
            attempts=subscription.retry.attempts,
        )
        self.delayed = False  # whether long waits go through the delay service
        self.lock = threading.Lock()
        self.lanes: Lanes[Job] = Lanes(subscription.order_by)
        self.wake: Callable[[int], None] = _nobody  # tells idle slots; set by the slots
        self.lease_until = float("inf")  # monotonic: no record is begun after it
        self.mean_s = 0.001  # of one attempt
        self._chance = chance
        self._in_memory = 0
        self._say_later_from_ms = 0
        self._due_again: list[int] = []  # heap: when records that were put off are due
        self._gathers_until_ms: int | None = None  # when an incomplete batch goes as it is
        self._ripe_runs = 0  # runs that need not gather any more

    # ---- what comes

    def feed(self, owned: OwnedPartition, natives: Iterable[NativeMessage]) -> None:
        """Records of the source partition, in order."""
        stream = owned.source
        begin = stream.completion.begin
        order_by = self.subscription.order_by
        jobs: list[Job] = []
        with self.lock:
            if owned.gone:
                return
            for native in natives:
                offset = native.offset()
                assert offset is not None
                if not begin(offset):
                    continue
                if order_by is None:
                    jobs.append(Job(native, stream, offset, None))
                elif order_by == "partition":
                    jobs.append(Job(native, stream, offset, owned))
                else:
                    lane = _key_lane(owned, native, offset)
                    job = Job(native, stream, offset, lane)
                    if owned.blocked.blocks(lane):
                        self._move(job, made=0, due_ms=0)
                    else:
                        jobs.append(job)
            self.stats.received += len(jobs)
            self.lanes.add(jobs)
            ready = self.lanes.ready
        if jobs:
            self.wake(ready)

    def feed_retries(self, owned: OwnedPartition, natives: Iterable[NativeMessage]) -> None:
        """Records of the retry partition, in order."""
        stream = owned.retry
        assert stream is not None
        with self.lock:
            if owned.gone:
                return
            for native in natives:
                offset = native.offset()
                assert offset is not None
                if stream.completion.begin(offset):
                    lane = self._retry_lane(owned, native, offset)
                    owned.blocked.arrived(retry_job(native, stream, offset, lane))
                    self.stats.received += 1
        self.look_at_due(owned)

    def _retry_lane(self, owned: OwnedPartition, native: NativeMessage, offset: int) -> Hashable:
        match self.subscription.order_by:
            case "key":
                return _key_lane(owned, native, -1 - offset)
            case "partition":
                return owned, "retry"
        return owned, offset

    def look_at_due(self, owned: OwnedPartition) -> None:
        """Let out what is due of the retry partition, once all of it has been read."""
        if owned.loading_to is not None or owned.closing or not owned.blocked.count:
            return
        with self.lock:
            due = owned.blocked.take_due(self.clock())
            self.lanes.add_first(due)
            ready = self.lanes.ready
        if due:
            self.wake(ready)

    # ---- slots

    def take(self) -> Run[Job] | None:
        with self.lock:
            if self._gathers():
                return None
            run = self.lanes.take(self._most())
            if run is None:
                return None
            for job in run.jobs:
                job.stream.owned.running += 1
            self.stats.in_flight += len(run.jobs)
            return run

    def _gathers(self) -> bool:
        """Whether an incomplete batch waits for more; called with the lock held."""
        batch, wait_ms = self.subscription.batch, self.subscription.batch_wait_ms
        if batch is None or not wait_ms or self._ripe_runs:
            self._ripe_runs = max(0, self._ripe_runs - 1)
            return False
        if not self.lanes.waiting or self.lanes.waiting >= batch:
            self._gathers_until_ms = None
            return False
        now_ms = self.clock()
        if self._gathers_until_ms is None:
            self._gathers_until_ms = now_ms + wait_ms
            self.outlet.after(self._gathers_until_ms, self._gathered)
        if now_ms < self._gathers_until_ms:
            return True
        self._gathers_until_ms = None
        # Each lane that waited has its run now, however short.
        self._ripe_runs = max(0, self.lanes.ready - 1) if self.subscription.order_by else 0
        return False

    def _gathered(self) -> None:
        with self.lock:
            ready = self.lanes.ready
        if ready:
            self.wake(ready)

    def _most(self) -> int:
        subscription = self.subscription
        if subscription.batch is not None:
            return subscription.batch
        if subscription.exactly_once:
            return LONGEST_TRANSACTION
        if subscription.order_by is None and subscription.concurrency > 1:
            if self.mean_s > QUICK_S:
                return 1
            share = self.lanes.waiting // (2 * subscription.concurrency)
            return max(1, min(share, LONGEST_RUN))
        if subscription.order_by == "key" and self.mean_s > QUICK_S:
            return max(1, min(int(KEY_RUN_S / self.mean_s), LONGEST_RUN))
        return LONGEST_RUN

    def completed(self, jobs: Sequence[Job]) -> None:
        """These are handled, and all they led to is written."""
        with self.lock:
            self.stats.handled += len(jobs)
            self._over(jobs)

    def _over(self, jobs: Sequence[Job]) -> None:
        """Neither running nor needed again."""
        self.stats.in_flight -= len(jobs)
        released: list[Job] = []
        for job in jobs:
            stream = job.stream
            stream.owned.running -= 1
            if not stream.owned.gone:
                self._finish(job, released)
        if released:
            self.lanes.add_first(released)
            self.wake(self.lanes.ready)

    def _finish(self, job: Job, released: list[Job]) -> None:
        stream = job.stream
        stream.completion.finish(job.offset)
        if stream.retry:
            blocked = stream.owned.blocked
            blocked.finished(job)
            if not stream.owned.closing:
                released += blocked.take_due(self.clock())

    def settled(self, jobs: Sequence[Job]) -> None:
        """Exactly once: their transaction has marked them as finished already."""
        with self.lock:
            self.stats.handled += len(jobs)
            self.stats.in_flight -= len(jobs)
            for job in jobs:
                job.stream.owned.running -= 1

    def dropped(self, jobs: Sequence[Job]) -> None:
        """These were not begun: their partition is going or gone, and they will come again."""
        with self.lock:
            self.stats.in_flight -= len(jobs)
            for job in jobs:
                job.stream.owned.running -= 1

    def ended(self, run: Run[Job], seconds: float) -> None:
        """All of a run was gone through; its lane may go on."""
        count = len(run.jobs)
        with self.lock:
            self.stats.busy_seconds += seconds
            self.mean_s += (seconds / count - self.mean_s) * 0.2
            self.lanes.done(run)
            ready = self.lanes.ready
        if ready:
            self.wake(ready)

    # ---- what is written in one transaction with the places of records

    def _move(self, job: Job, made: int, due_ms: int) -> None:
        owned = job.stream.owned
        if owned.gone:
            return
        owned.blocked.appending(job.lane)
        owned.moves.append(Move(job, made, due_ms))

    def settle(self, results: Sequence[tuple[Job, list[Outgoing[Any, Any]]]], then: Ended) -> None:
        """Exactly once: these records and the places of these jobs, in one transaction."""
        left = len(results)

        def one_ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                then(None)

        with self.lock:
            gone = [job for job, _ in results if job.stream.owned.gone]
            for job, records in results:
                if not job.stream.owned.gone:
                    move = Move(job, records=records, ended=one_ended)
                    job.stream.owned.moves.append(move)
        for _ in gone:
            one_ended()
        self.outlet.hurry()

    def moved(self, move: Move) -> None:
        """Its transaction is committed."""
        job, released = move.job, list[Job]()
        with self.lock:
            owned = job.stream.owned
            if job.stream.retry and not owned.gone:
                owned.blocked.finished(job)
                if not owned.closing:
                    released = owned.blocked.take_due(self.clock())
                    self.lanes.add_first(released)
            ready = self.lanes.ready
        if released:
            self.wake(ready)
        if move.ended is not None:
            move.ended()

    def copy_to_move(self, move: Move) -> Outgoing[Any, Any]:
        retry = move.job.owned.retry
        assert retry is not None
        return move.job.copy_for(
            retry.topic,
            made=move.made,
            first_failed_ms=self.clock() if move.made else 0,
            more=[(names.DUE, b"%d" % move.due_ms)],
        )

    # ---- partitions go

    def close(self, owned: OwnedPartition) -> None:
        """Begin nothing more of it; what is under way may end."""
        with self.lock:
            owned.closing = True
            self.lanes.drop(lambda job: job.stream.owned is owned)

    def forget(self, owned: OwnedPartition) -> None:
        """It is another's now: what ends later does not count."""
        with self.lock:
            owned.closing = owned.gone = True
            self.lanes.drop(lambda job: job.stream.owned is owned)
            dropped = owned.moves + owned.moving
            owned.moves, owned.moving = [], []
        for move in dropped:
            if move.ended is not None:
                move.ended()

    def may_begin(self) -> bool:
        return time.monotonic() < self.lease_until

    def retry_topic_of(self, topic: str) -> str:
        return retry_topic(topic, self.group)


def _key_lane(owned: OwnedPartition, native: NativeMessage, unkeyed: int) -> Hashable:
    key = native.key()
    return (owned, key) if key is not None else (owned, unkeyed)


def _nobody(ready: int) -> None:
    """No slots yet."""
