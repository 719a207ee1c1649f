"""Outboxes: shards, the oldest row that waits, and parked rows to send again or to delete."""

from __future__ import annotations

import asyncio

from aiohttp import web

from headrace.console.access import outbox as access
from headrace.console.access.security import require_administrator, require_observer
from headrace.console.console import Console, now_ms
from headrace.console.query import Unreadable, text_in, whole
from headrace.console.views.payloads import payload
from headrace.console.views.words import count, lasting

MOST_AT_ONCE = 100
ACTIONS = ("retry", "discard")


async def show(console: Console, request: web.Request) -> web.StreamResponse:
    if console.person is not None:  # a database is not part of the cluster
        await console.access.ask(require_observer)
    found = await asyncio.gather(
        *(asyncio.to_thread(access.look_at, url) for url in console.outboxes)
    )
    return console.page(
        request,
        "outbox.html",
        title="Outbox",
        section="outbox",
        outboxes=found,
        payload=payload,
        lasting=lasting,
        now=now_ms(),
    )


async def retry_or_discard(console: Console, request: web.Request) -> web.StreamResponse:
    if console.person is not None:
        await console.access.ask(require_administrator)
    form = await request.post()
    action = text_in(form, "action")
    number = whole(form, "outbox", default=0, most=max(len(console.outboxes) - 1, 0))
    if action not in ACTIONS or not console.outboxes:
        raise Unreadable("Choose what to do: send again, or delete.")
    ids = [whole({"id": str(each)}, "id", default=0) for each in form.getall("id", [])]
    if not ids or len(ids) > MOST_AT_ONCE:
        raise Unreadable("Select at least one row. Nothing was changed.")
    if action == "discard" and text_in(form, "typed").strip().lower() != "delete":
        raise Unreadable("Type delete to delete rows for good. Nothing was changed.")
    url = console.outboxes[number]
    done = await asyncio.to_thread(access.retry if action == "retry" else access.discard, url, ids)
    verb = "sent again by the relay" if action == "retry" else "deleted"
    return console.done(
        request,
        "/outbox",
        f"{count(done, 'row')} {'will be ' if action == 'retry' else ''}{verb}.",
        command=console.commands.retry_or_discard_rows(action, access.shown(url), ids),
        good=done == len(ids),
    )
