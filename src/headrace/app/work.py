"""The records of one subscription on their way: read, waiting, running, waiting again, done.

The polling thread feeds it, slots take runs from it and say how they ended; what becomes of a
failure is decided here. One lock guards lanes, completion and blocked keys; nothing under it waits.
Writing records and waiting for a time are left to an `Outlet`. Not here: calling handlers
(slots.py), the group and its offsets (intake.py, settling.py).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol

from confluent_kafka import Message as NativeMessage

from headrace.app import headers as names
from headrace.app.dead_letters import why_headers
from headrace.app.decoding import Undecodable
from headrace.app.job import Job, Move, OwnedPartition, retry_job
from headrace.app.lanes import Lanes, Run
from headrace.app.names import dead_topic, retry_topic
from headrace.app.observing import Observer, Outcome
from headrace.app.retry import TryLater
from headrace.app.subscription import SHORT_WAIT_MS, Subscription
from headrace.app.timers import WallClock
from headrace.client.records import HeaderList, Outgoing
from headrace.contract.delay_topics import companion_of
from headrace.contract.headers import DELIVER_AT

log = logging.getLogger("headrace.app")

# A slot takes at most so many records at once; with several slots and slow handlers one by one.
LONGEST_RUN = 256
QUICK_S = 0.0002
# Records of one exactly-once transaction.
LONGEST_TRANSACTION = 1_000
# Records without order that wait in memory for their next attempt; more go through their topic.
MOST_IN_MEMORY = 1_000
# A record that could not be written for a retry or as a dead letter is written again after this.
WRITE_AGAIN_MS = 1_000

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


class Work:
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
        self.delayed = False  # whether long waits go through the delay service
        self.lock = threading.Lock()
        self.lanes: Lanes[Job] = Lanes(subscription.order_by)
        self.wake: Callable[[int], None] = _nobody  # tells idle slots; set by the slots
        self.lease_until = float("inf")  # monotonic: no record is begun after it
        self.mean_s = 0.001  # of one attempt
        self._chance = chance
        self._in_memory = 0

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
            self.lanes.add(due)
            ready = self.lanes.ready
        if due:
            self.wake(ready)

    # ---- slots

    def take(self) -> Run[Job] | None:
        with self.lock:
            run = self.lanes.take(self._most())
            if run is None:
                return None
            for job in run.jobs:
                job.stream.owned.running += 1
            self.stats.in_flight += len(run.jobs)
            return run

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
            self.lanes.add(released)
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

    # ---- failures

    def failed(
        self, run: Run[Job], at: int, error: BaseException, more: HeaderList
    ) -> tuple[Outcome, bool]:
        """The attempt at run.jobs[at] failed. What becomes of it, and whether the run goes on."""
        job = run.jobs[at]
        self.stats.failed += 1
        verdict = self.judge(job, error)
        if verdict is None:
            return self._park(run, at, error, more)
        made, wait_ms = verdict
        due_ms = self.clock() + wait_ms
        self.stats.retried += 1
        if self.subscription.order_by is None:
            self._wait_without_order(job, made, wait_ms, due_ms, more)
            return "retried", True
        if self.subscription.order_by == "partition" or wait_ms <= SHORT_WAIT_MS:
            self._wait_in_place(run, at, made, due_ms)
        else:
            self._move_key(run, at, made, due_ms)
        return "retried", False

    def failed_exactly_once(
        self, run: Run[Job], at: int, error: BaseException, more: HeaderList
    ) -> list[Outgoing[Any, Any]] | None:
        """What to write instead of a result; None if the record waits here and the run ends."""
        job = run.jobs[at]
        self.stats.failed += 1
        verdict = self.judge(job, error)
        if verdict is None:
            if self.subscription.dead_letters:
                return [self.dead_letter(job, error, more)]
            log.error("dropped %s, which cannot be handled", job.message_id, exc_info=error)
            return []
        made, wait_ms = verdict
        due_ms = self.clock() + wait_ms
        self.stats.retried += 1
        if self.subscription.order_by is None and self.delayed and wait_ms > SHORT_WAIT_MS:
            return [self._delayed_copy(job, made, due_ms, more)]
        if self.subscription.order_by is None:
            with self.lock:
                self._in_memory += 1
                self._not_running(job)
            self.outlet.after(due_ms, lambda: self._again(job, made))
        else:
            self._wait_in_place(run, at, made, due_ms)
        return None

    def judge(self, job: Job, error: BaseException) -> tuple[int, int] | None:
        """Attempts made and milliseconds to wait; None if there is to be no other attempt."""
        if isinstance(error, TryLater):
            return job.made, error.after_ms
        if isinstance(error, Undecodable):
            return None
        retry = self.subscription.retry
        made = job.made + 1
        if not retry.again(error, made):
            return None
        return made, retry.wait_ms(made, self._chance.random())

    def _wait_in_place(self, run: Run[Job], at: int, made: int, due_ms: int) -> None:
        """The lane waits in memory, the failed record first."""
        run.jobs[at].made = made
        self._hold(run, run.jobs[at:])
        lane = run.lane
        assert lane is not None
        self.outlet.after(due_ms, lambda: self._release(lane.name))

    def _hold(self, run: Run[Job], rest: list[Job]) -> None:
        with self.lock:
            self.stats.in_flight -= len(rest)
            for job in rest:
                job.stream.owned.running -= 1
            self.lanes.hold(run, [job for job in rest if not job.stream.owned.gone])

    def _release(self, lane: Hashable) -> None:
        with self.lock:
            self.lanes.release(lane)
            ready = self.lanes.ready
        if ready:
            self.wake(ready)

    def _wait_without_order(
        self, job: Job, made: int, wait_ms: int, due_ms: int, more: HeaderList
    ) -> None:
        with self.lock:
            in_memory = wait_ms <= SHORT_WAIT_MS and self._in_memory < MOST_IN_MEMORY
            in_memory = in_memory or job.stream.owned.retry is None
            if in_memory:
                self._in_memory += 1
                self._not_running(job)
            elif not self.delayed:
                self._not_running(job)
                job.lane = job.owned, job.offset if job.stream.retry else -1 - job.offset
                self._move(job, made, due_ms)
        if in_memory:
            self.outlet.after(due_ms, lambda: self._again(job, made))
        elif self.delayed:
            self._write_delayed(job, made, due_ms, more)

    def _not_running(self, job: Job) -> None:
        self.stats.in_flight -= 1
        job.stream.owned.running -= 1

    def _again(self, job: Job, made: int) -> None:
        with self.lock:
            self._in_memory -= 1
            owned = job.stream.owned
            if owned.closing:
                return
            job.made = made
            self.lanes.add([job])
        self.wake(1)

    def _write_delayed(self, job: Job, made: int, due_ms: int, more: HeaderList) -> None:
        self._write_until_safe(job, self._delayed_copy(job, made, due_ms, more), lambda: None)

    def _delayed_copy(
        self, job: Job, made: int, due_ms: int, more: HeaderList
    ) -> Outgoing[Any, Any]:
        retry = job.owned.retry
        assert retry is not None
        return job.copy_for(
            companion_of(retry.topic),
            made=made,
            first_failed_ms=self.clock(),
            more=[(DELIVER_AT, b"%d" % due_ms), *more],
        )

    def _write_until_safe(
        self, job: Job, record: Outgoing[Any, Any], then: Callable[[], None]
    ) -> None:
        """The record completes when its copy is safe; until then it counts as under way."""

        def ended(error: BaseException | None) -> None:
            if error is None:
                with self.lock:
                    self._over([job])
                then()
            elif not job.owned.gone:
                log.warning(
                    "%s of %s at offset %d is not written to %s yet: %s",
                    "a record", job.stream.place, job.offset, record.topic, error,
                )  # fmt: skip
                self.outlet.after(
                    self.clock() + WRITE_AGAIN_MS,
                    lambda: self._write_until_safe(job, record, then),
                )

        self.outlet.write(record, ended)

    # ---- order of keys: to the retry partition, with all that comes after

    def _move_key(self, run: Run[Job], at: int, made: int, due_ms: int) -> None:
        with self.lock:
            rest = run.jobs[at:]
            self.stats.in_flight -= len(rest)
            for job in rest:
                job.stream.owned.running -= 1
            behind = rest[1:] + self.lanes.empty(run)
            self._move(rest[0], made, due_ms)
            for job in behind:
                if job.stream.retry:
                    job.stream.owned.blocked.returned(job)
                else:
                    self._move(job, made=job.made, due_ms=0)
            self.lanes.done(run)
        self.outlet.hurry()

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
                    self.lanes.add(released)
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

    # ---- dead letters

    def _park(
        self, run: Run[Job], at: int, error: BaseException, more: HeaderList
    ) -> tuple[Outcome, bool]:
        job = run.jobs[at]
        if not self.subscription.dead_letters:
            log.error("dropped %s, which cannot be handled", job.message_id, exc_info=error)
            with self.lock:
                self._over([job])
            return "dropped", True
        record = self.dead_letter(job, error, more)
        lane = run.lane
        if lane is None:
            self._write_until_safe(job, record, lambda: None)
            return "parked", True
        self._hold(run, run.jobs[at + 1 :])
        self._write_until_safe(job, record, lambda: self._release(lane.name))
        return "parked", False

    def batch_failed(self, run: Run[Job], error: BaseException) -> bool:
        """A batch in order failed as a whole. Whether its lane may go on."""
        verdict = self.judge(run.jobs[0], error)
        lane = run.lane
        assert lane is not None
        self.stats.failed += len(run.jobs)
        if verdict is not None:
            made, wait_ms = verdict
            self.stats.retried += len(run.jobs)
            for job in run.jobs:
                job.made = made
            self._hold(run, run.jobs)
            self.outlet.after(self.clock() + wait_ms, lambda: self._release(lane.name))
            return False
        if not self.subscription.dead_letters:
            log.error("dropped %d records, which cannot be handled", len(run.jobs), exc_info=error)
            with self.lock:
                self._over(run.jobs)
            return True
        self._hold(run, [])
        left = set(run.jobs)

        def one_is_safe(job: Job) -> None:
            left.discard(job)
            if not left:
                self._release(lane.name)

        for job in run.jobs:
            record = self.dead_letter(job, error, [])
            self._write_until_safe(job, record, lambda job=job: one_is_safe(job))  # type: ignore[misc]
        return False

    def dead_letter(self, job: Job, error: BaseException, more: HeaderList) -> Outgoing[Any, Any]:
        now_ms = self.clock()
        carried = job.carried
        made = job.made + 1
        first_ms = carried.first_failed_ms or now_ms
        origin = carried.origin or (*job.stream.place, job.offset)
        why = why_headers(
            error,
            attempts=made,
            first_at_ms=first_ms,
            last_at_ms=now_ms,
            origin=origin,
            group=self.group,
        )
        self.stats.parked += 1
        self.stats.last_parked_at_ms = now_ms
        log.error(
            "parked %s after %d attempts: %s",
            job.message_id, made, type(error).__name__, exc_info=error,
        )  # fmt: skip
        topic = dead_topic(job.owned.topic, self.group)
        return job.copy_for(topic, made=made, first_failed_ms=first_ms, more=why + more)

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
