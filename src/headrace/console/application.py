"""The console over HTTP: its table of contents, and the handling of every request.

A refusal or a failure ends in a page with one sentence. A bug ends in a page that reports an
internal error, and in the log with its stack.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path

from aiohttp import web

from headrace.app.triggers.filters import FilterRefused
from headrace.client.admin.groups import NoSuchGroup
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, LoginRefused, NoSuchTopic, Unreachable
from headrace.console.access.cluster_access import (
    ClusterAccess,
    Ended,
    TooBusy,
    TookTooLong,
    page_began_s,
)
from headrace.console.access.security import NotAllowed
from headrace.console.audit import Audit
from headrace.console.console import SEE_OTHER, Console, now_ms
from headrace.console.decoding.avro import AvroRefused
from headrace.console.decoding.json_path import PathRefused
from headrace.console.history.sampler import Sampler
from headrace.console.pages import (
    assets,
    backlog,
    backlog_actions,
    cluster,
    dead_letters,
    delayed,
    groups,
    life,
    live_tail,
    login,
    message_form,
    messages,
    outbox,
    overview,
    pipelines,
    rights,
    security,
    topic_changes,
    topics,
    transactions,
)
from headrace.console.query import Unreadable
from headrace.console.renderer import Renderer, link
from headrace.console.security.guard import LARGEST_BODY_BYTES, OF_SESSIONS, Guard, RequestRefused
from headrace.console.security.logins import People, Person
from headrace.console.security.tokens import Tokens

log = logging.getLogger("headrace.console")

PIPELINES = "headrace-pipelines"  # the default folder in which `headrace pipeline` keeps its state

# The user of the current request; None without a login.
_person: ContextVar[Person | None] = ContextVar("person", default=None)

Page = Callable[[Console, web.Request], Awaitable[web.StreamResponse]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ROUTES: tuple[tuple[str, str, Page], ...] = (
    ("GET", "/", overview.show),
    ("GET", "/live/rates", overview.live_rates),
    ("GET", "/live/connection", overview.show_connection),
    ("POST", "/first-message", message_form.send_first),
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
    ("GET", "/topics/{topic}/send", message_form.show),
    ("POST", "/topics/{topic}/send", message_form.send),
    ("GET", "/groups", groups.show_all),
    ("GET", "/groups/one", groups.show_one),
    ("GET", "/groups/reset", groups.show_reset),
    ("POST", "/groups/reset", groups.reset),
    ("POST", "/groups/delete", groups.delete),
    ("GET", "/groups/backlog", backlog.show),
    ("GET", "/groups/backlog/progress", backlog_actions.progress),
    ("POST", "/groups/backlog/stop", backlog_actions.stop),
    ("POST", "/groups/replay", backlog.go_back),
    ("POST", "/groups/replay/undo", backlog.undo),
    ("POST", "/groups/widen", backlog_actions.widen),
    ("POST", "/groups/widen/abort", backlog_actions.abort),
    ("POST", "/groups/park", backlog_actions.park),
    ("POST", "/groups/bring-back", backlog_actions.bring_back),
    ("POST", "/groups/expire", backlog_actions.expire),
    ("GET", "/dead-letters", dead_letters.show_topics),
    ("GET", "/dead-letters/{topic}", dead_letters.show_letters),
    ("GET", "/dead-letters/{topic}/letter", dead_letters.show_one),
    ("GET", "/dead-letters/{topic}/done", dead_letters.show_done),
    ("GET", "/dead-letters/{topic}/progress", dead_letters.progress),
    ("POST", "/dead-letters/{topic}/stop", dead_letters.stop),
    ("POST", "/dead-letters/{topic}", dead_letters.settle),
    ("GET", "/delayed", delayed.show_all),
    ("GET", "/delayed/rejected", delayed.show_rejected),
    ("POST", "/delayed/cancel", delayed.cancel),
    ("POST", "/delayed/reschedule", delayed.reschedule),
    ("POST", "/delayed/now", delayed.deliver_now),
    ("GET", "/life", life.show),
    ("GET", "/transactions", transactions.show),
    ("POST", "/transactions/abort", transactions.abort),
    ("POST", "/transactions/abort-hanging", transactions.abort_hanging),
    ("GET", "/outbox", outbox.show),
    ("POST", "/outbox", outbox.retry_or_discard),
    ("GET", "/pipelines", pipelines.show),
    ("GET", "/cluster", cluster.show),
    ("GET", "/cluster/checkup", cluster.show_checkup),
    ("GET", "/security", security.show),
    ("POST", "/security/users", rights.set_user),
    ("POST", "/security/users/remove", rights.remove_user),
    ("POST", "/security/acls", rights.add_entries),
    ("POST", "/security/acls/remove", rights.remove_entry),
    ("POST", "/security/quotas", rights.set_limit),
    ("POST", "/security/quotas/remove", rights.remove_limit),
    ("GET", "/login", login.show),
    ("POST", "/login", login.log_in),
    ("POST", "/logout", login.log_out),
    ("GET", "/assets/{name}", assets.serve),
    ("GET", "/health", assets.health),
)

# The HTTP status of an error; the first kind that fits.
STATUS_OF: tuple[tuple[type[Exception], int], ...] = (
    (NoSuchTopic, 404),
    (NoSuchGroup, 404),
    (Unreachable, 503),
    (LoginRefused, 502),
    (TooBusy, 503),
    (TookTooLong, 504),
    (Ended, 401),
    (NotAllowed, 403),
    (Unreadable, 400),
    (FilterRefused, 400),
    (PathRefused, 400),
    (AvroRefused, 400),
    (ClientError, 502),
)
HEADINGS = {
    400: "Invalid input",
    401: "Log in first",
    408: "Too slow",
    429: "Too often",
    403: "Not allowed",
    404: "Not found",
    413: "Too large",
    421: "Not this address",
    500: "Error in the console",
    502: "The cluster refused the request",
    503: "No broker answers",
    504: "No answer in time",
}


def make_console(
    connection: ClientSettings,
    *,
    names: frozenset[str] = frozenset(),
    read_only: bool = False,
    state: Path | None = None,
    login: bool = False,
    outboxes: Sequence[str] = (),
    pipelines_at: Path | None = None,
    park_to: str = "",
    name: str = "",
    base: str = "",
    audit: Audit | None = None,
) -> Console:
    """Makes the console of one cluster. `name` and `base` are the cluster's own, if there are
    several; `audit` is then the one that they share. `state` is the folder of what outlives the
    console; without it, that is kept in memory. With `login`, `connection` belongs to the console's
    own user, which only takes samples; if it has no user, no samples are taken."""
    guard = Guard(names, read_only=read_only, tokens=Tokens(), base=base)
    access = ClusterAccess(connection)
    may_sample = not login or "sasl.username" in connection.settings
    return Console(
        access,
        guard,
        Renderer(base),
        name=name,
        sampler=Sampler(access, state) if may_sample else None,
        audit=Audit(now_ms, state) if audit is None else audit,
        people=People() if login else None,
        outboxes=tuple(outboxes),
        pipelines=Path(PIPELINES) if pipelines_at is None else pipelines_at,
        park_to=park_to,
    )


def application(console: Console) -> web.Application:
    async def passing(request: web.Request, handler: Handler) -> web.StreamResponse:
        person = None
        if console.people is not None:
            now_s = time.monotonic()
            for gone in console.people.sweep(now_s):
                await console.part_with(gone)
            person = console.people.of(request.cookies.get(console.guard.cookie), now_s)
        _person.set(person)
        page_began_s.set(time.monotonic())
        response = await _answer(console.seen_by(person), request, handler)
        if not response.prepared:  # a live part has sent its headers long ago
            console.guard.finish(request, response)
        return response

    app = web.Application(client_max_size=LARGEST_BODY_BYTES, middlewares=[web.middleware(passing)])
    for method, path, page in ROUTES:
        app.router.add_route(method, path, _bound(console, page))
    app.on_shutdown.append(lambda _: _end_streams(console))
    app.cleanup_ctx.append(lambda _: _in_the_background(console))
    app.on_cleanup.append(lambda _: _close(console))
    return app


async def _in_the_background(console: Console) -> AsyncIterator[None]:
    """The sampler, for as long as the console is served."""
    if console.sampler is None:
        yield
        return
    sampling = asyncio.create_task(console.sampler.run())
    yield
    sampling.cancel()
    with suppress(asyncio.CancelledError):
        await sampling
    await console.sampler.close()


def _bound(console: Console, page: Page) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await page(console.seen_by(_person.get()), request)

    return handle


async def _close(console: Console) -> None:
    await console.jobs.close()
    for person in console.people.all() if console.people is not None else ():
        await person.access.close()
    await console.access.close()


async def _end_streams(console: Console) -> None:
    for stream in list(console.streams):
        stream.cancel()


async def _answer(console: Console, request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        await console.guard.check(request)
    except (
        RequestRefused
    ) as refusal:  # of a stranger, or a page that is out of date: nothing was asked
        log.info("refused: %s %.200r: %s", request.method, request.path, refusal)
        return _failure(console, request, refusal.status, str(refusal), noted=False)
    try:
        if (
            console.people is not None
            and console.person is None
            and not _is_open(console.guard.path_of(request))
        ):
            return _to_login(console, request)
        return await handler(request)
    except RequestRefused as refusal:
        return _failure(console, request, refusal.status, str(refusal))
    except LoginRefused as refusal:
        # The password was changed, or the user removed, since the person has logged in.
        if console.people is None:
            return _failure(console, request, 502, _sentence(refusal))
        gone = console.people.end(console.guard.session_of(request))
        if gone is not None:
            await console.part_with(gone)
        return _to_login(console, request)
    except web.HTTPException as known:
        sentence = "There is no such page." if known.status == 404 else f"{known.reason}."
        return _failure(console, request, known.status, sentence)
    except (ClientError, Unreadable, FilterRefused, PathRefused, AvroRefused) as failure:
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
            "This is a defect of the console, not of your cluster. See the log of the console.",
        )


def _is_open(path: str) -> bool:
    """Returns whether a path is open to all clients before login."""
    return path in ("/login", "/health") or path.startswith("/assets/")


def _to_login(console: Console, request: web.Request) -> web.StreamResponse:
    if request.method != "GET" or "text/event-stream" in request.headers.get("Accept", ""):
        return web.Response(status=401, text="Log in first. Nothing was changed.")
    to = request.path_qs if console.guard.path_of(request) != "/" else ""
    return web.Response(status=SEE_OTHER, headers={"Location": link("login", to=to)})


def _sentence(failure: Exception) -> str:
    said = str(failure)
    said = said[:1].upper() + said[1:]
    return said if said.endswith((".", "!", "?")) else f"{said}."


def _failure(
    console: Console, request: web.Request, status: int, sentence: str, *, noted: bool = True
) -> web.StreamResponse:
    """Returns the page of a failure. `noted`: write it to the audit, because a change was
    requested; a login writes its own entry."""
    path = console.guard.path_of(request)
    if noted and request.method == "POST" and path not in OF_SESSIONS:
        address = request.remote or ""
        console.note(console.by, address, path, f"Refused: {sentence}", done=False)
    if status == 421:  # send no page to a client that uses a foreign name
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
