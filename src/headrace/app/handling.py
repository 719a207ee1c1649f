"""How a run of records is handled: one by one, as a batch, or in one transaction.

The same code serves coroutines on a loop and plain functions on threads (slots.py): for the latter
everything that waits blocks, so nothing suspends. A handler may raise anything: SystemExit of a
handler ends its attempt, not the worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from headrace.app.attempts import Attempts, Duplicate, Written
from headrace.app.decoding import Undecodable
from headrace.app.job import Job
from headrace.app.lanes import Run
from headrace.app.message import PartialFailure
from headrace.app.observing import Outcome, forgiven
from headrace.app.work import Work
from headrace.client.errors import ClientError
from headrace.client.records import HeaderList, Sent

log = logging.getLogger("headrace.app")

# Finished records are reported, and the loop is given a turn, after so long at the latest.
REPORT_S = 0.005
LEASE_LOOK_S = 0.01


Deliveries = Sequence["Future[Sent]"]


class Handling:
    """Of one subscription; its two kinds say how to wait."""

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
                work.said.known(job)
                self._publish(at, job, self.attempts.confirmation(job.message()), pending)
                outcome = "duplicate"
            except BaseException as error:  # noqa: BLE001 - judged below, whatever it is
                self._reraise_ours(error)
                failure = error
                more = self.attempts.left_by(job) if work.observers else []
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
            with forgiven(observer):
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
                more = self.attempts.left_by(job) if work.observers else []
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
