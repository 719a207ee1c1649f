"""Redrives in the background: who may stop them, what is remembered, what a failure leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import cast

from headrace.console import redrive_jobs
from headrace.console.redrive_jobs import RedriveJobs
from headrace.services.redrive.letters import DeadLetter
from headrace.services.redrive.service import Step

PATIENCE_S = 60


def no_steps() -> Iterator[Step]:
    return iter(())


async def over(jobs: RedriveJobs, but: frozenset[asyncio.Future[None]] = frozenset()) -> None:
    """Until all jobs have ended, but for these."""
    await asyncio.wait_for(asyncio.gather(*jobs._tasks - but), PATIENCE_S)


def test_a_job_that_runs_is_never_forgotten() -> None:
    async def story() -> None:
        jobs, go_on = RedriveJobs(lambda: 7), threading.Event()

        def waits() -> Iterator[Step]:
            go_on.wait(60)
            yield from ()

        first = jobs.start("first", "ann", 1, waits)
        waiting = frozenset(jobs._tasks)
        for number in range(redrive_jobs.MOST_REMEMBERED * 2):
            jobs.start(f"t{number}", "ann", 1, no_steps)
            await over(jobs, but=waiting)
        assert jobs.get(first.id) is first and jobs.of("first") == [first]
        assert len(jobs._jobs) <= redrive_jobs.MOST_REMEMBERED
        go_on.set()
        await over(jobs)
        await jobs.close()

    asyncio.run(story())


def test_a_mistake_is_told_and_ends_the_job() -> None:
    async def story() -> None:
        jobs = RedriveJobs(lambda: 7)

        def mistaken() -> Iterator[Step]:
            raise ZeroDivisionError
            yield

        job = jobs.start("t", "ann", 1, mistaken)
        await over(jobs)
        assert "mistake in the console" in job.failure
        await jobs.close()

    asyncio.run(story())


def test_a_job_ends_with_the_session_of_its_person() -> None:
    async def story() -> None:
        jobs, ann, told = RedriveJobs(lambda: 7), object(), threading.Event()

        def endless() -> Iterator[Step]:
            while True:
                told.wait(60)
                yield Step(cast(DeadLetter, None))

        job = jobs.start("t", "ann", 1, endless, ann)
        jobs.stop_all_of(object())
        assert job.stopped_by != "the end of the session"
        jobs.stop_all_of(ann)
        told.set()
        await over(jobs)
        assert job.stopped_by == "the end of the session"
        await jobs.close()

    asyncio.run(story())
