"""How a run of records is handled: one by one, as a batch, or in one transaction.

The same code serves coroutines on a loop and plain functions on threads (slots.py): on threads
every wait blocks, so nothing suspends. A handler may raise anything: SystemExit of a handler ends
its attempt, not the worker.
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

from headrace.app.attempts.attempts import Attempts, Duplicate, Written
from headrace.app.decoding import Undecodable
from headrace.app.dispatch.lanes import Run
from headrace.app.dispatch.record_in_hand import RecordInHand
from headrace.app.message import Message, PartialFailure
from headrace.app.observation.observer import Outcome, forgiven
from headrace.app.worker.subscription_runner import SubscriptionRunner
from headrace.client.errors import ClientError
from headrace.client.records import HeaderList, Sent

log = logging.getLogger("headrace.app")

# Finished records are reported, and the loop can run other tasks, at least this often.
REPORT_S = 0.005
LEASE_LOOK_S = 0.01


Deliveries = Sequence["Future[Sent]"]
NOTHING: Written = []  # of a handler without a result


class Handling:
    """Runs the handler of one subscription; its two subclasses say how to wait."""

    def __init__(self, runner: SubscriptionRunner, *, write: Any) -> None:
        self.runner = runner
        self.attempts = Attempts(runner, make_safe=self._make_safe)
        self.concurrency = runner.subscription.concurrency
        self.stopped = False
        self.forked = False
        self._write = write  # Outgoing -> Future[Sent]
        self._in_order = runner.subscription.order_by is not None
        runner.wake = self.wake

    def wake(self, ready: int) -> None:
        raise NotImplementedError

    async def _written(self, deliveries: Deliveries) -> None:
        """Wait for these; raises the reason if one was not written."""
        raise NotImplementedError

    async def _ended(self, future: Future[None]) -> None:
        raise NotImplementedError

    async def _rest(self, seconds: float) -> None:
        raise NotImplementedError

    async def _attempted(self, record: RecordInHand) -> Written:
        return await self.attempts.one(record)

    async def _attempted_batch(self, values: list[Any], messages: list[Message]) -> Written:
        return await self.attempts.batch(values, messages)

    async def _guarded(self, record: RecordInHand) -> Written:
        try:
            return await self._attempted(record)
        finally:
            if self.forked:
                self._leave_child()

    def _leave_child(self) -> None:
        """A handler forked and the child returned from it: the child must not act as a worker."""
        log.error("%s forked; the child ends where the handler ends", self.runner.subscription.name)
        os._exit(0)

    # ---- one run

    async def handle(self, run: Run[RecordInHand]) -> None:
        started = time.monotonic()
        if self.runner.subscription.exactly_once:
            over = await self._exactly_once(run)
        elif self.runner.subscription.batch is not None:
            over = await self._batch(run)
        elif self.attempts.simple:
            over = await self._simple(run)
        else:
            over = await self._one_by_one(run)
        if over:
            self.runner.ended(run, time.monotonic() - started)

    async def _simple(self, run: Run[RecordInHand]) -> bool:
        """Handle records with a handler of values only. Returns whether all of the run was
        handled."""
        runner, handler, asynchronous = (
            self.runner, self.attempts.plan.handler, self.attempts.plan.asynchronous,
        )  # fmt: skip
        decode = self.attempts.decoder(run.records[0].stream.owned.topic)
        topic = run.records[0].stream.owned.topic
        done: list[RecordInHand] = []
        pending: list[tuple[int, Deliveries]] = []
        reported = time.monotonic()
        for at, record in enumerate(run.records):
            owned = record.stream.owned
            doubtful = owned.closing or reported > runner.lease_until
            if doubtful and not await self._may_begin(record):
                if not await self._left_out(run, record, pending):
                    return False
                continue
            if owned.topic != topic:
                topic, decode = owned.topic, self.attempts.decoder(owned.topic)
            try:
                result = handler(decode(record.native.value()))
                if asynchronous:
                    result = await result
                if self.forked:
                    self._leave_child()
                if result is None:
                    written = NOTHING
                else:
                    results = result if isinstance(result, list) else [result]
                    written = self.attempts.results_of(results, record.message())
                if result is None and not pending:
                    done.append(record)
                else:
                    self._publish(at, record, written, pending)
            except BaseException as error:  # noqa: BLE001 - judged below, whatever it is
                self._reraise_ours(error)
                runner.completed(done)
                done = []
                if not await self._failed(run, at, error, pending, []):
                    return False
                continue
            now = time.monotonic()
            if now - reported > REPORT_S:
                runner.completed(done)
                done = []
                self._complete_written(run, pending)
                reported = now
        runner.completed(done)
        return await self._results_are_safe(run, pending)

    async def _one_by_one(self, run: Run[RecordInHand]) -> bool:
        runner = self.runner
        pending: list[tuple[int, Deliveries]] = []
        reported = time.monotonic()
        for at, record in enumerate(run.records):
            if not await self._may_begin(record):
                if not await self._left_out(run, record, pending):
                    return False
                continue
            began = time.monotonic()
            if pending and began - reported > REPORT_S:
                self._complete_written(run, pending)
                reported = began
            outcome: Outcome
            failure: BaseException | None = None
            go_on = True
            try:
                try:
                    written = await self._guarded(record)
                    outcome = "handled"
                except Duplicate:
                    runner.stats.duplicates += 1
                    runner.said.known(record)
                    written = self.attempts.confirmation(record.message())
                    outcome = "duplicate"
                self._publish(at, record, written, pending)
            except BaseException as error:  # noqa: BLE001 - judged below, whatever it is
                self._reraise_ours(error)
                failure = error
                more = self.attempts.left_by(record) if runner.observers else []
                if not await self._results_are_safe(run, pending):
                    return False
                pending.clear()
                decided = runner.failed(run, at, error, more)
                outcome, go_on = decided.outcome, decided.goes_on
            if runner.observers:
                self._tell(record, outcome, failure, time.monotonic() - began)
            if not go_on:
                return False
        return await self._results_are_safe(run, pending)

    def _tell(
        self, record: RecordInHand, outcome: Outcome, error: BaseException | None, seconds: float
    ) -> None:
        message = record.message()
        for observer in self.runner.observers:
            with forgiven(observer):
                observer.ended(self.runner.subscription, message, outcome, error, seconds)

    async def _may_begin(self, record: RecordInHand) -> bool:
        """Wait until the record may begin; False if its partition goes to another worker."""
        while not record.stream.owned.closing:
            if self.runner.may_begin():
                return True
            await self._rest(LEASE_LOOK_S)
        return False

    async def _left_out(
        self, run: Run[RecordInHand], record: RecordInHand, pending: list[tuple[int, Deliveries]]
    ) -> bool:
        """The record may not begin. First write the results that are pending: if that fails, the
        rest of the run fails too. Returns whether the run continues.
        """
        if not await self._results_are_safe(run, pending):
            return False
        pending.clear()
        self.runner.not_begun([record])
        return True

    def _reraise_ours(self, error: BaseException) -> None:
        """Raise if this worker is being stopped: that is not a failure of the handler."""
        if self.stopped and isinstance(error, asyncio.CancelledError | GeneratorExit):
            raise error

    async def _failed(
        self,
        run: Run[RecordInHand],
        at: int,
        error: BaseException,
        pending: list[tuple[int, Deliveries]],
        more: HeaderList,
    ) -> bool:
        """Report a failed attempt; returns whether the run continues."""
        if not await self._results_are_safe(run, pending):
            return False
        pending.clear()
        return self.runner.failed(run, at, error, more).goes_on

    # ---- results of the handler to publish

    def _publish(
        self, at: int, record: RecordInHand, written: Written, pending: list[tuple[int, Deliveries]]
    ) -> None:
        if not written and not pending:  # in order, pending earlier ones come first
            self.runner.completed([record])
            return
        self.runner.stats.published += len(written)
        deliveries: list[Future[Sent]] = [self._write(outgoing) for outgoing in written]
        if self._in_order:
            pending.append((at, deliveries))
        else:
            _Acknowledged(self.runner, record, deliveries)

    async def _make_safe(self, written: Written) -> None:
        """Write these and wait; raises the reason if one was not written."""
        self.runner.stats.published += len(written)
        await self._written([self._write(outgoing) for outgoing in written])

    def _complete_written(
        self, run: Run[RecordInHand], pending: list[tuple[int, Deliveries]]
    ) -> None:
        """Complete the first pending records that are written: a run of slow handlers takes
        minutes, which a crash would repeat. Records that were not written are judged at the end.
        """
        count = 0
        for _, deliveries in pending:
            if not all(each.done() and each.exception() is None for each in deliveries):
                break
            count += 1
        self.runner.completed([run.records[at] for at, _ in pending[:count]])
        del pending[:count]

    async def _results_are_safe(
        self, run: Run[RecordInHand], pending: list[tuple[int, Deliveries]]
    ) -> bool:
        """Wait for published records, source record by source record; False if a source record
        failed because of them and the rest of the run with it."""
        for at, deliveries in pending:
            try:
                await self._written(deliveries)
            except ClientError as error:
                if not self.runner.failed(run, at, error, []).goes_on:
                    return False
                continue  # given up; without dead letters there is no wait
            self.runner.completed([run.records[at]])
        return True

    # ---- exactly once

    async def _exactly_once(self, run: Run[RecordInHand]) -> bool:
        """Write all results of a run, and the offsets, in one transaction of the polling thread."""
        runner = self.runner
        results: list[tuple[RecordInHand, Written]] = []
        over, at = True, 0
        while at < len(run.records):
            record = run.records[at]
            if not await self._may_begin(record):
                runner.not_begun([record])
                at += 1
                continue
            error: BaseException | None = None
            try:
                results.append((record, await self._guarded(record)))
            except BaseException as raised:  # noqa: BLE001 - judged below, whatever it is
                self._reraise_ours(raised)
                error = raised
            if error is not None:
                more = self.attempts.left_by(record) if runner.observers else []
                instead = runner.failed_exactly_once(run, at, error, more)
                if instead is not None:
                    results.append((record, instead))
                elif self._in_order:
                    over = False
                    break
            at += 1
        if results:
            ended: Future[None] = Future()
            runner.transact(results, lambda: ended.set_result(None))
            await self._ended(ended)
            runner.transacted([record for record, _ in results])
            runner.stats.published += sum(len(written) for _, written in results)
        return over

    # ---- batches

    async def _batch(self, run: Run[RecordInHand]) -> bool:
        records: list[RecordInHand] = []
        values: list[Any] = []
        for record in run.records:
            if not await self._may_begin(record):
                self.runner.not_begun([record])
                continue
            try:
                values.append(self.attempts.value(record))
                records.append(record)
            except Undecodable as error:  # parked at once; the others are handled without it
                self.runner.failed(Run([record], None), 0, error, [])
        if not records:
            return True
        whole = Run(records, run.lane)
        began = time.monotonic()
        try:
            messages = [record.message() for record in records]
            written = await self._attempted_batch(values, messages)
            if self.forked:
                self._leave_child()
            await self._written([self._write(outgoing) for outgoing in written])
        except BaseException as error:  # noqa: BLE001 - judged below, whatever it is
            self._reraise_ours(error)
            return self._batch_failed(run, whole, error)
        self.runner.completed(records)
        for record in records if self.runner.observers else ():
            self._tell(record, "handled", None, time.monotonic() - began)
        return True

    def _batch_failed(
        self, run: Run[RecordInHand], whole: Run[RecordInHand], error: BaseException
    ) -> bool:
        places = range(len(whole.records))
        failed = set(places)
        errors: dict[int, BaseException] = {}
        # An index outside the batch cannot be matched to a record: then all records have failed.
        if isinstance(error, PartialFailure) and all(at in places for at in error.failed):
            failed = {at for at in places if at in error.failed} or failed
            errors = error.errors
        self.runner.completed(
            [record for at, record in enumerate(whole.records) if at not in failed]
        )
        reasons = [errors.get(at, error) for at in range(len(whole.records)) if at in failed]
        whole.records = [record for at, record in enumerate(whole.records) if at in failed]
        if self._in_order:
            return self.runner.batch_failed(whole, error).goes_on
        for at, reason in enumerate(reasons):
            self.runner.failed(whole, at, reason, [])
        return True


class _Acknowledged:
    """Completes a record when all its results are written."""

    __slots__ = ("_record", "_left", "_lock", "_runner")

    def __init__(
        self, runner: SubscriptionRunner, record: RecordInHand, deliveries: Deliveries
    ) -> None:
        self._runner, self._record = runner, record
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
            self._runner.failed(Run([self._record], None), 0, error, [])
        elif not left:
            self._runner.completed([self._record])
