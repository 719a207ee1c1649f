"""The console over HTTP: its table of contents, and what becomes of every request.

A refusal or a failure ends in a page with one sentence; a bug ends in a page that says so, and in
the log with its stack.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from headrace.app.triggers.filters import FilterRefused
from headrace.client.connection import Connection
from headrace.client.errors import ClientError, LoginRefused, NoSuchTopic, Unreachable
from headrace.client.groups import NoSuchGroup
from headrace.console.access.cluster_access import ClusterAccess, TooBusy, TookTooLong
from headrace.console.console import Console
from headrace.console.pages import (
    assets,
    cluster,
    dead_letters,
    delayed,
    groups,
    live_tail,
    messages,
    overview,
    sending,
    topic_changes,
    topics,
)
from headrace.console.query import Unreadable
from headrace.console.security.guard import LARGEST_BODY_BYTES, Guard, Refused
from headrace.console.security.tokens import Tokens

log = logging.getLogger("headrace.console")

Page = Callable[[Console, web.Request], Awaitable[web.StreamResponse]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ROUTES: tuple[tuple[str, str, Page], ...] = (
    ("GET", "/", overview.show),
    ("GET", "/live/rates", overview.live_rates),
    ("POST", "/first-message", sending.send_first),
    ("GET", "/topics", topics.show_all),
    ("GET", "/create-topic", topic_changes.show_new),
    ("POST", "/create-topic", topic_changes.create),
    ("GET", "/topics/{topic}", topics.show_one),
    ("GET", "/topics/{topic}/settings", topic_changes.show_settings),
    ("POST", "/topics/{topic}/settings", topic_changes.change_setting),
    ("POST", "/topics/{topic}/partitions", topic_changes.grow),
    ("POST", "/topics/{topic}/empty", topic_changes.empty),
    ("POST", "/topics/{topic}/delete", topic_changes.delete),
    ("GET", "/topics/{topic}/messages", messages.show_all),
    ("GET", "/topics/{topic}/messages.ndjson", messages.download),
    ("GET", "/topics/{topic}/message", messages.show_one),
    ("GET", "/topics/{topic}/tail", live_tail.show),
    ("GET", "/topics/{topic}/tail/stream", live_tail.stream),
    ("GET", "/topics/{topic}/send", sending.show),
    ("POST", "/topics/{topic}/send", sending.send),
    ("GET", "/groups", groups.show_all),
    ("GET", "/groups/one", groups.show_one),
    ("GET", "/groups/reset", groups.show_reset),
    ("POST", "/groups/reset", groups.reset),
    ("POST", "/groups/delete", groups.delete),
    ("GET", "/dead-letters", dead_letters.show_topics),
    ("GET", "/dead-letters/{topic}", dead_letters.show_letters),
    ("GET", "/dead-letters/{topic}/letter", dead_letters.show_one),
    ("POST", "/dead-letters/{topic}", dead_letters.settle),
    ("GET", "/delayed", delayed.show_all),
    ("POST", "/delayed/cancel", delayed.cancel),
    ("POST", "/delayed/now", delayed.deliver_now),
    ("GET", "/cluster", cluster.show),
    ("GET", "/assets/{name}", assets.serve),
    ("GET", "/health", assets.health),
)

# What a failure is in HTTP; the first kind that fits.
STATUS_OF: tuple[tuple[type[Exception], int], ...] = (
    (NoSuchTopic, 404),
    (NoSuchGroup, 404),
    (Unreachable, 503),
    (LoginRefused, 502),
    (TooBusy, 503),
    (TookTooLong, 504),
    (Unreadable, 400),
    (FilterRefused, 400),
    (ClientError, 502),
)
HEADINGS = {
    400: "That cannot be read",
    403: "Not allowed",
    404: "Not found",
    413: "Too large",
    421: "Not this address",
    500: "The console has made a mistake",
    502: "The cluster says no",
    503: "Nobody answers",
    504: "No answer in time",
}


def make_console(
    connection: Connection, *, names: frozenset[str] = frozenset(), read_only: bool = False
) -> Console:
    guard = Guard(names, read_only=read_only, tokens=Tokens())
    return Console(ClusterAccess(connection), guard)


def application(console: Console) -> web.Application:
    async def passing(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await _answer(console, request, handler)
        if not response.prepared:  # a live part has sent its headers long ago
            console.guard.finish(request, response)
        return response

    app = web.Application(client_max_size=LARGEST_BODY_BYTES, middlewares=[web.middleware(passing)])
    for method, path, page in ROUTES:
        app.router.add_route(method, path, _bound(console, page))
    app.on_shutdown.append(lambda _: _end_streams(console))
    app.on_cleanup.append(lambda _: console.access.close())
    return app


def _bound(console: Console, page: Page) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await page(console, request)

    return handle


async def _end_streams(console: Console) -> None:
    for stream in list(console.streams):
        if stream is not None:
            stream.cancel()


async def _answer(console: Console, request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        await console.guard.check(request)
        return await handler(request)
    except Refused as refusal:
        return _failure(console, request, refusal.status, str(refusal))
    except web.HTTPException as known:
        sentence = "There is no such page." if known.status == 404 else f"{known.reason}."
        return _failure(console, request, known.status, sentence)
    except (ClientError, Unreadable, FilterRefused) as failure:
        status = next(number for kind, number in STATUS_OF if isinstance(failure, kind))
        return _failure(console, request, status, _sentence(failure))
    except (asyncio.CancelledError, ConnectionError):
        raise
    except Exception:
        log.exception("a page failed: %s %s", request.method, request.path)
        return _failure(
            console,
            request,
            500,
            "This is a mistake in the console, not in your cluster; its log says more.",
        )


def _sentence(failure: Exception) -> str:
    said = str(failure)
    said = said[:1].upper() + said[1:]
    return said if said.endswith((".", "!", "?")) else f"{said}."


def _failure(
    console: Console, request: web.Request, status: int, sentence: str
) -> web.StreamResponse:
    if status == 421:  # to a stranger not even a page
        return web.Response(text=sentence, status=status)
    return console.page(
        request,
        "failure.html",
        title=HEADINGS.get(status, "That did not work"),
        section="",
        status=status,
        sentence=sentence,
        status_code=status,
        is_read=request.method == "GET",
    )
