"""Server-sent events: one stream to one browser, ended when it goes or when the console stops.

Bounded: so many streams at once, and a frame is sent only when the one before has left.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

from aiohttp import web

from headrace.client.errors import ClientError
from headrace.console.console import Console

MOST_STREAMS = 32
RETRY_MS = 3_000  # a browser comes back this late


async def stream(
    console: Console, request: web.Request, frames: AsyncIterator[tuple[str, Any]]
) -> web.StreamResponse:
    """Events by name, each with a document; what fails is told as an event and ends the stream."""
    if len(console.streams) >= MOST_STREAMS:
        return web.Response(status=503, text="Too many live pages are open.")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    console.guard.finish(request, response)
    task = asyncio.current_task()
    console.streams.add(task)
    try:
        await response.prepare(request)
        await response.write(b"retry: %d\n\n" % RETRY_MS)
        with suppress(ConnectionError):
            async with aclosing(frames):  # type: ignore[type-var]
                try:
                    async for name, document in frames:
                        await response.write(event(name, document))
                except ClientError as failure:
                    await response.write(event("failure", {"sentence": str(failure)}))
    finally:
        console.streams.discard(task)
    return response


def event(name: str, document: Any) -> bytes:
    """JSON has no line ends of its own here, so a record cannot forge an event."""
    return f"event: {name}\ndata: {json.dumps(document)}\n\n".encode()
