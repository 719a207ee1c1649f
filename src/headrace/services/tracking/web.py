"""The collector over HTTP: `POST /track`, and a window with `/health` and `/metrics`.

Bodies are JSON, as `application/json` or as the `text/plain` of `navigator.sendBeacon`, which needs
no preflight. With origins given, pages of other origins are refused; without, no page can read an
answer, but a beacon still arrives. Bounded: the body, the time to send it, requests at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from headrace.services.tracking.collector import BUSY, TOO_LARGE, Answer, Collector
from headrace.services.tracking.metrics import Numbers

SLOWEST_SENDER_S = 10.0
KEEP_ALIVE_S = 15.0
LONGEST_STOP_S = 5.0
BODY_KINDS = ("application/json", "text/plain")
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
ANY_ORIGIN = "*"
PREFLIGHT_HOLDS_S = 86_400
TIMED_OUT, FORBIDDEN, WRONG_KIND = 408, 403, 415

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Door:
    """What browsers reach."""

    def __init__(self, collector: Collector, origins: Iterable[str] = ()) -> None:
        self._collector = collector
        self._origins = frozenset(origins)
        self._under_way = 0
        self.application = web.Application(client_max_size=collector.limits.body_bytes)
        self.application.router.add_post("/track", self._track)
        self.application.router.add_options("/track", self._preflight)
        self.application.router.add_get("/health", health(collector))

    async def _track(self, request: web.Request) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        if self._origins and origin is not None and not self._allows(origin):
            answer = Answer(FORBIDDEN, {"error": "Pages of this origin are not taken from."})
        elif self._under_way >= self._collector.limits.requests:
            answer = Answer(BUSY, {"error": "Too many requests at once."}, 1)
        else:
            self._under_way += 1
            try:
                answer = await self._answer(request)
            finally:
                self._under_way -= 1
        self._collector.counters.requests[answer.status] += 1
        response = web.json_response(
            answer.document, status=answer.status, headers=self._cors(origin)
        )
        if answer.retry_after_s is not None:
            response.headers["Retry-After"] = str(answer.retry_after_s)
        if answer.status in (TIMED_OUT, TOO_LARGE):
            response.force_close()  # the rest of the body is not wanted
        return response

    async def _answer(self, request: web.Request) -> Answer:
        if request.content_type not in BODY_KINDS and "Content-Type" in request.headers:
            return Answer(WRONG_KIND, {"error": f"Send {' or '.join(BODY_KINDS)}."})
        try:
            async with asyncio.timeout(SLOWEST_SENDER_S):
                body = await request.read()
        except TimeoutError:
            return Answer(TIMED_OUT, {"error": f"No body in {SLOWEST_SENDER_S:g} seconds."})
        except web.HTTPRequestEntityTooLarge:
            most = self._collector.limits.body_bytes
            return Answer(TOO_LARGE, {"error": f"The body is larger than {most} bytes."})
        return await self._collector.take(body)

    async def _preflight(self, request: web.Request) -> web.StreamResponse:
        headers = self._cors(request.headers.get("Origin"))
        if headers:
            headers["Access-Control-Allow-Methods"] = "POST"
            headers["Access-Control-Allow-Headers"] = "Content-Type"
            headers["Access-Control-Max-Age"] = str(PREFLIGHT_HOLDS_S)
        return web.Response(status=204, headers=headers)

    def _allows(self, origin: str) -> bool:
        return ANY_ORIGIN in self._origins or origin in self._origins

    def _cors(self, origin: str | None) -> dict[str, str]:
        if origin is None or not self._allows(origin):
            return {}
        return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}


def health(collector: Collector) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        ledger, limits = collector.ledger, collector.limits
        full = ledger.waiting >= limits.queue or ledger.bytes >= limits.queue_bytes
        said = {"ok": not full, "waiting": ledger.waiting, "queue": limits.queue}
        return web.json_response(said, status=BUSY if full else 200)

    return answer


def window(collector: Collector) -> web.Application:
    """For orchestrators and Prometheus, on an address that browsers do not reach."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Numbers(collector))

    async def metrics(request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": PROMETHEUS_TEXT}
        return web.Response(body=generate_latest(registry), headers=headers)

    application = web.Application()
    application.router.add_get("/health", health(collector))
    application.router.add_get("/metrics", metrics)
    return application


class Sites:
    """Applications of aiohttp on their addresses, opened and closed together."""

    def __init__(self) -> None:
        self._runners: list[web.AppRunner] = []

    async def open(self, application: web.Application, host: str, port: int) -> int:
        """Listen; the port, which is a free one for 0."""
        runner = web.AppRunner(
            application,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_S,
            shutdown_timeout=LONGEST_STOP_S,
        )
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, host, port).start()
        return int(runner.addresses[0][1])

    async def close(self) -> None:
        """Take no more, and let requests under way end."""
        for runner in self._runners:
            await runner.cleanup()
