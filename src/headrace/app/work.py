"""What becomes of a record that failed: another attempt after a while, or the dead letters.

Short waits are kept in memory. Longer ones go through the retry topic: without order by a delayed
message, in the order of keys with all later records of the key, in a transaction. With the order of
a partition nothing ever leaves its place. A record completes only when what replaces it is written.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Hashable
from typing import Any

from headrace.app.dead_letters import why_headers
from headrace.app.decoding import Undecodable
from headrace.app.flow import Flow
from headrace.app.job import Job
from headrace.app.lanes import Run
from headrace.app.names import dead_topic
from headrace.app.observing import Outcome
from headrace.app.retry import TryLater
from headrace.app.subscription import SHORT_WAIT_MS
from headrace.client.records import HeaderList, Outgoing
from headrace.contract.delay_topics import companion_of
from headrace.contract.headers import DELIVER_AT

log = logging.getLogger("headrace.app")


# Records without order that wait in memory for their next attempt; more go through their topic.
MOST_IN_MEMORY = 1_000
# A record that could not be written for a retry or as a dead letter is written again after this.
WRITE_AGAIN_MS = 1_000
# What a handler waits for is named in the log at most this often.
SAY_LATER_EVERY_MS = 30_000
DROPPED = "dropped, because the handler has no dead letters"


class Work(Flow):
    """The flow of one subscription, with its failures."""

    # ---- failures

    def failed(
        self, run: Run[Job], at: int, error: BaseException, more: HeaderList
    ) -> tuple[Outcome, bool]:
        """The attempt at run.jobs[at] failed. What becomes of it, and whether the run goes on."""
        job = run.jobs[at]
        self._count_failures(error, 1)
        verdict = self.judge(job, error)
        if verdict is None:
            return self._park(run, at, error, more)
        made, wait_ms = verdict
        due_ms = self.clock() + wait_ms
        self.stats.retried += 1
        self._say_failed(job, error, made, wait_ms)
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
        self._count_failures(error, 1)
        verdict = self.judge(job, error)
        if verdict is None:
            if self.subscription.dead_letters:
                return [self.dead_letter(job, error, more)]
            self.said.given_up(job, error, made=job.made + 1, then=DROPPED)
            return []
        made, wait_ms = verdict
        due_ms = self.clock() + wait_ms
        self.stats.retried += 1
        self._say_failed(job, error, made, wait_ms)
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
            self._say_later(error)
            self._put_off(error.after_ms)
            return job.made, error.after_ms
        if isinstance(error, Undecodable):
            return None
        retry = self.subscription.retry
        made = job.made + 1
        if not retry.again(error, made):
            return None
        return made, retry.wait_ms(made, self._chance.random())

    def _say_failed(
        self, job: Job, error: BaseException, made: int, wait_ms: int, of: int = 1
    ) -> None:
        if not isinstance(error, TryLater):  # of that, `_say_later` has spoken
            self.said.failed(job, error, made=made, wait_ms=wait_ms, of=of)

    def _count_failures(self, error: BaseException, count: int) -> None:
        if not isinstance(error, TryLater):  # that one is nobody's failure
            self.stats.failed += count

    def _put_off(self, after_ms: int) -> None:
        now_ms = self.clock()
        with self.lock:
            self.stats.put_off += 1
            heapq.heappush(self._due_again, now_ms + after_ms)
            while self._due_again and self._due_again[0] <= now_ms:
                heapq.heappop(self._due_again)

    def put_off_now(self) -> int:
        """Records that wait because what their handler needs is away."""
        now_ms = self.clock()
        with self.lock:
            return sum(due_ms > now_ms for due_ms in self._due_again)

    def _say_later(self, why: TryLater) -> None:
        """Once for all records that wait for the same reason, and again while it lasts."""
        now_ms = self.clock()
        if now_ms < self._say_later_from_ms:
            return
        self._say_later_from_ms = now_ms + SAY_LATER_EVERY_MS
        log.warning(
            "%s waits, nothing is lost and no attempt is counted: %s", self.subscription.name, why
        )

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
            self.lanes.add_first([job])
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

    # ---- dead letters

    def _park(
        self, run: Run[Job], at: int, error: BaseException, more: HeaderList
    ) -> tuple[Outcome, bool]:
        job = run.jobs[at]
        if not self.subscription.dead_letters:
            self.said.given_up(job, error, made=job.made + 1, then=DROPPED)
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
        self._count_failures(error, len(run.jobs))
        if verdict is not None:
            made, wait_ms = verdict
            self.stats.retried += len(run.jobs)
            self._say_failed(run.jobs[0], error, made, wait_ms, of=len(run.jobs))
            for job in run.jobs:
                job.made = made
            self._hold(run, run.jobs)
            self.outlet.after(self.clock() + wait_ms, lambda: self._release(lane.name))
            return False
        if not self.subscription.dead_letters:
            for job in run.jobs:
                self.said.given_up(job, error, made=job.made + 1, then=DROPPED)
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
        topic = dead_topic(job.owned.topic, self.group)
        self.said.given_up(job, error, made=made, then=f"parked in {topic}")
        return job.copy_for(topic, made=made, first_failed_ms=first_ms, more=why + more)
