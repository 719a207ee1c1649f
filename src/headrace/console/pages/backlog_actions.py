"""The background actions on a group's backlog: begin, stop, show the progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import web

from headrace.client.errors import ClientError
from headrace.console import live
from headrace.console.access.backlog import (
    look_at_widenings,
    plan_expiry,
    plan_parking,
    plan_widening,
    topics_of_group,
)
from headrace.console.access.parked import begin_return
from headrace.console.access.security import require_administrator
from headrace.console.console import Console
from headrace.console.jobs.backlog import (
    AbortWidening,
    BacklogWork,
    BringBack,
    Expire,
    Park,
    Widen,
    subject_of,
)
from headrace.console.jobs.owner import Job
from headrace.console.pages.backlog import (
    USUAL_TIMES,
    ParkDestination,
    begun_cards,
    older_than_ms,
    park_destination,
    rate_in,
    times_in,
    visible_jobs,
    wanted_in,
)
from headrace.console.query import Unreadable, needed, text_in, whole
from headrace.console.renderer import link
from headrace.console.views.backlog_cards import job_card
from headrace.console.views.backlog_commands import BacklogCommands
from headrace.console.views.words import counted
from headrace.wire.contract import durations

PROGRESS_EVERY_S = 1.0
# A widening that runs elsewhere is looked at in the cluster, which costs a dozen questions.
LOOK_EVERY_S = 3.0
LONG_S = 120.0


async def widen(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    group, topic = _named(form)
    times = times_in(form)
    plan = await console.access.ask(plan_widening, group, topic, times)
    line = BacklogCommands(console.commands).widen(topic, group, times)
    work = Widen(console.access.connection, plan, console.by, line)
    said = f"The backlog of {group} goes through {plan.wide_topic}; this page shows how far it is."
    return _begin(console, request, group, topic, work, said)


async def abort(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    group, topic = _named(form)
    plan = await console.access.ask(plan_widening, group, topic, USUAL_TIMES)
    if plan.entry is None:
        raise ClientError(f"No backlog of {topic} is being widened for {group}.")
    line = BacklogCommands(console.commands).abort(topic, group)
    work = AbortWidening(console.access.connection, plan, console.by, line)
    return _begin(
        console,
        request,
        group,
        topic,
        work,
        f"The widening of {topic} for {group} is being aborted.",
    )


async def park(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    group, topic = _named(form)
    destination = await _destination_for_changes(console)
    reason = text_in(form, "reason")[:500]
    plan = await console.access.ask(plan_parking, group, topic)
    line = BacklogCommands(console.commands).park(topic, group, destination.name, reason)
    work = Park(console.access.connection, plan, destination.address, console.by, reason, line)
    said = f"The backlog of {group} in {topic} is being parked; this page shows how far it is."
    return _begin(console, request, group, topic, work, said)


async def bring_back(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    group, topic = _named(form)
    destination = await _destination_for_changes(console)
    wanted, rate = wanted_in(form), rate_in(form)
    store, plan, waiting = await console.access.ask(
        begin_return, group, topic, wanted, destination.address, console.by, longest_s=LONG_S
    )
    line = BacklogCommands(console.commands).bring_back(
        topic, group, wanted, rate, destination.name
    )
    work = BringBack(console.access.connection, store, plan, group, waiting, rate, line)
    said = f"{counted(waiting, 'record')} of {topic} come back to {group}, {rate:,} per second."
    if not wanted.takes_whole_spans:
        said = f"Those of {counted(waiting, 'record')} that are meant come back to {group}."
    try:
        return _begin(console, request, group, topic, work, said)
    except ClientError:
        store.close()
        raise


async def expire(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    group, topic = _named(form)
    older_ms = older_than_ms(form)
    plan = await console.access.ask(plan_expiry, group, topic, older_ms, longest_s=LONG_S)
    if plan.park.most == 0:
        raise ClientError(f"Group {group} is not that far behind in {topic}.")
    line = BacklogCommands(console.commands).expire(topic, group, durations.write(older_ms))
    work = Expire(console.access.connection, plan, console.by, line)
    said = f"Records of {topic} older than {durations.write(older_ms)} become dead letters."
    return _begin(console, request, group, topic, work, said)


def _named(form: Mapping[str, Any]) -> tuple[str, str]:
    return needed(form, "name", "The group"), needed(form, "topic", "The topic")


async def _destination_for_changes(console: Console) -> ParkDestination:
    if console.person is not None:  # a database or a folder is not part of the cluster
        await console.access.ask(require_administrator)
    destination = await park_destination(console)
    if not destination.address:
        raise Unreadable(destination.why_not)
    return destination


def _begin(
    console: Console,
    request: web.Request,
    group: str,
    topic: str,
    work: BacklogWork,
    said: str,
) -> web.StreamResponse:
    path = console.guard.path_of(request)
    console.jobs.start(
        subject_of(group, topic),
        console.by,
        work,
        owner=console.person,
        taken=f"Something is being done about the backlog of {group} in {topic} already: let it "
        "end, or stop it first.",
        on_end=lambda job: _note_end(console, path, job),
    )
    return console.done(request, _page_of(group), said, command=work.command)


def _note_end(console: Console, path: str, job: Job) -> None:
    """Notes in the activity that a job ended, under the user and path of the note of its start."""
    card = job_card(job)
    what = f"{card.title} for {job.subject[1]}: {card.state}"
    console.note(job.by, "", path, what, done=not job.failure)


def _page_of(group: str) -> str:
    return link("groups", "backlog", name=group)


# ---- while it runs


async def stop(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    group = needed(form, "name", "The group")
    topics = await console.access.ask(topics_of_group, group)
    job = console.jobs.get(whole(form, "job", default=0))
    if job is None or job not in visible_jobs(console, group, topics):
        raise Unreadable("No such job.")
    if console.person is not None and job.by != console.by:
        await console.access.ask(require_administrator)  # a job that another user has started
    console.jobs.stop(job, console.by)
    said = f"Stopping: {job_card(job).title}. It can go on from where it is."
    return console.done(request, _page_of(group), said)


async def progress(console: Console, request: web.Request) -> web.StreamResponse:
    """Streams the progress of all jobs of a group, until one of them is over."""
    group = needed(request.query, "name", "The group")
    topics = await console.access.ask(topics_of_group, group)  # refuses one who may not see it
    return await live.stream(console, request, _frames(console, group, topics))


async def _frames(console: Console, group: str, topics: set[str]) -> AsyncIterator[tuple[str, Any]]:
    first: set[str] | None = None
    looks = True  # where nothing runs elsewhere at first, the cluster is asked once
    while True:
        running = [job for job in visible_jobs(console, group, topics) if not job.is_over]
        cards = [job_card(job) for job in running]
        if looks:
            others = topics - {job.subject[2] for job in running}
            widenings = await console.access.ask(look_at_widenings, group, others)
            elsewhere = begun_cards(console, group, widenings, running)
            cards += [card for card in elsewhere if card.is_live]
            looks = bool(elsewhere)
        yield "jobs", {"jobs": [card.frame for card in cards]}
        await asyncio.sleep(LOOK_EVERY_S if looks else PROGRESS_EVERY_S)
        there = {card.id for card in cards}
        if not there or (first is not None and there != first):
            yield "over", {}
            return
        first = there
