"""The one owner of long jobs: threads of their own, few at once, bounded memory of ended ones.

A job stops between two steps: when the console stops, when the session of its user ends, or when a
user stops it. Every kind of work records how far it is in the cluster, so that the same action goes
on from there. One job at a time for each subject.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from headrace.client.errors import ClientError
from headrace.console.access.cluster_access import TooBusy

log = logging.getLogger("headrace.console.jobs")

REDRIVE, BACKLOG = "redrive", "backlog"
KINDS = (REDRIVE, BACKLOG)
# Jobs of one kind: jobs last for hours, and those of the other kind must not wait for them.
MOST_AT_ONCE = 4
MOST_REMEMBERED = 50

Subject = tuple[str, ...]  # what it works on; the kind comes first
Each = TypeVar("Each")


class Work(Protocol):
    """The work of a job. Its own fields say how far it is; pages read them meanwhile."""

    def steps(self) -> Iterator[None]:
        """Runs on a thread; it may be ended at each step."""


@dataclass(slots=True)
class Job:
    id: int
    subject: Subject
    by: str
    work: Any  # a `Work`; its page knows which
    began_ms: int
    ended_ms: int | None = None
    failure: str = ""
    stopped_by: str = ""  # who asked it to stop
    owner: object = None  # whose login it uses; None: the console's own

    @property
    def is_over(self) -> bool:
        return self.ended_ms is not None


class Jobs:
    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._numbers = itertools.count(1)
        self._jobs: OrderedDict[int, Job] = OrderedDict()
        self._tasks: set[asyncio.Future[None]] = set()
        # Threads of their own: jobs last for hours, and logins wait for no job.
        self._threads = ThreadPoolExecutor(
            MOST_AT_ONCE * len(KINDS), thread_name_prefix="console-job"
        )
        self._is_closed = False

    def of(self, *subject: str) -> list[Job]:
        """The jobs whose subject begins with this, the newest first."""
        return [
            job for job in reversed(self._jobs.values()) if job.subject[: len(subject)] == subject
        ]

    def start(
        self,
        subject: Subject,
        by: str,
        work: Work,
        *,
        owner: object = None,
        taken: str = "That is under way already; stop that first.",
        on_end: Callable[[Job], None] | None = None,
    ) -> Job:
        """Raises ClientError with the text `taken` if a job already has this subject. `on_end` is
        called on the event loop when the job ends."""
        assert subject[0] in KINDS, "each kind has its threads"
        running = [job for job in self.of(subject[0]) if not job.is_over]
        if any(job.subject == subject for job in running):
            raise ClientError(taken)
        if len(running) >= MOST_AT_ONCE:
            raise TooBusy("Several such jobs are under way in this console; wait for one to end.")
        job = Job(next(self._numbers), subject, by, work, self._wall_ms(), owner=owner)
        self._forget_some()
        self._jobs[job.id] = job
        task = asyncio.get_running_loop().run_in_executor(self._threads, self._run, job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if on_end is not None:
            task.add_done_callback(lambda _: on_end(job))
        return job

    def _forget_some(self) -> None:
        over = [each.id for each in self._jobs.values() if each.is_over]
        for id in over[: max(len(self._jobs) + 1 - MOST_REMEMBERED, 0)]:
            del self._jobs[id]

    def get(self, id: int) -> Job | None:
        return self._jobs.get(id)

    def stop(self, job: Job, by: str) -> None:
        if not job.is_over:
            job.stopped_by = by

    def stop_all_of(self, owner: object) -> None:
        """Stops the jobs of an owner whose session is over: they must not go on with its rights."""
        for job in self._jobs.values():
            if job.owner is owner:
                self.stop(job, "the end of the session")

    async def close(self) -> None:
        self._is_closed = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, job: Job) -> None:
        try:
            with ending(job.work.steps()) as steps:
                for _ in steps:
                    if job.stopped_by or self._is_closed:
                        break
        except ClientError as failure:
            job.failure = str(failure)
        except Exception:
            log.exception("a job failed: %.500r", job.subject)
            job.failure = "this is a mistake in the console; its log says more"
        finally:
            job.ended_ms = self._wall_ms()


@contextmanager
def ending(steps: Iterator[Each]) -> Iterator[Iterator[Each]]:
    """However the loop over them ends, a generator releases its resources at once."""
    try:
        yield steps
    finally:
        close = getattr(steps, "close", None)
        if close is not None:
            close()
