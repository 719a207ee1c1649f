"""Changes to permissions: users and their passwords, access control, quotas. All changes are
audited, without passwords; the cluster decides whether this user may make them."""

from __future__ import annotations

import secrets

from aiohttp import web

from headrace.console.access import rights as access
from headrace.console.console import Console
from headrace.console.query import Unreadable, needed, text_in
from headrace.console.renderer import link
from headrace.console.views.commands import Name
from headrace.console.views.rights import (
    LONGEST_NAME,
    SHORTEST_PASSWORD,
    amount_text,
    entity_from,
    entity_words,
    entries_from,
    entry_from,
    entry_words,
    limit_from,
)
from headrace.console.views.services import acl_words, quota_words

MADE_UP_BYTES = 18  # as by `headrace users add --generate`


async def set_user(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    name = needed(form, "user", "The user's name").strip()
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise Unreadable("A name has at most 255 signs that can be printed.")
    password = text_in(form, "password")
    made_up = "" if password else secrets.token_urlsafe(MADE_UP_BYTES)
    if password and len(password) < SHORTEST_PASSWORD:
        raise Unreadable(f"A password has at least {SHORTEST_PASSWORD} signs. Nothing was changed.")
    done = await console.access.ask(access.set_user, name, password or made_up)
    words = ["users", "add", *(["--generate"] if made_up else [])]
    return console.done(
        request,
        link("security"),
        f"Added the user {name}." if done.is_new else f"{name} has a new password.",
        command=console.commands.headrace(*words, Name(name)),
        told_once=f"The password of {name}, shown this once: {made_up}" if made_up else "",
    )


async def remove_user(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    name = needed(form, "user", "The user's name")
    if text_in(form, "typed").strip() != name:
        raise Unreadable(f"Type the name of the user, {name}, to go on. Nothing was changed.")
    await console.access.ask(access.remove_user, name)
    return console.done(
        request,
        link("security"),
        f"Removed the user {name}: it can no longer log in. Connections that are logged "
        "in stay until they end, and so do the user's rights.",
        command=console.commands.headrace("users", "remove", Name(name)),
    )


async def add_entries(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    entries = entries_from(form)
    await console.access.ask(access.add_entries, entries)
    said = "; ".join(f"{each.principal} {acl_words(each)}" for each in entries)
    words = entry_words(entries, text_in(form, "access"))
    return console.done(
        request,
        link("security", q=entries[0].principal),
        f"{said}.",
        command=None if words is None else console.commands.headrace("acls", "add", *words),
    )


async def remove_entry(console: Console, request: web.Request) -> web.StreamResponse:
    entry = entry_from(await request.post())
    await console.access.ask(access.remove_entry, entry)
    words = entry_words([entry], "")
    return console.done(
        request,
        link("security"),
        f"Removed: {entry.principal} {acl_words(entry)}.",
        command=None
        if words is None
        else console.commands.headrace("acls", "remove", *words, "--yes"),
    )


async def set_limit(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    entity, (name, amount) = entity_from(form), limit_from(form)
    await console.access.ask(access.set_limits, entity, {name: amount})
    whom, _ = quota_words(entity, {})
    set_ = f"{name}={amount_text(amount)}"
    return console.done(
        request,
        link("security"),
        f"{whom}: {name} is {amount_text(amount)} now.",
        command=console.commands.headrace("quotas", "set", set_, *entity_words(entity)),
    )


async def remove_limit(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    entity, name = entity_from(form), needed(form, "limit", "The limit")
    await console.access.ask(access.set_limits, entity, {name: None})
    whom, _ = quota_words(entity, {})
    return console.done(
        request,
        link("security"),
        f"{whom}: {name} is without a limit of its own.",
        command=console.commands.headrace("quotas", "remove", name, *entity_words(entity)),
    )
