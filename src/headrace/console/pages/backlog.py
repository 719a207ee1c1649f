"""A group's backlog: why it is behind, what is under way, dry runs of what helps; going back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from headrace.client.admin.groups import NoSuchGroup
from headrace.client.errors import ClientError, LoginRefused, NoSuchTopic, Unreachable
from headrace.console.access.backlog import (
    BacklogLook,
    Begun,
    GoingBack,
    look_at_backlog,
    perform_going_back,
    perform_undo,
    plan_abort,
    plan_expiry,
    plan_going_back,
    plan_parking,
    plan_undo,
    plan_widening,
)
from headrace.console.access.cluster_access import Ended, TooBusy, TookTooLong
from headrace.console.access.outbox import shown
from headrace.console.access.parked import ParkedList, list_parked, plan_return
from headrace.console.access.parts import Part
from headrace.console.access.security import NotAllowed, require_observer
from headrace.console.console import Console
from headrace.console.jobs.backlog import Widen
from headrace.console.jobs.owner import BACKLOG, Job
from headrace.console.query import Unreadable, moment_ms, needed, text_in, whole
from headrace.console.renderer import link
from headrace.console.views.backlog import (
    NO_DESTINATION,
    PlanTable,
    abort_table,
    caught_up,
    duration,
    expiry_table,
    going_back_table,
    parking_table,
    return_table,
    topics_of,
    undo_table,
    widening_table,
)
from headrace.console.views.backlog_cards import Card, begun_card, job_card, return_card
from headrace.console.views.backlog_commands import BacklogCommands, going_back_command
from headrace.services.replay import selection
from headrace.services.replay.selection import Selection
from headrace.wire.contract import durations

WAYS = {
    "replay": "read it again",
    "widen": "widen the topic",
    "park": "park it",
    "bring-back": "bring back parked records",
    "expire": "expire old records",
    "undo": "undo the last move",
    "abort": "abort a widening",
}
ASKED = ("way", "topic", "time", "offset", "times", "older", "key", "header", "where", "rate")
USUAL_TIMES, USUAL_RATE = 10, 500
MOST_ENDED = 3
DESTINATION_S = 5.0
# Failures that say nothing about the plan: they are a page of their own.
NOT_OF_THE_PLAN = (
    NoSuchTopic, NoSuchGroup, Unreachable, LoginRefused, TooBusy, TookTooLong, Ended, NotAllowed,
)  # fmt: skip


@dataclass(slots=True)
class ParkDestination:
    """Where this user may park; a browser never names the place."""

    address: str = ""  # "": nowhere
    why_not: str = NO_DESTINATION

    @property
    def name(self) -> str:
        return shown(self.address) if self.address else ""


async def show(console: Console, request: web.Request) -> web.StreamResponse:
    """Shows the diagnosis, and with a way chosen its dry run: the address holds the whole plan."""
    query = request.query
    name = text_in(query, "name")
    look = await console.access.ask(look_at_backlog, name)
    destination = await park_destination(console)
    plan = (
        await _planned(console, name, query, destination) if text_in(query, "way") else Part(None)
    )
    cards = cards_of(console, look, destination)
    return console.page(
        request,
        "group_backlog.html",
        title=f"Backlog of {name}",
        section="groups",
        look=look,
        caught_up=caught_up(look.lag),
        duration=duration,
        topics=topics_of(look),
        ways={way: words for way, words in WAYS.items() if way != "abort" or look.widenings},
        query={each: text_in(query, each) for each in ASKED},
        usual_rate=USUAL_RATE,
        plan=plan.answer,
        cannot=plan.missing,
        cards=cards,
        destination=destination.name,
        parked=await _parked(console, look, destination),
        status_line=BacklogCommands(console.commands).status(name),
    )


async def park_destination(console: Console) -> ParkDestination:
    """Returns where to park. A database or folder is not part of the cluster: users who log in must
    have the right to describe the cluster."""
    if not console.park_to:
        return ParkDestination()
    if console.person is not None:
        try:
            await console.access.ask(require_observer)
        except NotAllowed as refusal:
            return ParkDestination(why_not=str(refusal))
    return ParkDestination(console.park_to, "")


async def _parked(
    console: Console, look: BacklogLook, destination: ParkDestination
) -> Part[ParkedList]:
    """Lists what is parked, with a short time limit: the database or folder may be down."""
    if not destination.address:
        return Part(None)
    topics = sorted(topics_of(look), key=lambda topic: topic not in look.parked)
    asked = (look.lag.group, topics, destination.address, not console.guard.read_only)
    try:
        return Part(await console.access.ask(list_parked, *asked, longest_s=DESTINATION_S))
    except TookTooLong:
        return Part(None, f"{destination.name} did not answer within {DESTINATION_S:g} seconds.")
    except ClientError as failure:
        return Part(None, str(failure))


# ---- what is under way


def cards_of(console: Console, look: BacklogLook, destination: ParkDestination) -> list[Card]:
    """Returns the cards of this console's jobs, then of widenings and returns that were started
    elsewhere or stopped."""
    group = look.lag.group
    jobs = visible_jobs(console, group, set(topics_of(look)))
    begun = {each.entry.topic for each in look.widenings}
    newest = list({job.subject: job for job in reversed(jobs)}.values())[::-1]
    running = [job for job in newest if not job.is_over]
    ended = [job for job in newest if job.is_over and not _is_told_below(job, begun)]
    cards = [job_card(job) for job in running + ended[:MOST_ENDED]]
    cards += begun_cards(console, group, look.widenings, jobs)
    busy = {job.subject[2] for job in running}
    for entry in look.returns:
        if entry.topic not in busy:
            wanted = selection.from_json(entry.asked["selection"])
            line = BacklogCommands(console.commands).bring_back(
                entry.topic, group, wanted, USUAL_RATE, destination.name
            )
            cards.append(return_card(entry, group, wanted, line))
    return cards


def visible_jobs(console: Console, group: str, topics: set[str]) -> list[Job]:
    """Returns the jobs for topics that this user may see."""
    return [job for job in console.jobs.of(BACKLOG, group) if job.subject[2] in topics]


def begun_cards(
    console: Console, group: str, widenings: list[Begun], jobs: list[Job]
) -> list[Card]:
    busy = {job.subject[2] for job in jobs if not job.is_over}
    lines = BacklogCommands(console.commands)
    return [
        begun_card(each, group, lines.widen(each.entry.topic, group, each.times or USUAL_TIMES))
        for each in widenings
        if each.entry.topic not in busy
    ]


def _is_told_below(job: Job, begun: set[str]) -> bool:
    """A widening that was stopped has a card that goes on with it."""
    return isinstance(job.work, Widen) and not job.failure and job.subject[2] in begun


# ---- dry runs


async def _planned(
    console: Console, group: str, query: Mapping[str, Any], destination: ParkDestination
) -> Part[PlanTable]:
    """Returns the dry run. A refusal is shown on the page: its message names what to do first."""
    try:
        return Part(await _plan(console, group, query, destination))
    except NOT_OF_THE_PLAN:
        raise
    except ClientError as refusal:
        return Part(None, str(refusal))


async def _plan(
    console: Console, group: str, query: Mapping[str, Any], destination: ParkDestination
) -> PlanTable:
    ask, lines = console.access.ask, BacklogCommands(console.commands)
    way = text_in(query, "way")
    if way == "undo":
        return undo_table(await ask(plan_undo, group), console.commands)
    if way == "replay":
        asked = _going_back(group, query)
        return going_back_table(await ask(plan_going_back, asked), asked, console.commands)
    topic = needed(query, "topic", "The topic")
    if way == "widen":
        times = times_in(query)
        return widening_table(await ask(plan_widening, group, topic, times), times, lines)
    if way == "abort":
        return abort_table(await ask(plan_abort, group, topic), lines)
    if way == "park":
        plan = await ask(plan_parking, group, topic)
        return parking_table(plan, destination.name, destination.why_not, lines)
    if way == "bring-back":
        wanted, rate = wanted_in(query), rate_in(query)
        if not destination.address:
            raise ClientError(destination.why_not)
        notes_moves = not console.guard.read_only
        found = await ask(plan_return, group, topic, wanted, destination.address, notes_moves)
        return return_table(found, wanted, rate, destination.name, lines)
    if way == "expire":
        return expiry_table(await ask(plan_expiry, group, topic, older_than_ms(query)), lines)
    raise Unreadable("Choose what to do about it.")


def times_in(given: Mapping[str, Any]) -> int:
    return whole(given, "times", default=USUAL_TIMES, least=2, most=1_000)


def rate_in(given: Mapping[str, Any]) -> int:
    return whole(given, "rate", default=USUAL_RATE, least=1, most=100_000)


def older_than_ms(given: Mapping[str, Any]) -> int:
    try:
        return durations.parse(needed(given, "older", "The age"))
    except ValueError as unreadable:
        raise Unreadable(f"{unreadable}.") from None


def wanted_in(given: Mapping[str, Any]) -> Selection:
    key, header, where = (text_in(given, name) for name in ("key", "header", "where"))
    name, is_pair, value = header.partition("=")
    if header and not (is_pair and name):
        raise Unreadable(f"A header is NAME=VALUE, not {header!r}.")
    return Selection(
        key=key.encode() if key else None,
        headers={name: value} if header else {},
        where=where or None,
    )


def _going_back(group: str, given: Mapping[str, Any]) -> GoingBack:
    topic = needed(given, "topic", "The topic")
    if text_in(given, "time"):
        return GoingBack(group, topic, moment_ms(text_in(given, "time")), None)
    needed(given, "offset", "The time or the offset")
    return GoingBack(group, topic, None, whole(given, "offset", default=0))


# ---- going back, in one step


async def go_back(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    asked = _going_back(text_in(form, "name"), form)
    reason = text_in(form, "reason")[:500]
    plan = await console.access.ask(perform_going_back, asked, console.by, reason)
    said = f"{asked.group} reads at most {plan.again:,} records of {asked.topic} again."
    return console.done(
        request,
        link("groups", "backlog", name=asked.group),
        said,
        command=going_back_command(asked, console.commands),
    )


async def undo(console: Console, request: web.Request) -> web.StreamResponse:
    name = text_in(await request.post(), "name")
    plan = await console.access.ask(perform_undo, name, console.by)
    return console.done(
        request,
        link("groups", "backlog", name=name),
        f"{name} is where it was in {len(plan.moves):,} partitions.",
        command=console.commands.headrace("replay", "undo", name, "--execute"),
    )
