"""Delayed messages: what is due when, what was rejected; cancel one, give it another time."""

from __future__ import annotations

from aiohttp import web

from headrace.client.connection import ClientSettings
from headrace.client.delay.schedules import When
from headrace.console.access import delayed as access
from headrace.console.console import Console
from headrace.console.query import Unreadable, moment_ms, needed, text_in, whole
from headrace.console.renderer import link
from headrace.console.views.commands import Name
from headrace.console.views.delayed import delayed_row, histogram, lateness_words, rejected_row
from headrace.console.views.draft import when_from, when_words
from headrace.console.views.payloads import payload
from headrace.wire.contract import headers

OUTCOMES = {
    headers.CANCELLED: "Cancelled: {id} will not be delivered.",
    headers.TOO_LATE: "Too late: {id} was delivered.",
    headers.UNKNOWN: "Unknown: no message with the id {id} waits in {topic}.",
}


async def show_all(console: Console, request: web.Request) -> web.StreamResponse:
    query = request.query
    topic, key, id = (text_in(query, name) for name in ("topic", "key", "id"))
    wanted: dict[str, str | int | None] = {
        "topic": topic or None,
        "key": key or None,
        "id": id or None,
        **{name: _moment(text_in(query, name)) for name in ("from", "to")},
    }
    found = await console.access.ask(access.what_waits, wanted, text_in(query, "after") or None)
    page = found.page.answer
    return console.page(
        request,
        "delayed.html",
        title="Delayed messages",
        section="delayed",
        topics=found.topics,
        missing=found.page.missing,
        rows=[] if page is None else [delayed_row(row, page.now_ms) for row in page.rows],
        bars=histogram(found.chart),
        charted=len(found.chart),
        chart_is_whole=found.chart_is_whole,
        unknown_partitions=0 if page is None else page.missing,
        following=None if page is None else page.next,
        state={
            name: query[name] for name in ("topic", "key", "id", "from", "to") if query.get(name)
        },
        service=found.service.answer,
        lateness=lateness_words(found.service.answer.lateness) if found.service.answer else "",
        line=console.commands.list_delayed(topic, key=key, id=id),
    )


def _moment(said: str) -> int | None:
    return moment_ms(said) if said else None


async def cancel(console: Console, request: web.Request) -> web.StreamResponse:
    topic, id, partition = await _named(request)
    outcome = await console.access.ask(access.cancel, topic, id, partition)
    return console.done(
        request,
        link("delayed", topic=topic),
        OUTCOMES[outcome].format(id=id, topic=topic),
        command=console.commands.cancel_delayed(topic, id, partition),
        good=outcome == headers.CANCELLED,
    )


async def deliver_now(console: Console, request: web.Request) -> web.StreamResponse:
    topic, id, partition = await _named(request)
    await _reschedule(console, topic, id, partition, {"delay": "0ms"})
    return console.done(
        request,
        link("delayed", topic=topic),
        f"{id} is due now: the service delivers it in a moment.",
        command=console.commands.deliver_now(topic, id, partition),
    )


async def reschedule(console: Console, request: web.Request) -> web.StreamResponse:
    topic, id, partition = await _named(request)
    when = when_from(await request.post())
    if not when:
        raise Unreadable("Choose a time: after a time, at a time, or by cron. Nothing was changed.")
    await _reschedule(console, topic, id, partition, when)
    return console.done(
        request,
        link("delayed", topic=topic, id=id),
        f"{id} has a new time: {when_words(when)}.",
        command=console.commands.reschedule(topic, id, partition, when),
    )


async def _reschedule(console: Console, topic: str, id: str, partition: int, when: When) -> None:
    def send(connection: ClientSettings) -> None:
        with console.access.sender() as producer:
            access.reschedule(connection, producer, topic, id, partition, when)

    await console.access.ask(send)


async def show_rejected(console: Console, request: web.Request) -> web.StreamResponse:
    topic = text_in(request.query, "topic")
    found = await console.access.ask(access.rejected, topic)
    shown = topic or found.topic
    return console.page(
        request,
        "rejected.html",
        title="Rejected delayed messages",
        section="delayed",
        topic=shown,
        found=found,
        rows=[rejected_row(each) for each in found.rows],
        payload=payload,
        line=console.commands.headrace("delay", "rejected", Name(shown or "TOPIC")),
    )


async def _named(request: web.Request) -> tuple[str, str, int]:
    form = await request.post()
    return (
        needed(form, "topic", "The topic"),
        needed(form, "id", "The id"),
        whole(form, "partition", default=0, most=2**31 - 1),
    )
