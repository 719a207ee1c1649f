"""Slots: each handles one run after the other; as many as `concurrency`, made when they are needed.

For coroutines a slot is one long-lived task of the loop: it awaits the handler itself, so a record
costs no task of its own. For plain functions it is a thread; there nothing in the handling
suspends, and the slot runs the coroutine to its end by hand.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from headrace.app.attempts.attempts import Written
from headrace.app.attempts.interruption import Interruption
from headrace.app.attempts.runs import REPORT_S, Deliveries, Handling
from headrace.app.dispatch.record_in_hand import RecordInHand
from headrace.app.message import Message
from headrace.app.worker.subscription_runner import SubscriptionRunner

MOST_THREADS = 256

T = TypeVar("T")


class LoopSlots(Handling):
    """For coroutines: tasks of one loop."""

    def __init__(
        self, runner: SubscriptionRunner, *, write: Any, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._loop = loop
        self._idle: deque[asyncio.Future[None]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = False
        super().__init__(runner, write=write)

    def wake(self, ready: int) -> None:
        if not self._woken:  # one call serves all records until the loop's next turn
            self._woken = True
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._woken = False
        if self.stopped:
            return
        wanted = max(1, self.runner.ready)
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
            run = self.runner.take()
            if run is None:
                idle: asyncio.Future[None] = self._loop.create_future()
                self._idle.append(idle)
                await idle
                turn = time.monotonic()
                continue
            await self.handle(run)
            now = time.monotonic()
            if now - turn > REPORT_S:
                await asyncio.sleep(0)  # handlers that never wait must not block the loop
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
        """Cancel the attempts that are still under way."""
        self.stopped = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ThreadSlots(Handling):
    """For plain functions: threads."""

    def __init__(self, runner: SubscriptionRunner, *, write: Any) -> None:
        if runner.subscription.concurrency > MOST_THREADS:
            raise ValueError(
                f"{runner.subscription.name}: plain functions run on threads, {MOST_THREADS} at "
                "most; set concurrency lower or make it a coroutine."
            )
        self._condition = threading.Condition(threading.Lock())
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._wanted = 0
        self.interruptions: list[Interruption] = []
        super().__init__(runner, write=write)

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
        name = f"headrace-{self.runner.subscription.name}-{len(self._threads)}"
        thread = threading.Thread(target=self._slot, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _slot(self) -> None:
        limit = self.attempts.time_limit_s
        mine = _limits.mine = Interruption() if limit is not None else None
        if mine is not None:
            self.interruptions.append(mine)
        while not self.stopped:
            run = self.runner.take()
            if run is not None:
                _driven(self.handle(run))
                continue
            with self._condition:
                if self._wanted:
                    self._wanted = 0  # check once more: a record came after the check
                    continue
                self._idle += 1
                self._condition.wait()
                self._idle -= 1

    async def _attempted(self, record: RecordInHand) -> Written:
        return self._within_limit(self.attempts.one(record))

    async def _attempted_batch(self, values: list[Any], messages: list[Message]) -> Written:
        return self._within_limit(self.attempts.batch(values, messages))

    def _within_limit(self, attempt: Coroutine[Any, Any, Written]) -> Written:
        mine, limit = _limits.mine, self.attempts.time_limit_s
        if mine is None or limit is None:
            return _driven(attempt)
        return mine.within(limit, lambda: _driven(attempt), self.attempts.timed_out)

    async def _written(self, deliveries: Deliveries) -> None:
        for delivery in deliveries:
            delivery.result()

    async def _ended(self, future: Future[None]) -> None:
        future.result()

    async def _rest(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - runs on a thread, without a loop

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


def _driven(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("A plain function's slot waited for a loop.")
