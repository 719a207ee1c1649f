"""The collector over HTTP: `POST /track`, and status pages with `/health` and `/metrics`.

Bodies are JSON, as `application/json` or as the `text/plain` of `navigator.sendBeacon`, which needs
no preflight. With origins given, pages of other origins are refused; without, no page can read an
answer, but a beacon still arrives. Bounded: connections and requests at once, the body, the time
until a request begins and until its body is there; a compressed body is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus

from aiohttp import web

from headrace.edge.browser_guard import AllowedOrigins
from headrace.edge.listener import Listener
from headrace.prometheus_text import render
from headrace.services.tracking.collector import BAD, BUSY, TOO_LARGE, Answer, Collector
from headrace.services.tracking.metrics import collector_families

KEEP_ALIVE_S = 15.0
LONGEST_LINGER_S = 10.0
MOST_WATCHERS = 64  # of health and metrics
LONGEST_STOP_S = 5.0
BODY_KINDS = ("application/json", "text/plain")
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
PREFLIGHT_HOLDS_S = 86_400
TIMED_OUT, FORBIDDEN, WRONG_KIND = 408, 403, 415

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Door:
    """The public HTTP interface."""

    def __init__(self, collector: Collector, origins: Iterable[str] = ()) -> None:
        self.collector = collector
        self._origins = AllowedOrigins(
            origins,
            methods="POST",
            request_headers="Content-Type",
            preflight_s=PREFLIGHT_HOLDS_S,
        )
        self._under_way = 0
        self.application = web.Application(client_max_size=collector.limits.body_bytes)
        self.application.router.add_post("/track", self._track)
        self.application.router.add_options("/track", self._preflight)
        self.application.router.add_get("/health", health(collector))

    async def _track(self, request: web.Request) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        if self._origins and origin is not None and not self._origins.allow(origin):
            answer = Answer(FORBIDDEN, {"error": "Pages of this origin are not taken from."})
        elif self._under_way >= self.collector.limits.requests:
            answer = Answer(BUSY, {"error": "Too many requests at once."}, 1)
        else:
            self._under_way += 1
            try:
                answer = await self._answer(request)
            finally:
                self._under_way -= 1
        self.collector.counters.requests[answer.status] += 1
        response = web.json_response(
            answer.document, status=answer.status, headers=self._origins.headers_of(origin)
        )
        if answer.retry_after_s is not None:
            response.headers["Retry-After"] = str(answer.retry_after_s)
        if answer.status in (TIMED_OUT, TOO_LARGE):
            response.force_close()  # the rest of the body is not wanted
        return response

    async def _answer(self, request: web.Request) -> Answer:
        limits, headers = self.collector.limits, request.headers
        if request.content_type not in BODY_KINDS and "Content-Type" in headers:
            return Answer(WRONG_KIND, {"error": f"Send {' or '.join(BODY_KINDS)}."})
        if headers.get("Content-Encoding", "identity").lower() != "identity":
            return Answer(WRONG_KIND, {"error": "Send the body as it is, not compressed."})
        try:
            async with asyncio.timeout(limits.body_s):
                body = await request.read()
        except TimeoutError:
            return Answer(TIMED_OUT, {"error": f"No whole body in {limits.body_s:g} seconds."})
        except web.HTTPRequestEntityTooLarge:
            return Answer(TOO_LARGE, {"error": f"The body has over {limits.body_bytes} bytes."})
        except (web.RequestPayloadError, ConnectionError):
            return Answer(BAD, {"error": "The body broke off."})
        return await self.collector.take(body)

    async def _preflight(self, request: web.Request) -> web.StreamResponse:
        headers = self._origins.preflight(request.headers.get("Origin"))
        return web.Response(status=204, headers=headers)


def health(collector: Collector) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        ledger, limits = collector.ledger, collector.limits
        full = ledger.waiting >= limits.queue or ledger.bytes >= limits.queue_bytes
        said = {"ok": not full, "waiting": ledger.waiting, "queue": limits.queue}
        return web.json_response(said, status=BUSY if full else 200)

    return answer


def status_pages(collector: Collector) -> web.Application:
    """For orchestrators and Prometheus, on an address that browsers do not reach."""

    async def metrics(request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": PROMETHEUS_TEXT}
        body = render(collector_families(collector)).encode()
        return web.Response(body=body, headers=headers)

    application = web.Application()
    application.router.add_get("/health", health(collector))
    application.router.add_get("/metrics", metrics)
    return application


class Sites:
    """Applications of aiohttp on their addresses, opened and closed together."""

    def __init__(self) -> None:
        self._runners: list[web.AppRunner] = []
        self._listeners: list[Listener] = []

    async def open_to_the_world(self, door: Door, host: str, port: int) -> int:
        limits, counters = door.collector.limits, door.collector.counters

        def refused() -> None:
            counters.requests[BUSY] += 1

        return await self.open(
            door.application,
            host,
            port,
            connections=limits.connections,
            idle_s=limits.idle_s,
            linger_s=limits.body_s,
            refused=refused,
        )

    async def open(
        self,
        application: web.Application,
        host: str,
        port: int,
        *,
        connections: int = MOST_WATCHERS,
        idle_s: float = KEEP_ALIVE_S,
        linger_s: float = LONGEST_LINGER_S,
        refused: Callable[[], None] = lambda: None,
    ) -> int:
        """Listen; the port, which is a free one for 0. A connection on which no request begins
        within `idle_s` is closed, one beyond `connections` is refused. Bytes that a client still
        sends after its last answer are read for `linger_s`, so that it can read that answer."""
        runner = web.AppRunner(
            application,
            access_log=None,
            keepalive_timeout=idle_s,
            lingering_time=linger_s,
            shutdown_timeout=LONGEST_STOP_S,
            auto_decompress=False,  # a few bytes could become many
        )
        await runner.setup()
        self._runners.append(runner)
        server = runner.server
        assert server is not None

        listener = Listener(
            server,
            count=lambda: len(server.connections),
            most=connections,
            refusal=HTTPStatus.SERVICE_UNAVAILABLE,
            refused=refused,
        )
        self._listeners.append(listener)
        return await listener.open(host, port)

    async def close(self) -> None:
        """Take no more, and let requests under way end."""
        for listener in self._listeners:
            listener.close()
        for runner in self._runners:
            await runner.cleanup()
