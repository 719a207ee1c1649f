"""Jobs in the background: who may stop them, what is remembered, what a failure leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import pytest

from headrace.client.errors import ClientError
from headrace.console.access.cluster_access import TooBusy
from headrace.console.jobs import owner
from headrace.console.jobs.owner import Job, Jobs
from headrace.console.jobs.redrive import Redrive
from headrace.services.redrive.letters import DeadLetter
from headrace.services.redrive.service import Step

PATIENCE_S = 60


class Nothing:
    def steps(self) -> Iterator[None]:
        yield from ()


@dataclass
class Waits:
    go_on: threading.Event

    def steps(self) -> Iterator[None]:
        self.go_on.wait(PATIENCE_S)
        yield


class Mistaken:
    def steps(self) -> Iterator[None]:
        raise ZeroDivisionError
        yield


@pytest.fixture(autouse=True)
def ended_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Jobs whose console is not closed here would keep their idle threads."""
    pools = []

    def make(*args: Any, **options: Any) -> ThreadPoolExecutor:
        pools.append(ThreadPoolExecutor(*args, **options))
        return pools[-1]

    monkeypatch.setattr(owner, "ThreadPoolExecutor", make)
    yield
    for pool in pools:
        pool.shutdown()


async def over(jobs: Jobs, but: frozenset[asyncio.Future[None]] = frozenset()) -> None:
    """Until all jobs have ended, but for these."""
    await asyncio.wait_for(asyncio.gather(*jobs._tasks - but), PATIENCE_S)


def test_a_job_that_runs_is_never_forgotten() -> None:
    async def story() -> None:
        jobs, go_on = Jobs(lambda: 7), threading.Event()
        first = jobs.start(("redrive", "first"), "ann", Waits(go_on))
        waiting = frozenset(jobs._tasks)
        for number in range(owner.MOST_REMEMBERED * 2):
            jobs.start(("redrive", f"t{number}"), "ann", Nothing())
            await over(jobs, but=waiting)
        assert jobs.get(first.id) is first and jobs.of("redrive", "first") == [first]
        assert len(jobs._jobs) <= owner.MOST_REMEMBERED
        go_on.set()
        await over(jobs)
        await jobs.close()

    asyncio.run(story())


def test_a_mistake_is_told_and_ends_the_job() -> None:
    async def story() -> None:
        jobs, ended = Jobs(lambda: 7), asyncio.Queue[Job]()
        job = jobs.start(("redrive", "t"), "ann", Mistaken(), on_end=ended.put_nowait)
        await over(jobs)
        assert "mistake in the console" in job.failure
        assert await asyncio.wait_for(ended.get(), PATIENCE_S) is job
        await jobs.close()

    asyncio.run(story())


def test_a_job_ends_with_the_session_of_its_person() -> None:
    async def story() -> None:
        jobs, ann, told = Jobs(lambda: 7), object(), threading.Event()

        def endless() -> Iterator[Step]:
            while True:
                told.wait(60)
                yield Step(cast(DeadLetter, None))

        work = Redrive("t", 1, endless)
        job = jobs.start(work.subject, "ann", work, owner=ann)
        jobs.stop_all_of(object())
        assert job.stopped_by != "the end of the session"
        jobs.stop_all_of(ann)
        told.set()
        await over(jobs)
        assert job.stopped_by == "the end of the session"
        assert work.sent == 1
        await jobs.close()

    asyncio.run(story())


def test_one_job_for_each_subject_and_few_of_a_kind() -> None:
    async def story() -> None:
        jobs, go_on = Jobs(lambda: 7), threading.Event()
        for number in range(owner.MOST_AT_ONCE):
            jobs.start(("backlog", "billing", f"t{number}"), "ann", Waits(go_on))
        with pytest.raises(ClientError, match="let it end"):
            jobs.start(("backlog", "billing", "t0"), "bob", Nothing(), taken="let it end")
        with pytest.raises(TooBusy):
            jobs.start(("backlog", "billing", "more"), "bob", Nothing())
        other = jobs.start(("redrive", "t0"), "bob", Waits(go_on))  # another kind has its own
        assert len(jobs.of("backlog", "billing")) == owner.MOST_AT_ONCE
        go_on.set()
        await over(jobs)
        assert other.is_over and jobs.of("redrive") == [other]
        await jobs.close()

    asyncio.run(story())
