"""Groups: the list, one group, a reset with its dry run, and deleting a group without members."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aiohttp import web

from headrace.client.connection import ClientSettings
from headrace.console.access.groups import ON_ONE_PAGE, delete_group, list_groups, one_group
from headrace.console.console import Console
from headrace.console.history.lag_store import TIERS
from headrace.console.history.pace import LOOKED_AT_S
from headrace.console.history.sampler import Sampler
from headrace.console.query import Unreadable, moment_ms, needed, text_in, whole
from headrace.console.renderer import link
from headrace.console.views.groups import group_page, group_rows, move_rows, way_words
from headrace.console.views.lag_history import LagHistory, lag_history, range_named
from headrace.console.views.list_pages import Paging
from headrace.operations.group_resets import (
    NothingCommitted,
    Reset,
    Way,
    perform_reset,
    plan_reset,
)

Answer = TypeVar("Answer")

WAYS = {
    Way.BEGINNING: "the first message",
    Way.END: "the end, skipping what is unread",
    Way.TIME: "a moment in time",
    Way.OFFSET: "an offset",
    Way.SHIFT: "some messages back or forward",
}


async def show_all(console: Console, request: web.Request) -> web.StreamResponse:
    query = request.query
    contains, state = text_in(query, "q"), text_in(query, "state")
    page = whole(query, "page", default=0, most=1_000_000)
    found = await console.access.ask(list_groups, contains, state, page)
    return console.page(
        request,
        "groups.html",
        title="Groups",
        section="groups",
        rows=group_rows(found),
        found=found,
        paging=Paging(page, ON_ONE_PAGE, found.matching),
        contains=contains,
        state=state,
    )


async def show_one(console: Console, request: web.Request) -> web.StreamResponse:
    """Shows one group. A user who may describe the group may see its lag in the topics that the
    user may see."""
    name = text_in(request.query, "name")
    found = await console.access.ask(one_group, name)
    history = None
    if console.sampler is not None:
        known = {one.topic for one in found.progress}
        history = await asyncio.to_thread(_history, console.sampler, name, request.query, known)
    return console.page(
        request,
        "group.html",
        title=f"Group {name}",
        section="groups",
        page=group_page(found),
        history=history,
    )


def _history(sampler: Sampler, group: str, query: Mapping[str, Any], known: set[str]) -> LagHistory:
    chosen, topic = range_named(text_in(query, "range")), text_in(query, "topic")
    topics = [each for each in sampler.store.topics_of(group) if each in known]
    shown = [topic] if topic in topics else topics
    now_s = int(sampler.wall_s())
    samples, recent = (
        sampler.store.samples(group, shown, tier=tier, since_s=now_s - length_s)
        for tier, length_s in ((chosen.tier, chosen.length_s), (TIERS[0], LOOKED_AT_S))
    )
    return lag_history(
        samples,
        recent,
        chosen=chosen,
        topics=topics,
        topic=topic if topic in topics else "",
        now_s=now_s,
        problem=sampler.problem,
        is_kept=sampler.store.is_kept,
    )


async def show_reset(console: Console, request: web.Request) -> web.StreamResponse:
    """Shows the form, and with a way chosen the dry run: the address holds the whole plan."""
    query = request.query
    name = text_in(query, "name")
    moves, command = None, None
    if text_in(query, "way"):
        reset = _reset(query)
        plan = await _asked(console, plan_reset, reset)
        moves = move_rows(plan.moves)
        command = _command(console, reset, execute=False)
    group = group_page(await console.access.ask(one_group, name))
    return console.page(
        request,
        "group_reset.html",
        title=f"Reset group {name}",
        section="groups",
        page=group,
        ways=WAYS,
        query={each: text_in(query, each) for each in ("way", "topic", "offset", "time", "shift")},
        moves=moves,
        line=command,
    )


async def reset(console: Console, request: web.Request) -> web.StreamResponse:
    asked = _reset(await request.post())
    moves = await _asked(console, perform_reset, asked)
    said = f"{asked.group} continues from there in {len(moves):,} partitions."
    return console.done(
        request,
        link("groups", "one", name=asked.group),
        said,
        command=_command(console, asked, execute=True),
    )


async def _asked(
    console: Console, question: Callable[[ClientSettings, Reset], Answer], reset: Reset
) -> Answer:
    try:
        return await console.access.ask(question, reset)
    except NothingCommitted as refusal:
        raise NothingCommitted(f"{str(refusal)[:-1]}: choose a topic.") from refusal


def _command(console: Console, reset: Reset, *, execute: bool) -> str:
    topic = reset.topics[0][0] if reset.topics else None
    return console.commands.reset_group(
        reset.group, topic=topic, way=way_words(reset), execute=execute
    )


def _reset(given: Mapping[str, Any]) -> Reset:
    """Resets offsets in one topic, or in all topics that the group has committed in."""
    way = next((each for each in WAYS if each == text_in(given, "way")), None)
    if way is None:
        raise Unreadable("Choose where the group continues.")
    number = 0
    if way is Way.TIME:
        number = moment_ms(needed(given, "time", "The time"))
    elif way is Way.OFFSET:
        needed(given, "offset", "The offset")
        number = whole(given, "offset", default=0)
    elif way is Way.SHIFT:
        needed(given, "shift", "How many messages")
        number = whole(given, "shift", default=0, least=-(2**62), most=2**62)
    topic = text_in(given, "topic")
    return Reset(text_in(given, "name"), way, number, [(topic, ())] if topic else [])


async def delete(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    name = text_in(form, "name")
    if text_in(form, "typed") != name:
        raise Unreadable("Type the name of the group to delete it. Nothing was changed.")
    await console.access.ask(delete_group, name)
    return console.done(
        request,
        link("groups"),
        f"Deleted group {name} with all its offsets.",
        command=console.commands.delete_group(name),
    )
