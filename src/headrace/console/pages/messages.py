"""Messages of a topic: a page of them, one whole, and a download."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web
from multidict import MultiMapping

from headrace.app.triggers.filters import FilterRefused
from headrace.client.admin.topics import Topics
from headrace.client.lookup.record_pages import Bounds
from headrace.client.record_json import as_object
from headrace.console.access.held_connection import HeldClientSettings
from headrace.console.access.messages import (
    AT_OFFSET,
    AT_TIME,
    NEWEST,
    OLDEST,
    Answered,
    Asked,
    read_one,
    read_page,
)
from headrace.console.console import Console
from headrace.console.decoding.avro import AvroRefused, Schema
from headrace.console.decoding.json_path import PathRefused
from headrace.console.query import (
    Unreadable,
    moment_ms,
    needed,
    offsets_in,
    offsets_text,
    text_in,
    whole,
    whole_or_none,
)
from headrace.console.views.code_samples import python_to_read, python_to_send
from headrace.console.views.messages import (
    MessageRow,
    Wanted,
    message_row,
    summary,
    whole_message,
)
from headrace.console.views.payloads import AUTO, AVRO, READERS, Reader

STARTS = (NEWEST, OLDEST, AT_OFFSET, AT_TIME)
ON_ONE_PAGE = (25, 50, 100, 200)
MOST_DOWNLOADED = 10_000
SEARCH = Bounds(records=100_000, bytes=32 << 20, seconds=4.0)
# The parameters of the page in an address; everything else in it is dropped.
KEPT = (
    "from", "offset", "time", "until", "partition", "n", "key", "text", "header", "where", "path",
    "is", "latest", "control", "as", "keyas", "schema",
)  # fmt: skip


async def show_all(console: Console, request: web.Request) -> web.StreamResponse:
    """A form that cannot be read is shown again, with the sentence at its field."""
    topic, query = request.match_info["topic"], request.query
    try:
        wanted, asked = _wanted(query), _asked(query)
        key_reader = _reader(query, "keyas")
    except (FilterRefused, PathRefused, AvroRefused, Unreadable) as refusal:
        return await _form_again(console, request, refusal)
    answered, rows = await console.access.ask(_read_rows, topic, asked, key_reader, wanted)
    page = answered.page
    state = {name: query[name] for name in KEPT if query.get(name)}
    return console.page(
        request,
        "messages.html",
        title=f"Messages of {topic}",
        section="topics",
        topic=topic,
        rows=rows,
        readers=READERS,
        key_reader=key_reader,
        summary=summary(page, wanted, asked.want),
        page=page,
        mistake="",
        mistaken="",
        partitions=answered.partitions,
        is_empty=not any(end > first for first, end in answered.spans.values()),
        state=state,
        wanted=wanted,
        asked=asked,
        sizes=ON_ONE_PAGE,
        most_downloaded=MOST_DOWNLOADED,
        following=None if page.at_the_end else offsets_text(page.next),
        is_first=not text_in(query, "at"),
        line=console.commands.consume(
            topic, start=_start_word(asked, query), partition=asked.partition
        ),
    )


# The field that a refusal is about.
FIELD_OF: tuple[tuple[type[Exception], str], ...] = (
    (FilterRefused, "where"),
    (PathRefused, "path"),
    (AvroRefused, "schema"),
)


async def _form_again(
    console: Console, request: web.Request, refusal: Exception
) -> web.StreamResponse:
    topic, query = request.match_info["topic"], request.query
    spans = await console.access.ask(_spans, topic)
    start = text_in(query, "from", NEWEST)
    said = str(refusal)
    return console.page(
        request,
        "messages.html",
        status=400,
        title=f"Messages of {topic}",
        section="topics",
        topic=topic,
        rows=[],
        readers=READERS,
        key_reader=Reader(),
        summary="Nothing was read",
        page=None,
        mistake=said[:1].upper() + said[1:],
        mistaken=next((field for kind, field in FIELD_OF if isinstance(refusal, kind)), ""),
        partitions=len(spans),
        is_empty=False,
        state={name: query[name] for name in KEPT if query.get(name)},
        wanted=_said(query, Reader()),
        asked=Asked(start if start in STARTS else NEWEST),
        sizes=ON_ONE_PAGE,
        most_downloaded=MOST_DOWNLOADED,
        following=None,
        is_first=True,
        line=console.commands.consume(topic, start="beginning", partition=None),
    )


def _spans(connection: HeldClientSettings, topic: str) -> dict[int, tuple[int, int]]:
    return Topics(connection).spans([topic])[topic]


def _read_rows(
    connection: HeldClientSettings, topic: str, asked: Asked, key_reader: Reader, wanted: Wanted
) -> tuple[Answered, list[MessageRow]]:
    """Reads records and renders them on the same thread, because large documents take time."""
    answered = read_page(connection, topic, asked)
    found = answered.page.found
    return answered, [message_row(seen, key_reader, wanted.reader, wanted.path) for seen in found]


def _start_word(asked: Asked, query: MultiMapping[str]) -> str:
    """As `headrace consume --from` takes it."""
    if asked.start == NEWEST:
        return f"-{asked.want}"
    if asked.start == AT_OFFSET:
        return str(asked.offset)
    return text_in(query, "time") if asked.start == AT_TIME else "beginning"


async def download(console: Console, request: web.Request) -> web.StreamResponse:
    """The records of the page and more, one JSON object per line."""
    topic = request.match_info["topic"]
    asked = _asked(request.query)
    asked.want = MOST_DOWNLOADED
    lines, is_whole = await console.access.ask(_read_lines, topic, asked)
    safe = "".join(sign if sign.isalnum() or sign in "._-" else "_" for sign in topic)
    return web.Response(
        body=lines,
        content_type="application/x-ndjson",
        headers={
            "Content-Disposition": f'attachment; filename="{safe}.ndjson"',
            "X-Headrace-Complete": "yes" if is_whole else "no",
        },
    )


def _read_lines(connection: HeldClientSettings, topic: str, asked: Asked) -> tuple[bytes, bool]:
    page = read_page(connection, topic, asked).page
    lines = "".join(json.dumps(as_object(seen.record)) + "\n" for seen in page.found)
    return lines.encode(), page.at_the_end and not page.unread


async def show_one(console: Console, request: web.Request) -> web.StreamResponse:
    topic, query = request.match_info["topic"], request.query
    needed(query, "partition", "The partition")
    partition = whole(query, "partition", default=0, most=2**31 - 1)
    offset = whole(query, "offset", default=0)
    seen = await console.access.ask(read_one, topic, partition, offset)
    return console.page(
        request,
        "message.html",
        title=f"{topic}, partition {partition}, offset {offset}",
        section="topics",
        status=200 if seen is not None else 404,
        topic=topic,
        partition=partition,
        offset=offset,
        message=None
        if seen is None
        else whole_message(seen, _reader(query, "keyas"), _reader(query, "as")),
        state={name: query[name] for name in ("as", "keyas", "schema") if query.get(name)},
        readers=READERS,
        python=None if seen is None else python_to_read(console.access.bootstrap, seen.record),
        python_again=None
        if seen is None
        else python_to_send(console.access.bootstrap, seen.record),
        line=console.commands.consume(topic, start=str(offset), partition=partition, count=1),
        kcat=console.commands.kcat(topic, partition, offset),
    )


def _reader(query: MultiMapping[str], name: str) -> Reader:
    how, schema = text_in(query, name, AUTO), text_in(query, "schema").strip()
    if how not in READERS:
        raise Unreadable(f"{how!r} is not a known format; choose one of the list.")
    if how == AVRO and not schema:
        raise Unreadable("To read Avro, give its schema.")
    return Reader(how, Schema(schema) if how == AVRO else None)


def _wanted(query: MultiMapping[str]) -> Wanted:
    return _said(query, _reader(query, "as"))


def _said(query: MultiMapping[str], reader: Reader) -> Wanted:
    return Wanted(
        key=text_in(query, "key"),
        text=text_in(query, "text"),
        header=text_in(query, "header"),
        where=text_in(query, "where").strip(),
        path=text_in(query, "path").strip(),
        path_is=text_in(query, "is"),
        latest=text_in(query, "latest") == "1",
        reader=reader,
        control=text_in(query, "control") == "1",
    )


def _asked(query: MultiMapping[str]) -> Asked:
    wanted = _wanted(query)
    start = text_in(query, "from", NEWEST)
    if start not in STARTS:
        raise Unreadable(f"{start!r} is not a start: use newest, oldest, offset or time.")
    if wanted.latest and text_in(query, "until").strip():
        raise Unreadable("The latest message of each key has no end time.")
    if wanted.latest and start != NEWEST:
        raise Unreadable("The latest message of each key is found from the newest on.")
    more: dict[str, Any] = {"bounds": SEARCH} if wanted.narrows else {}
    at = offsets_in(text_in(query, "at"))
    return Asked(
        start,
        offset=whole(query, "offset", default=0),
        time_ms=moment_ms(needed(query, "time", "The time")) if start == AT_TIME else 0,
        until_ms=moment_ms(until) if (until := text_in(query, "until").strip()) else None,
        partition=whole_or_none(query, "partition"),
        # Which is the latest of a key is known only from the end: a later page looks again.
        at=None if wanted.latest else at,
        want=whole(query, "n", default=50, least=1, most=ON_ONE_PAGE[-1]),
        accepts=wanted.accepts(shown_before=at if wanted.latest else None),
        **more,
    )
