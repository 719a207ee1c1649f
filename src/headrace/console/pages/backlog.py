"""A group's backlog: why it is behind, dry runs of what helps, going back and its undo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from headrace.console.access.backlog import (
    GoingBack,
    look_at_backlog,
    perform_going_back,
    perform_undo,
    plan_going_back,
    plan_parking,
    plan_undo,
    plan_widening,
)
from headrace.console.console import Console
from headrace.console.query import Unreadable, moment_ms, needed, text_in, whole
from headrace.console.rendering import link
from headrace.console.views.backlog import (
    PlanTable,
    caught_up,
    duration,
    going_back_command,
    going_back_table,
    parking_table,
    topics_of,
    undo_table,
    widening_table,
)

WAYS = {
    "replay": "read it again",
    "widen": "a topic with more partitions",
    "park": "put it aside",
    "undo": "undo the last move",
}
ASKED = ("way", "topic", "time", "offset", "times")


async def show(console: Console, request: web.Request) -> web.StreamResponse:
    """The diagnosis, and with a way chosen its dry run: its address is the whole plan."""
    query = request.query
    name = text_in(query, "name")
    look = await console.access.ask(look_at_backlog, name)
    plan = await _plan(console, name, query) if text_in(query, "way") else None
    return console.page(
        request,
        "group_backlog.html",
        title=f"Backlog of {name}",
        section="groups",
        look=look,
        caught_up=caught_up(look.lag),
        duration=duration,
        topics=topics_of(look),
        ways=WAYS,
        query={each: text_in(query, each) for each in ASKED},
        plan=plan,
        status_line=console.commands.headrace("backlog", "status", name),
    )


async def _plan(console: Console, group: str, query: Mapping[str, Any]) -> PlanTable:
    ask, commands = console.access.ask, console.commands
    way = text_in(query, "way")
    if way == "undo":
        return undo_table(await ask(plan_undo, group), commands)
    if way == "replay":
        asked = _going_back(group, query)
        return going_back_table(await ask(plan_going_back, asked), asked, commands)
    topic = needed(query, "topic", "The topic")
    if way == "widen":
        times = whole(query, "times", default=10, least=2, most=1_000)
        return widening_table(await ask(plan_widening, group, topic, times), times, commands)
    if way == "park":
        return parking_table(await ask(plan_parking, group, topic), commands)
    raise Unreadable("Say what shall be done about it.")


def _going_back(group: str, given: Mapping[str, Any]) -> GoingBack:
    topic = needed(given, "topic", "The topic")
    if text_in(given, "time"):
        return GoingBack(group, topic, moment_ms(text_in(given, "time")), None)
    needed(given, "offset", "The time or the offset")
    return GoingBack(group, topic, None, whole(given, "offset", default=0))


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
