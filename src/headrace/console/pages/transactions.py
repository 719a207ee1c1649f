"""Transactions: which are open, which are hanging, and aborting one with a warning."""

from __future__ import annotations

from aiohttp import web

from headrace.console.access import transactions as access
from headrace.console.console import Console, now_ms
from headrace.console.query import Unreadable, needed, text_in, whole
from headrace.console.views.services import transaction_row


async def show(console: Console, request: web.Request) -> web.StreamResponse:
    found = await console.access.ask(access.list_transactions)
    now = now_ms()
    return console.page(
        request,
        "transactions.html",
        title="Transactions",
        section="transactions",
        found=found,
        rows=[transaction_row(each, now) for each in found.open],
        hanging=found.hanging.answer or [],
        missing=[found.hanging.missing] if found.hanging.missing else [],
    )


async def abort(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    id = needed(form, "id", "The transactional id")
    _require_typed(text_in(form, "typed"))
    await console.access.ask(access.abort, id)
    return console.done(
        request,
        "/transactions",
        f"Aborted the transaction of {id}; its producer is fenced.",
        command=console.commands.abort_transaction(id),
    )


async def abort_hanging(console: Console, request: web.Request) -> web.StreamResponse:
    form = await request.post()
    topic = needed(form, "topic", "The topic")
    partition = whole(form, "partition", default=0, most=2**31 - 1)
    start = whole(form, "start", default=0)
    _require_typed(text_in(form, "typed"))
    await console.access.ask(access.abort_hanging, topic, partition, start)
    return console.done(
        request,
        "/transactions",
        f"Aborted the transaction at offset {start} of {topic}-{partition}.",
        command=console.commands.abort_hanging(topic, partition, start),
    )


def _require_typed(said: str) -> None:
    if said.strip().lower() != "abort":
        raise Unreadable("Type abort to go on. Nothing was changed.")
