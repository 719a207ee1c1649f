"""Changing topics: create, settings, more partitions, empty, delete with the name typed."""

from __future__ import annotations

from aiohttp import web

from headrace.console.access.topics import (
    change_settings,
    create_topic,
    delete_topic,
    empty_topic,
    grow_topic,
    settings_of,
)
from headrace.console.console import Console
from headrace.console.query import Unreadable, needed, text_in, whole
from headrace.console.renderer import link
from headrace.console.views.new_topic import KEPT_FOR, settings_from
from headrace.console.views.topics import setting_rows

MOST_PARTITIONS = 10_000
LONG_S = 60.0


async def show_new(console: Console, request: web.Request) -> web.StreamResponse:
    return console.page(
        request, "create_topic.html", title="Create a topic", section="topics", kept_for=KEPT_FOR
    )


async def create(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    name = needed(form, "name", "The name").strip()
    partitions = whole(form, "partitions", default=0, most=MOST_PARTITIONS) or None
    settings = settings_from(text_in(form, "kept"), compact=text_in(form, "compact") == "1")
    delayed = text_in(form, "delayed") == "1"
    await console.access.ask(create_topic, name, partitions, settings, delayed)
    command = console.commands.create_topic(
        name, partitions=partitions, settings=settings, delayed=delayed
    )
    return console.done(request, link("topics", name), f"Created {name}.", command=command)


async def show_settings(console: Console, request: web.Request) -> web.StreamResponse:
    name, contains = request.match_info["topic"], text_in(request.query, "q")
    settings, words = await console.access.ask(settings_of, name)
    return console.page(
        request,
        "topic_settings.html",
        title=f"Settings of {name}",
        section="topics",
        topic=name,
        rows=setting_rows(settings, words, contains),
        contains=contains,
        edited=text_in(request.query, "edit"),
    )


async def change_setting(console: Console, request: web.Request) -> web.StreamResponse:
    name, form = request.match_info["topic"], await request.post()
    setting = needed(form, "name", "The name of the setting")
    resets = text_in(form, "action") == "reset"
    to = {} if resets else {setting: text_in(form, "value")}
    remove = [setting] if resets else []
    await console.access.ask(change_settings, name, to, remove)
    said = f"{setting} is back at its default." if resets else f"{setting} is {to[setting]} now."
    command = console.commands.change_settings(name, to, remove)
    return console.done(request, link("topics", name, "settings"), said, command=command)


async def grow(console: Console, request: web.Request) -> web.StreamResponse:
    name, form = request.match_info["topic"], await request.post()
    partitions = whole(form, "partitions", default=0, least=1, most=MOST_PARTITIONS)
    if not partitions:
        raise Unreadable("Enter the number of partitions.")
    await console.access.ask(grow_topic, name, partitions)
    said = f"{name} has {partitions} partitions now."
    command = console.commands.grow_topic(name, partitions)
    return console.done(request, link("topics", name), said, command=command)


async def empty(console: Console, request: web.Request) -> web.StreamResponse:
    name = await _typed(request)
    count = await console.access.ask(empty_topic, name, longest_s=LONG_S)
    said = f"{name} is empty: {count:,} offsets were deleted."
    command = console.commands.empty_topic(name)
    return console.done(request, link("topics", name), said, command=command)


async def delete(console: Console, request: web.Request) -> web.StreamResponse:
    name = await _typed(request)
    left = await console.access.ask(delete_topic, name, longest_s=LONG_S)
    said = f"Deleted {name} with all its messages."
    if left:
        said += f" Delayed messages of it are left in {', '.join(left)}."
    command = console.commands.delete_topic(name)
    return console.done(request, link("topics"), said, command=command)


async def _typed(request: web.Request) -> str:
    """Returns the topic's name as the user typed it."""
    name, form = request.match_info["topic"], await request.post()
    if text_in(form, "typed").strip() != name:
        raise Unreadable(f"Type the name of the topic, {name}, to go on. Nothing was changed.")
    return name
