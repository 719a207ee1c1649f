"""A running app: the polling thread, the handlers' loop or threads, and their shared state.

The polling thread reads and commits (intake.py); handlers that are coroutines run on one loop,
which is the caller's own in `app.serve()` and otherwise a thread's; plain functions run on threads
(slots.py). `stop` drains within the app's limit, commits and leaves the group.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.app.attempts.slots import LoopSlots, ThreadSlots
from headrace.app.attempts.watchdog import Watchdog
from headrace.app.names import retry_topic
from headrace.app.retries.delay_service import Delaying
from headrace.app.retries.topics import AppTopics, ensure_confirmations
from headrace.app.subscription import Subscription
from headrace.app.worker.intake import WorkerIntake
from headrace.app.worker.queue_intake import QueueIntake
from headrace.app.worker.subscription_runner import Ended, SubscriptionRunner
from headrace.app.worker.timers import Timers
from headrace.client.errors import ClientError
from headrace.client.records import Outgoing

if TYPE_CHECKING:
    from headrace.app.app import App

log = logging.getLogger("headrace.app")

# How long handlers of a revoked partition may still run.
REVOKE_WAIT_S = 10.0
LOOK_FOR_TOPICS_S = 30.0
# How long a cancelled handler may still run; then the worker ends without it.
CANCEL_WAIT_S = 10.0


class Worker:
    def __init__(self, app: App, loop: asyncio.AbstractEventLoop | None = None) -> None:
        if not app.subscriptions:
            raise ValueError("The app handles nothing yet: give it a handler with @app.on(topic).")
        self.app = app
        self.failure: BaseException | None = None
        self.started = threading.Event()  # set by the first assignment or a failure
        self._timers = Timers()
        self._hurry = False
        self.impatient = False  # a test that moves the clock needs it to be seen at once
        self._own_loop = loop is None
        self._loop = loop or asyncio.new_event_loop()
        self._chance = random.Random(app.seed)
        self._stopping = threading.Event()
        self._look_at = 0.0
        self._watchdog = Watchdog(self._loop)
        self._delaying = Delaying(app.connection, mode=app.delay)
        self._slots: list[LoopSlots | ThreadSlots] = []
        self.runners: list[SubscriptionRunner] = []

    # ---- what runners ask for (subscription_runner.Outlet)

    def write(self, record: Outgoing[Any, Any], ended: Ended) -> None:
        try:
            delivery = self.app.sender.put(record)
        except ClientError as error:
            ended(error)
            return
        delivery.add_done_callback(lambda done: ended(done.exception()))

    def after(self, due_ms: int, do: Callable[[], None]) -> None:
        self._timers.at(due_ms, do)

    def next_wake_ms(self) -> int | None:
        """The time when something that waits here is due."""
        due = [self._timers.next_ms(), *(runner.next_wake_ms() for runner in self.runners)]
        return min((each for each in due if each is not None), default=None)

    def hurry(self) -> None:
        self._hurry = True

    # ---- the beginning

    def start(self) -> None:
        """Returns when the topics exist and the threads run; raises the reason if they cannot."""
        app = self.app
        topics = AppTopics(
            app.connection, group=app.group, dead_letters_keep_ms=app.dead_letters_keep_ms
        )
        self._topics = topics
        self._sources = topics.sources(app.subscriptions)
        self._counts = topics.ensure(self._sources)
        if any(each.confirm for each in app.subscriptions):
            ensure_confirmations(app.connection)
        self._make_runners()
        self._enable_delays(self._sources)
        self.intake = self._new_intake()
        for subscription in app.subscriptions:
            if subscription.once is not None:
                subscription.once.prepare(app.group)
        _workers.add(self)
        self.intake.subscribe(self._sources)
        log.info(
            "joining group %s to handle %s; partitions of a crashed member can take "
            "%s to move here",
            app.group, ", ".join(self._sources) or "topics to come",
            self.intake.session_text,
        )  # fmt: skip
        if self._own_loop:
            self._loop_thread = threading.Thread(
                target=self._run_loop, name="headrace-handlers", daemon=True
            )
            self._loop_thread.start()
        self._thread = threading.Thread(target=self._poll, name="headrace-polling", daemon=True)
        self._thread.start()

    def _new_intake(self) -> WorkerIntake | QueueIntake:
        app = self.app
        if app.subscriptions[0].queue:  # and so are the others: `App.add` sees to it
            return QueueIntake(
                app.connection,
                group=app.group,
                start_from=app.start_from,
                runners=self.runners,
                loop_work=self._loop_work,
            )
        return WorkerIntake(
            app.connection,
            group=app.group,
            start_from=app.start_from,
            runner_for=self._runner_for,
            ensure=self._ensure,
            loop_work=self._loop_work,
            revoke_wait_s=REVOKE_WAIT_S,
            fetch_wait_ms=app.fetch_wait_ms,
        )

    def _make_runners(self) -> None:
        for subscription in self.app.subscriptions:
            runner = SubscriptionRunner(
                subscription,
                group=self.app.group,
                outlet=self,
                clock=self.app.clock,
                chance=self._chance,
                observers=self.app.observers,
            )
            put = self.app.sender.put
            slots: LoopSlots | ThreadSlots
            if subscription.plan.asynchronous:
                slots = LoopSlots(runner, write=put, loop=self._loop)
            else:
                slots = ThreadSlots(runner, write=put)
            self._slots.append(slots)
            self.runners.append(runner)

    def _enable_delays(self, sources: dict[str, Subscription]) -> None:
        app = self.app
        if app.delay == "off":
            return
        waiting = [t for t, s in sources.items() if s.needs_delay_service]
        if waiting:
            self._delaying.enable(retry_topic(topic, app.group) for topic in waiting)
        for runner in self.runners:
            runner.dispatcher.delayed = runner.subscription.needs_delay_service

    def _ensure(self, topic: str, partition: int) -> None:
        """Make the retry partition of a partition that was added, or of a topic created after our
        start."""
        if partition >= self._counts.get(topic, 0):
            self._counts |= self._topics.ensure({topic: self._runner_for(topic).subscription})

    def _look_for_topics(self) -> None:
        """Find topics that were created since and match a pattern."""
        now = time.monotonic()
        patterns = any(t.startswith("^") for s in self.app.subscriptions for t in s.topics)
        if not patterns or now < self._look_at:
            return
        self._look_at = now + LOOK_FOR_TOPICS_S
        try:
            found = self._topics.sources(self.app.subscriptions)
            new = {topic: s for topic, s in found.items() if topic not in self._sources}
            if new:
                self._counts |= self._topics.ensure(new)
                self._enable_delays(new)
                self._sources = found
                self.intake.subscribe(found)
        except ClientError as failure:
            log.warning("could not look for new topics: %s", failure)

    def _runner_for(self, topic: str) -> SubscriptionRunner:
        for runner in self.runners:
            if runner.subscription.matches(topic):
                return runner
        raise LookupError(f"No handler for {topic}.")

    # ---- the polling thread

    def _poll(self) -> None:
        try:
            self.intake.run()
            self.intake.drain(self.app.drain_ms / 1000)
        except BaseException as failure:  # raised again where the caller waits for the worker
            self.failure = failure
            if isinstance(failure, ClientError):
                log.error("the worker stops: %s", failure)
            else:
                log.exception("the worker failed and stops")
            self._leave_after_a_failure()
        finally:
            self._stopping.set()
            self.started.set()

    def _leave_after_a_failure(self) -> None:
        try:
            self.intake.close()
        except Exception as another:  # noqa: BLE001 - the first failure says more
            log.debug("the group could not be left: %s", another)

    def _loop_work(self) -> bool:
        """The work of one turn besides reading; returns whether the next turn should come soon."""
        now_ms = self.app.clock()
        self._timers.run_due(now_ms)
        for runner in self.runners:
            runner.tick(now_ms)
        self._look_for_topics()
        if self.intake.assigned_once:
            self.started.set()
        for slots in self._slots:
            if isinstance(slots, ThreadSlots):
                slots.interrupt_late()
        self._watchdog.look()
        if self._hurry or self.impatient:
            self._hurry = False
            return True
        next_ms = self.next_wake_ms()
        if next_ms is not None and next_ms - now_ms < 50:
            return True
        if any(r.subscription.exactly_once and r.stats.in_flight for r in self.runners):
            return True
        return self.intake.must_hurry

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._watchdog.begin()
        self._loop.run_forever()
        # Our own tasks that a blocking handler has kept from beginning: end them before they begin.
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        for task in asyncio.all_tasks(self._loop):
            # It catches its cancellation, and `_cancel` has logged that it is given up: asyncio
            # need not log "Task was destroyed but it is pending!" some time later.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._loop.close()

    def watch_loop(self) -> None:
        """Called on the loop, if it is the caller's."""
        self._watchdog.begin()

    def forked(self) -> None:
        """A handler forked: the child has none of our threads and must not act as a worker."""
        for slots in self._slots:
            slots.forked = True

    # ---- the end

    def abandon(self) -> None:
        """Release everything after a failed start."""
        self._delaying.close()
        if self._own_loop and not self._loop.is_running():
            self._loop.close()

    def stop(self) -> None:
        """Drain, commit, leave; then end the slots."""
        self.intake.stopping = True
        self._thread.join()
        for slots in self._slots:
            if isinstance(slots, ThreadSlots):
                slots.stop(timeout_s=0.1)
            else:
                self._cancel(slots)
        if self._own_loop:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop_thread.join(1)
        self._delaying.close()
        for runner in self.runners:
            runner.said.close()
        for subscription in self.app.subscriptions:
            if subscription.once is not None:
                subscription.once.close()

    def _cancel(self, slots: LoopSlots) -> None:
        """Wait for a limited time: a handler may block the loop, or catch its cancellation."""
        stopped = asyncio.run_coroutine_threadsafe(slots.stop(), self._loop)
        try:
            stopped.result(CANCEL_WAIT_S)
        except TimeoutError:
            name = slots.runner.subscription.name
            log.warning("%s does not end, although it was cancelled: it is given up", name)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the worker has stopped by itself, which it does only after a failure."""
        return self._stopping.wait(timeout_s)


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


def _in_child() -> None:
    for worker in list(_workers):
        worker.forked()


os.register_at_fork(after_in_child=_in_child)
