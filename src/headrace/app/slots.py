"""Slots: each handles one run after the other. As many as `concurrency`, made when they are needed.

For coroutines a slot is one long-lived task of the loop: it awaits the handler itself, so a record
costs no task of its own. For plain functions it is a thread. Both go through `handle`; on a thread
nothing in it suspends, because there everything that waits blocks, and the coroutine is driven by
hand. A handler may raise anything: SystemExit of a handler ends its attempt, not the worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any

from headrace.app.attempts import Attempts, Duplicate, Written, _forgiven
from headrace.app.decoding import Undecodable
from headrace.app.interruption import Interruption
from headrace.app.job import Job
from headrace.app.lanes import Run
from headrace.app.message import PartialFailure
from headrace.app.observing import Outcome
from headrace.app.work import Work
from headrace.client.errors import ClientError
from headrace.client.records import HeaderList, Sent

log = logging.getLogger("headrace.app")

# Finished records are reported, and the loop is given a turn, after so long at the latest.
REPORT_S = 0.005
LEASE_LOOK_S = 0.01
MOST_THREADS = 256

Deliveries = Sequence["Future[Sent]"]


class Slots:
    """What both kinds have in common."""

    def __init__(self, work: Work, *, write: Any) -> None:
        self.work = work
        self.attempts = Attempts(work)
        self.concurrency = work.subscription.concurrency
        self.stopped = False
        self.forked = False
        self._write = write  # Outgoing -> Future[Sent]
        self._in_order = work.subscription.order_by is not None
        work.wake = self.wake

    def wake(self, ready: int) -> None:
        raise NotImplementedError

    async def _written(self, deliveries: Deliveries) -> None:
        """Wait for these; raises why one was not written."""
        raise NotImplementedError

    async def _ended(self, future: Future[None]) -> None:
        raise NotImplementedError

    async def _rest(self, seconds: float) -> None:
        raise NotImplementedError

    async def _attempted(self, job: Job) -> Written:
        return await self.attempts.one(job)

    async def _guarded(self, job: Job) -> Written:
        try:
            return await self._attempted(job)
        finally:
            if self.forked:
                self._leave_child()

    def _leave_child(self) -> None:
        """A handler forked and the child came back out of it: it must not act as a worker."""
        log.error("%s forked; the child ends where the handler ends", self.work.subscription.name)
        os._exit(0)

    # ---- one run

    async def handle(self, run: Run[Job]) -> None:
        started = time.monotonic()
        if self.work.subscription.exactly_once:
            over = await self._exactly_once(run)
        elif self.work.subscription.batch is not None:
            over = await self._batch(run)
        elif self.attempts.simple:
            over = await self._simple(run)
        else:
            over = await self._one_by_one(run)
        if over:
            self.work.ended(run, time.monotonic() - started)

    async def _simple(self, run: Run[Job]) -> bool:
        """A handler of values only. Whether the run was gone through to its end."""
        work, handler, asynchronous = (
            self.work, self.attempts.plan.handler, self.attempts.plan.asynchronous,
        )  # fmt: skip
        decode = self.attempts.decoder(run.jobs[0].stream.owned.topic)
        topic = run.jobs[0].stream.owned.topic
        done: list[Job] = []
        pending: list[tuple[int, Deliveries]] = []
        reported = time.monotonic()
        for at, job in enumerate(run.jobs):
            owned = job.stream.owned
            doubtful = owned.closing or reported > work.lease_until
            if doubtful and not await self._may_begin(job):
                work.dropped([job])
                continue
            if owned.topic != topic:
                topic, decode = owned.topic, self.attempts.decoder(owned.topic)
            try:
                result = handler(decode(job.native.value()))
                if asynchronous:
                    result = await result
                if self.forked:
                    self._leave_child()
                if result is not None:
                    results = result if isinstance(result, list) else [result]
                    written = self.attempts.results_of(results, job.message())
            except BaseException as error:  # noqa: BLE001 - judged below, whatever it is
                self._reraise_ours(error)
                work.completed(done)
                done = []
                if not await self._failed(run, at, error, pending, []):
                    return False
                continue
            if result is None:
                done.append(job)
            else:
                self._publish(at, job, written, pending)
            now = time.monotonic()
            if now - reported > REPORT_S:
                work.completed(done)
                done = []
                reported = now
        work.completed(done)
        return await self._settled(run, pending)

    async def _one_by_one(self, run: Run[Job]) -> bool:
        work = self.work
        pending: list[tuple[int, Deliveries]] = []
        for at, job in enumerate(run.jobs):
            if not await self._may_begin(job):
                work.dropped([job])
                continue
            began = time.monotonic()
            outcome: Outcome
            failure: BaseException | None = None
            go_on = True
            try:
                written = await self._guarded(job)
                outcome = "handled"
                self._publish(at, job, written, pending)
            except Duplicate:
                work.stats.duplicates += 1
                work.completed([job])
                outcome = "duplicate"
            except BaseException as error:  # noqa: BLE001 - judged below, whatever it is
                self._reraise_ours(error)
                failure = error
                more = self.attempts.headers_for(job.message()) if work.observers else []
                if not await self._settled(run, pending):
                    return False
                pending.clear()
                outcome, go_on = work.failed(run, at, error, more)
            if work.observers:
                self._tell(job, outcome, failure, time.monotonic() - began)
            if not go_on:
                return False
        return await self._settled(run, pending)

    def _tell(
        self, job: Job, outcome: Outcome, error: BaseException | None, seconds: float
    ) -> None:
        message = job.message()
        for observer in self.work.observers:
            with _forgiven(observer):
                observer.ended(self.work.subscription, message, outcome, error, seconds)

    async def _may_begin(self, job: Job) -> bool:
        """False: its partition goes to another. Waits while we do not know whether it does."""
        while not job.stream.owned.closing:
            if self.work.may_begin():
                return True
            await self._rest(LEASE_LOOK_S)
        return False

    def _reraise_ours(self, error: BaseException) -> None:
        """Being stopped ourselves is no failure of the handler."""
        if self.stopped and isinstance(error, asyncio.CancelledError | GeneratorExit):
            raise error

    async def _failed(
        self,
        run: Run[Job],
        at: int,
        error: BaseException,
        pending: list[tuple[int, Deliveries]],
        more: HeaderList,
    ) -> bool:
        """Whether the run goes on."""
        if not await self._settled(run, pending):
            return False
        pending.clear()
        return self.work.failed(run, at, error, more)[1]

    # ---- what the handler gave to be published

    def _publish(
        self, at: int, job: Job, written: Written, pending: list[tuple[int, Deliveries]]
    ) -> None:
        if not written:
            self.work.completed([job])
            return
        self.work.stats.published += len(written)
        deliveries: list[Future[Sent]] = [self._write(record) for record in written]
        if self._in_order:
            pending.append((at, deliveries))
        else:
            _Acknowledged(self.work, job, deliveries)

    async def _settled(self, run: Run[Job], pending: list[tuple[int, Deliveries]]) -> bool:
        """What was published is safe, record by record; False if a record failed by it."""
        for at, deliveries in pending:
            try:
                await self._written(deliveries)
            except ClientError as error:
                self.work.failed(run, at, error, [])
                return False
            self.work.completed([run.jobs[at]])
        return True

    # ---- exactly once

    async def _exactly_once(self, run: Run[Job]) -> bool:
        """All results of a run, and its places, in one transaction of the polling thread."""
        work = self.work
        results: list[tuple[Job, Written]] = []
        over, at = True, 0
        while at < len(run.jobs):
            job = run.jobs[at]
            if not await self._may_begin(job):
                work.dropped([job])
                at += 1
                continue
            error: BaseException | None = None
            try:
                results.append((job, await self._guarded(job)))
            except BaseException as raised:  # noqa: BLE001 - judged below, whatever it is
                self._reraise_ours(raised)
                error = raised
            if error is not None:
                more = self.attempts.headers_for(job.message()) if work.observers else []
                instead = work.failed_exactly_once(run, at, error, more)
                if instead is not None:
                    results.append((job, instead))
                elif self._in_order:
                    over = False
                    break
            at += 1
        if results:
            settled: Future[None] = Future()
            work.settle(results, lambda _: settled.set_result(None))
            await self._ended(settled)
            work.settled([job for job, _ in results])
            work.stats.published += sum(len(written) for _, written in results)
        return over

    # ---- batches

    async def _batch(self, run: Run[Job]) -> bool:
        jobs: list[Job] = []
        values: list[Any] = []
        for job in run.jobs:
            if not await self._may_begin(job):
                self.work.dropped([job])
                continue
            try:
                values.append(self.attempts.value(job))
                jobs.append(job)
            except Undecodable as error:  # parked at once; the others are handled without it
                self.work.failed(Run([job], None), 0, error, [])
        if not jobs:
            return True
        whole = Run(jobs, run.lane)
        began = time.monotonic()
        try:
            written = await self.attempts.batch(values, [job.message() for job in jobs])
            if self.forked:
                self._leave_child()
            await self._written([self._write(record) for record in written])
        except BaseException as error:  # noqa: BLE001 - judged below, whatever it is
            self._reraise_ours(error)
            return self._batch_failed(run, whole, error)
        self.work.completed(jobs)
        for job in jobs if self.work.observers else ():
            self._tell(job, "handled", None, time.monotonic() - began)
        return True

    def _batch_failed(self, run: Run[Job], whole: Run[Job], error: BaseException) -> bool:
        failed = set(range(len(whole.jobs)))
        errors: dict[int, BaseException] = {}
        if isinstance(error, PartialFailure) and error.failed:
            failed &= set(error.failed)
            errors = error.errors
        self.work.completed([job for at, job in enumerate(whole.jobs) if at not in failed])
        reasons = [errors.get(at, error) for at in range(len(whole.jobs)) if at in failed]
        whole.jobs = [job for at, job in enumerate(whole.jobs) if at in failed]
        if self._in_order:
            return self.work.batch_failed(whole, error)
        for at, reason in enumerate(reasons):
            self.work.failed(whole, at, reason, [])
        return True


class _Acknowledged:
    """Completes a record when all that it led to is written."""

    __slots__ = ("_job", "_left", "_lock", "_work")

    def __init__(self, work: Work, job: Job, deliveries: Deliveries) -> None:
        self._work, self._job = work, job
        self._left = len(deliveries)
        self._lock = threading.Lock()
        for delivery in deliveries:
            delivery.add_done_callback(self._one)

    def _one(self, delivery: Future[Sent]) -> None:
        error = delivery.exception()
        with self._lock:
            if self._left <= 0:
                return
            self._left = -1 if error is not None else self._left - 1
            left = self._left
        if error is not None:
            self._work.failed(Run([self._job], None), 0, error, [])
        elif not left:
            self._work.completed([self._job])


class LoopSlots(Slots):
    """For coroutines: tasks of one loop."""

    def __init__(self, work: Work, *, write: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: deque[asyncio.Future[None]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = False
        super().__init__(work, write=write)

    def wake(self, ready: int) -> None:
        if not self._woken:  # one call is enough for all that comes until the loop's next turn
            self._woken = True
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._woken = False
        if self.stopped:
            return
        wanted = max(1, self.work.lanes.ready)
        while wanted and self._idle:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                wanted -= 1
        while wanted and len(self._tasks) < self.concurrency:
            task = self._loop.create_task(self._slot())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            wanted -= 1

    async def _slot(self) -> None:
        turn = time.monotonic()
        while not self.stopped:
            run = self.work.take()
            if run is None:
                idle: asyncio.Future[None] = self._loop.create_future()
                self._idle.append(idle)
                await idle
                turn = time.monotonic()
                continue
            await self.handle(run)
            now = time.monotonic()
            if now - turn > REPORT_S:
                await asyncio.sleep(0)  # handlers that never wait must not keep the loop
                turn = time.monotonic()

    async def _written(self, deliveries: Deliveries) -> None:
        for delivery in deliveries:
            if delivery.done():
                delivery.result()
            else:
                await asyncio.wrap_future(delivery, loop=self._loop)

    async def _ended(self, future: Future[None]) -> None:
        await asyncio.wrap_future(future, loop=self._loop)

    async def _rest(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def stop(self) -> None:
        """Cancel what is still under way."""
        self.stopped = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ThreadSlots(Slots):
    """For plain functions: threads."""

    def __init__(self, work: Work, *, write: Any) -> None:
        if work.subscription.concurrency > MOST_THREADS:
            raise ValueError(
                f"{work.subscription.name}: plain functions run on threads, {MOST_THREADS} at "
                "most; set concurrency lower or make it a coroutine."
            )
        self._condition = threading.Condition(threading.Lock())
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._wanted = 0
        self.interruptions: list[Interruption] = []
        super().__init__(work, write=write)

    def wake(self, ready: int) -> None:
        with self._condition:
            if self.stopped:
                return
            self._wanted = max(1, ready)
            if self._idle:
                self._condition.notify(self._wanted)
            missing = min(self._wanted - self._idle, self.concurrency - len(self._threads))
            for _ in range(missing):
                self._start_thread()

    def _start_thread(self) -> None:
        name = f"headrace-{self.work.subscription.name}-{len(self._threads)}"
        thread = threading.Thread(target=self._slot, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _slot(self) -> None:
        limit = self.attempts.time_limit_s
        mine = _limits.mine = Interruption() if limit is not None else None
        if mine is not None:
            self.interruptions.append(mine)
        while not self.stopped:
            run = self.work.take()
            if run is not None:
                _driven(self.handle(run))
                continue
            with self._condition:
                if self._wanted:
                    self._wanted = 0  # look once more: something came after we looked
                    continue
                self._idle += 1
                self._condition.wait()
                self._idle -= 1

    async def _attempted(self, job: Job) -> Written:
        mine = _limits.mine
        if mine is None:
            return await self.attempts.one(job)
        limit = self.attempts.time_limit_s
        assert limit is not None
        return mine.within(limit, lambda: _driven(self.attempts.one(job)), self.attempts.timed_out)

    async def _written(self, deliveries: Deliveries) -> None:
        for delivery in deliveries:
            delivery.result()

    async def _ended(self, future: Future[None]) -> None:
        future.result()

    async def _rest(self, seconds: float) -> None:
        time.sleep(seconds)

    def interrupt_late(self) -> None:
        """Called often: ends attempts that are over their time limit."""
        for one in self.interruptions:
            one.look(time.monotonic())

    def stop(self, timeout_s: float) -> None:
        with self._condition:
            self.stopped = True
            self._condition.notify_all()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


class _Limits(threading.local):
    mine: Interruption | None = None


_limits = _Limits()


def _driven(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("A plain function's slot waited for a loop.")
