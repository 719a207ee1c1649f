"""New records of a topic, live: a few frames a second, each bounded.

A frame has the newest records of each partition and says how many it skipped, so a look at a busy
topic costs the cluster, the console and the browser no more than one at a quiet one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_pages import Bounds, Browser, Page
from headrace.console import live
from headrace.console.console import Console
from headrace.console.views.messages import MessageRow, message_row
from headrace.console.views.words import moment

EVERY_S = 0.4
MOST_IN_A_FRAME = 40
LEAST_OF_A_PARTITION = 4
ASKED_ANEW_AFTER = 5  # frames in which a partition could not be read
BOUNDS = Bounds(records=20_000, bytes=4 << 20, seconds=2.0)


async def show(console: Console, request: web.Request) -> web.StreamResponse:
    topic = request.match_info["topic"]
    return console.page(
        request,
        "tail.html",
        title=f"Live: {topic}",
        section="topics",
        topic=topic,
        line=console.commands.consume(topic, start="end", follow=True),
    )


async def stream(console: Console, request: web.Request) -> web.StreamResponse:
    return await live.stream(console, request, _frames(console, request.match_info["topic"]))


async def _frames(console: Console, topic: str) -> AsyncIterator[tuple[str, Any]]:
    browser = await console.access.ask(Browser, topic)
    try:
        at = await console.access.ask(_ends, browser)
        yield "begun", {"partitions": len(browser.partitions)}
        unread = 0
        while True:
            page, rows = await console.access.ask(_fresh, browser, at)
            at, unread = page.next, unread + 1 if page.unread else 0
            if unread >= ASKED_ANEW_AFTER:  # the leader may have changed
                browser.close()
                browser, unread = await console.access.ask(Browser, topic), 0
            if rows or page.skipped:
                yield "messages", {"rows": rows, "skipped": page.skipped}
            elif page.unread:
                yield "unread", {"partitions": sorted(page.unread)}
            else:
                yield "quiet", {}
            await asyncio.sleep(EVERY_S)
    finally:
        browser.close()


def _ends(connection: ClientSettings, browser: Browser) -> dict[int, int]:
    return browser.ends(browser.partitions)


def _fresh(
    connection: ClientSettings, browser: Browser, at: dict[int, int]
) -> tuple[Page, list[dict[str, Any]]]:
    """The new records, and their form on the page; made on a thread, since values may be large."""
    each = max(MOST_IN_A_FRAME // max(len(browser.partitions), 1), LEAST_OF_A_PARTITION)
    page = browser.fresh(at, most=each, bounds=BOUNDS)
    found = [seen for seen in page.found if seen.is_data]
    shown = found[-MOST_IN_A_FRAME:]
    page.skipped += len(found) - len(shown)
    return page, [as_row(message_row(seen)) for seen in shown]


def as_row(row: MessageRow) -> dict[str, Any]:
    """The browser puts these in as text, never as HTML."""
    return {
        "partition": row.partition,
        "offset": row.offset,
        "time": moment(row.timestamp_ms),
        "key": row.key.preview,
        "key_kind": row.key.kind,
        "value": row.value.preview,
        "value_kind": row.value.kind,
        "marks": row.marks,
    }
