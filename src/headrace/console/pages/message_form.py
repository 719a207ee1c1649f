"""Sending a message: by a form, again with edits, with a delay; and a newcomer's first one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from aiohttp import web

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.delay.schedules import When
from headrace.client.errors import ClientError
from headrace.client.producer.producer import Producer
from headrace.client.records import Sent
from headrace.console.access.messages import read_one
from headrace.console.console import Console
from headrace.console.query import needed, text_in, whole, whole_or_none
from headrace.console.renderer import link
from headrace.console.views.draft import Draft, draft_from, draft_of, when_words

Sender = Callable[[], AbstractContextManager[Producer[Any, Any]]]


async def show(console: Console, request: web.Request) -> web.StreamResponse:
    topic, query = request.match_info["topic"], request.query
    draft = Draft()
    if text_in(query, "partition"):
        again = await console.access.ask(
            read_one,
            topic,
            whole(query, "partition", default=0, most=2**31 - 1),
            whole(query, "offset", default=0),
        )
        draft = Draft() if again is None else draft_of(again.record)
    return console.page(
        request,
        "send.html",
        title=f"Send to {topic}",
        section="topics",
        topic=topic,
        draft=draft,
        line=console.commands.produce(topic, "VALUE", key="KEY"),
    )


async def send(console: Console, request: web.Request) -> web.StreamResponse:
    topic, form = request.match_info["topic"], await request.post()
    draft, partition = draft_from(form), whole_or_none(form, "partition")
    sent = await console.access.ask(_send, console.access.sender, topic, draft, partition)
    command = console.commands.produce(
        topic,
        draft.value,
        key=draft.key,
        partition=partition,
        headers=draft.headers,
        when=draft.when,
        id=draft.id,
    )
    if draft.when:
        said = f"Taken: it comes into {topic} {when_words(draft.when)}."
        return console.done(request, link("delayed", topic=topic), said, command=command)
    said = f"Sent to partition {sent.partition}, offset {sent.offset}."
    return console.done(request, link("topics", topic, "messages"), said, command=command)


async def send_first(console: Console, request: web.Request) -> web.StreamResponse:
    """Makes the topic if it is not there: a newcomer has none yet."""
    form = await request.post()
    topic = needed(form, "topic", "The name of the topic").strip()
    draft = Draft(value=text_in(form, "value"))
    await console.access.ask(_make_if_missing, topic)
    sent = await console.access.ask(_send, console.access.sender, topic, draft, None)
    said = f"Sent to {topic}, partition {sent.partition}, offset {sent.offset}."
    command = console.commands.produce(topic, draft.value)
    return console.done(request, link("topics", topic, "messages"), said, command=command)


def _make_if_missing(connection: ClientSettings, topic: str) -> None:
    topics = Topics(connection)
    if topic in topics.cluster.topics:
        return
    try:
        topics.create(topic)
    except ClientError as refusal:
        if refusal.code != "TOPIC_ALREADY_EXISTS":
            raise


def _send(
    connection: ClientSettings, sender: Sender, topic: str, draft: Draft, partition: int | None
) -> Sent:
    # A producer would have the broker make a topic that is not there, in silence.
    if topic not in Topics(connection).cluster.topics:
        raise ClientError(f"There is no topic {topic}.")
    when = When(**draft.when)
    if draft.id:
        when["id"] = draft.id
    with sender() as producer:
        return producer.send(
            topic,
            draft.value_bytes(),
            key=draft.key_bytes(),
            headers=[(name, text.encode()) for name, text in draft.headers],
            partition=partition,
            **when,
        ).result(connection.timeout_s)
