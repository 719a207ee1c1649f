"""Letters that are sent again at a rate, in the background, with progress that pages show.

One at a time for each topic, few at once, and each stops when the console does, when its person
logs out or when somebody says so: what was sent is recorded (`services/redrive`), so the same
action goes on from there.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from headrace.client.errors import ClientError
from headrace.console.access.cluster_access import TooBusy
from headrace.services.redrive.service import Step

log = logging.getLogger("headrace.console.redrive")

MOST_AT_ONCE = 4
MOST_REMEMBERED = 50
MOST_REFUSALS = 20


@dataclass(slots=True)
class RedriveJob:
    id: int
    topic: str
    by: str
    rate: float  # letters per second
    began_ms: int
    sent: int = 0
    refused: int = 0
    refusals: list[str] = field(default_factory=list)  # the first few
    ended_ms: int | None = None
    failure: str = ""
    stopped_by: str = ""  # who told it to stop
    owner: object = None  # whose login it uses; None: the console's own

    @property
    def is_over(self) -> bool:
        return self.ended_ms is not None


class RedriveJobs:
    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._numbers = itertools.count(1)
        self._jobs: OrderedDict[int, RedriveJob] = OrderedDict()
        self._tasks: set[asyncio.Future[None]] = set()
        # Threads of their own: jobs last for hours, and logins wait for no job.
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="redrive")
        self._is_closed = False

    def of(self, topic: str) -> list[RedriveJob]:
        """The newest first."""
        return [job for job in reversed(self._jobs.values()) if job.topic == topic]

    def start(
        self,
        topic: str,
        by: str,
        rate: float,
        steps: Callable[[], Iterator[Step]],
        owner: object = None,
    ) -> RedriveJob:
        running = [job for job in self._jobs.values() if not job.is_over]
        if any(job.topic == topic for job in running):
            raise ClientError(f"Letters of {topic} are being sent again already; stop that first.")
        if len(running) >= MOST_AT_ONCE:
            raise TooBusy("Letters of several topics are being sent again; wait for one to end.")
        job = RedriveJob(next(self._numbers), topic, by, rate, self._wall_ms(), owner=owner)
        over = [each.id for each in self._jobs.values() if each.is_over]
        for id in over[: max(len(self._jobs) + 1 - MOST_REMEMBERED, 0)]:
            del self._jobs[id]
        self._jobs[job.id] = job
        task = asyncio.get_running_loop().run_in_executor(self._threads, self._run, job, steps)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    def get(self, id: int) -> RedriveJob | None:
        return self._jobs.get(id)

    def stop(self, job: RedriveJob, by: str) -> None:
        if not job.is_over:
            job.stopped_by = by

    def stop_all_of(self, owner: object) -> None:
        """Whose session is over: nothing goes on with their rights."""
        for job in self._jobs.values():
            if job.owner is owner:
                self.stop(job, "the end of the session")

    async def close(self) -> None:
        self._is_closed = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, job: RedriveJob, steps: Callable[[], Iterator[Step]]) -> None:
        found = steps()
        try:
            for step in found:
                if step.refusal:
                    job.refused += 1
                    if len(job.refusals) < MOST_REFUSALS:
                        job.refusals.append(step.refusal)
                else:
                    job.sent += 1
                if job.stopped_by or self._is_closed:
                    break
        except ClientError as failure:
            job.failure = str(failure)
        except Exception:
            log.exception("a redrive of %s failed", job.topic)
            job.failure = "this is a mistake in the console; its log says more"
        finally:
            close = getattr(found, "close", None)
            if close is not None:
                close()
            job.ended_ms = self._wall_ms()
