"""Server-sent events: one stream to one browser, ended when it goes or when the console stops.

Bounded: so many streams at once, fewer of one browser, and a frame is sent only when the one before
has left. A browser that reads nothing for a while is disconnected: it would hold its place for
ever.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

from aiohttp import web

from headrace.client.errors import ClientError
from headrace.console.access.cluster_access import page_began_s
from headrace.console.console import Console

log = logging.getLogger("headrace.console.live")

MOST_STREAMS = 32
# Browsers open at most six connections to one host; the rest is for other users.
MOST_OF_ONE = 8
LONGEST_WRITE_S = 30.0
RETRY_MS = 3_000  # a browser reconnects after this time


async def stream(
    console: Console, request: web.Request, frames: AsyncIterator[tuple[str, Any]]
) -> web.StreamResponse:
    """Streams events by name, each with a document. A failure is sent as an event and ends the
    stream."""
    browser = console.guard.session_of(request)
    open_here = sum(each == browser for each in console.streams.values())
    if len(console.streams) >= MOST_STREAMS or open_here >= MOST_OF_ONE:
        return web.Response(status=503, text="Too many live pages are open; close some.")
    page_began_s.set(None)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    console.guard.finish(request, response)
    task = asyncio.current_task()
    assert task is not None, "a handler runs in a task"
    console.streams[task] = browser
    try:
        await response.prepare(request)
        with suppress(ConnectionError):
            await _write(response, b"retry: %d\n\n" % RETRY_MS)
            async with aclosing(frames):  # type: ignore[type-var]
                try:
                    async for name, document in frames:
                        await _write(response, event(name, document))
                except ClientError as failure:
                    await _write(response, event("failure", {"sentence": str(failure)}))
    except TimeoutError:
        log.info("a live page was cut off: its browser takes nothing")
        if request.transport is not None:
            request.transport.abort()
    finally:
        del console.streams[task]
    return response


async def _write(response: web.StreamResponse, frame: bytes) -> None:
    async with asyncio.timeout(LONGEST_WRITE_S):
        await response.write(frame)


def event(name: str, document: Any) -> bytes:
    """JSON has no line ends of its own here, so a record cannot forge an event."""
    return f"event: {name}\ndata: {json.dumps(document)}\n\n".encode()
