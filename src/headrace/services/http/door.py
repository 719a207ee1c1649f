"""From an HTTP request to an endpoint, and back: the path of every request.

First the limits, Host and Origin, the user, then the endpoint. Only here a refusal, ours or the
cluster's, becomes an answer; a bug becomes 500 and a line in the log, and its connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import cast

from aiohttp import web

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.prometheus_text import Family
from headrace.services.http import access_log
from headrace.services.http.budget import Budget, Lease
from headrace.services.http.cluster_refusals import refusal_of
from headrace.services.http.consumers.consumer_instance import ConsumerInstance
from headrace.services.http.consumers.instance_registry import InstanceRegistry
from headrace.services.http.counters import Counters, door_families
from headrace.services.http.dialects import v2
from headrace.services.http.endpoints import ENDPOINTS
from headrace.services.http.exchange import Exchange, line
from headrace.services.http.guard import Guard
from headrace.services.http.limits import HttpLimits
from headrace.services.http.questions import Questions
from headrace.services.http.queues.open_queues import OpenQueues
from headrace.services.http.quick_answer import QuickAnswer
from headrace.services.http.refusal import (
    AWAY,
    BAD_REQUEST,
    FAILED,
    TIMED_OUT,
    TOO_LARGE,
    Refusal,
    busy,
)
from headrace.services.http.routes import match
from headrace.services.http.streams.topic_feed import TopicFeed
from headrace.services.http.users.logins import Logins
from headrace.services.http.users.user_access import UserAccess
from headrace.services.http.writes.key_slot import Answered
from headrace.services.http.writes.keyed_writes import KeyedWrites
from headrace.services.http.writes.writes import Write

log = logging.getLogger("headrace.http")

ALWAYS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Server": "headrace"}
FAULT = "a request failed: %s"
CONTINUE = "100-continue"
UNKNOWN = "unknown"  # the endpoint of a request that has none
# The rest of the body is not read, so the connection cannot be reused.
ENDS_THE_CONNECTION = (TIMED_OUT, TOO_LARGE)


class Door:
    GONE = 499  # counted and logged for a caller who did not wait for the answer
    always = ALWAYS

    def __init__(
        self,
        connection: ClientSettings,
        limits: HttpLimits,
        guard: Guard,
        *,
        login: bool = False,
        mechanism: str = "SCRAM-SHA-512",
    ) -> None:
        self.limits = limits
        self.guard = guard
        self.base = ""  # our own address; known once the port is
        self.draining = False
        self.counters = Counters()
        self.budget = Budget(requests=limits.requests, size_bytes=limits.in_flight_bytes)
        self.questions = Questions(at_once=limits.questions, waiting=limits.questions_waiting)
        self.logins = Logins(
            connection, limits, self.questions, required=login, mechanism=mechanism
        )
        # Names the server that made an instance, to find it in logs.
        self.id = secrets.token_hex(4)
        self.instances: InstanceRegistry[ConsumerInstance] = InstanceRegistry(
            f"headrace-{self.id}", most=limits.instances, idle_s=limits.instance_idle_s
        )
        self.queues = OpenQueues(
            f"headrace-{self.id}", most=limits.instances, idle_s=limits.instance_idle_s
        )
        self.streams = 0
        self.unread_bytes = 0  # of answers; connections keep count
        # Held here until they end: asyncio itself refers to a task only weakly.
        self.delayed_writes: set[asyncio.Future[None]] = set()
        self._ending: list[TopicFeed] = []  # failed, and replaced

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """aiohttp calls this for each request."""
        started = time.perf_counter()
        path, _, query = request.raw_path.partition("?")
        endpoint, user = UNKNOWN, ""
        lease = Lease(self.budget)
        entered = False
        try:
            if request.method == "OPTIONS":
                response: web.StreamResponse = self._preflight(request)
            else:
                self.guard.check(request.headers)
                route, params = match(request.method, path)
                endpoint = route.endpoint
                if request.headers.get("Expect", CONTINUE).lower() != CONTINUE:
                    raise Refusal(417, "Expect may say 100-continue only.")
                if self.owes_too_much and route.method == "GET" and not route.is_open:
                    raise busy("Too many answers are unread; ask again.", 5)
                self.budget.enter()
                entered = True
                access = await self._access(request, route.is_open)
                user = access.name
                exchange = Exchange(self, access, request, params, query, lease)
                access.in_use += 1
                try:
                    response = await ENDPOINTS[endpoint](exchange)
                finally:
                    access.in_use -= 1
        except Refusal as refusal:
            response = _shown(self.refused(refusal))
        except ClientError as failure:
            response = _shown(self.refused(refusal_of(failure)))
        except (asyncio.CancelledError, ConnectionError):
            # The end of a stream, whose reader leaves when it likes, or a caller who did not wait.
            status = 200 if request.writer.output_size > 0 else self.GONE
            peer = request.remote or ""
            self.note(endpoint, status, started, peer, user, request.method, path)
            raise
        except Exception:
            log.exception(FAULT, endpoint)
            response = _shown(self.failed())
        finally:
            if entered:
                self.budget.leave()
            lease.end()
        if request.writer.output_size > 0 and not response.prepared:
            log.warning("an answer under way was cut: %s, %d", endpoint, response.status)
            self.note(endpoint, response.status, started, request.remote or "", user, "-", path)
            raise ConnectionResetError("an answer was under way")
        self._finish(request, response)
        peer = request.remote or ""
        self.note(endpoint, response.status, started, peer, user, request.method, path)
        return response

    def note(
        self,
        endpoint: str,
        status: int,
        started: float,
        peer: str,
        user: str,
        method: str,
        path: str,
    ) -> None:
        """Count a request that has ended, and log it."""
        spent = time.perf_counter() - started
        self.counters.requests[endpoint, status] += 1
        self.counters.seconds[endpoint] += spent
        if access_log.log.isEnabledFor(logging.INFO):
            access_log.note(peer or "-", user, method, path, status, spent)

    def misunderstood(self, peer: str) -> web.StreamResponse:
        """Answers bytes that are not an HTTP request, or a request whose headers are too large."""
        self.note(UNKNOWN, BAD_REQUEST, time.perf_counter(), peer, "", "-", "-")
        answer = self.refused(Refusal(BAD_REQUEST, "This is not a request of HTTP/1.1."))
        answer.headers.update(self.always)
        answer.force_close()
        return _shown(answer)

    async def _access(self, request: web.BaseRequest, is_open: bool) -> UserAccess:
        if is_open:
            return self.logins.own
        if self.draining:
            raise Refusal(
                AWAY,
                "The server is shutting down; send the request to another one.",
                retry_after_s=1,
            )
        return await self.logins.access_of(
            request.headers.get("Authorization"), request.remote or ""
        )

    def _preflight(self, request: web.BaseRequest) -> web.Response:
        return web.Response(status=204, headers=self.guard.preflight(request.headers.get("Origin")))

    def refused(self, refusal: Refusal) -> QuickAnswer:
        body = line(refusal.document()).rstrip()
        response = QuickAnswer(refusal.status, body, {"Content-Type": v2.KIND})
        if refusal.retry_after_s is not None:
            response.headers["Retry-After"] = str(refusal.retry_after_s)
        if refusal.status == 401:
            response.headers["WWW-Authenticate"] = 'Basic realm="headrace", charset="UTF-8"'
        if refusal.status in ENDS_THE_CONNECTION:
            response.force_close()
        return response

    def failed(self) -> QuickAnswer:
        """Answers a request after an unexpected exception."""
        said = (
            "Internal error, see the server's log. "
            "The request may or may not have been carried out."
        )
        response = self.refused(Refusal(FAILED, said))
        response.force_close()
        return response

    def _finish(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        if response.prepared:
            return
        headers = response.headers
        headers.update(self.always)
        if (origin := request.headers.get("Origin")) is not None and request.method != "OPTIONS":
            headers.update(self.guard.cors(origin))
        if self.draining:
            response.force_close()

    # ---- what endpoints share

    @property
    def owes_too_much(self) -> bool:
        return self.unread_bytes > self.limits.unread_bytes

    def stalled(self) -> None:
        self.counters.stalled += 1

    def owe(self, change_bytes: int) -> None:
        self.unread_bytes += change_bytes

    async def write_once(
        self, user: UserAccess, key: str, topic: str, writes: Sequence[Write]
    ) -> Answered:
        if user.keyed is None:
            user.keyed = KeyedWrites(user, self.limits, self.questions)
        answered = await user.keyed.write(key, topic, writes)
        self.counters.replayed += answered.replayed
        return answered

    def feed_of(self, user: UserAccess, topic: str) -> TopicFeed:
        """Returns the state that all streams of a user and topic share."""
        found = user.feeds.get(topic)
        if found is not None and found.failure is None:
            return found
        if found is None and self._feeds() >= self.limits.feeds:
            raise busy(f"The server streams {self.limits.feeds} topics at once; try again.", 10)
        if found is not None:
            self._ending.append(found)
        feed = user.feeds[topic] = TopicFeed(user, topic, self.limits)
        return feed

    def families(self) -> Iterator[Family]:
        """Returns metrics for Prometheus."""
        return door_families(self.counters, self._gauges())

    def _gauges(self) -> dict[str, tuple[str, float]]:
        return {
            "in_flight_requests": ("Requests under way.", self.budget.requests),
            "in_flight_bytes": ("Bodies not yet acknowledged.", self.budget.bytes),
            "in_flight_refused": ("Requests refused for want of room.", self.budget.refused),
            "unread_bytes": ("Answers that readers have not taken yet.", self.unread_bytes),
            "streams": ("Streams.", self.streams),
            "feeds": ("Topics that are streamed.", self._feeds()),
            "instances": ("Consumer instances.", len(self.instances)),
            "queues": ("Share consumers.", len(self.queues)),
            "users": ("Users with connections of their own.", len(self.logins.accesses) - 1),
            "logins_refused": ("Logins that the cluster refused.", self.logins.refused_logins),
            "keys": ("Idempotency keys of the window that this server knows.", self._keys("keys")),
            "keys_fenced": ("Times that another server took a slot.", self._keys("fenced")),
            "questions": ("Requests to the cluster under way.", self.questions.open),
        }

    def _feeds(self) -> int:
        return sum(len(access.feeds) for access in self.logins.accesses)

    def _keys(self, what: str) -> int:
        known = [access.keyed for access in self.logins.accesses if access.keyed is not None]
        return sum(getattr(each, what) for each in known)

    async def sweep(self) -> None:
        """Called every few seconds."""
        self.logins.sweep()
        for instance in self.instances.expired(time.monotonic()):
            try:
                await instance.close()
            except ClientError as failure:  # the cluster is away; the others are swept all the same
                log.warning("an idle consumer instance was not closed well: %s", failure)
        for queue in self.queues.expired():
            await queue.close()
        while self._ending:
            await self._ending.pop().close()
        for access in self.logins.accesses:
            for topic, feed in list(access.feeds.items()):
                if feed.is_idle:
                    del access.feeds[topic]
                    await feed.close()
            if access.keyed is not None:
                await access.keyed.sweep()

    def drain(self) -> None:
        """Takes no more requests; streams end."""
        self.draining = True
        self.wake_streams()

    def wake_streams(self) -> None:
        for access in self.logins.accesses:
            for feed in access.feeds.values():
                feed.wake()

    async def close(self) -> None:
        closing = [instance.close() for instance in self.instances.all()]
        closing += [queue.close() for queue in self.queues.all()]
        await asyncio.gather(*closing, return_exceptions=True)
        await self.logins.close(self.limits.grace_s)
        self.questions.close()


def _shown(answer: QuickAnswer) -> web.StreamResponse:
    """It has all that aiohttp's server asks of a response."""
    return cast(web.StreamResponse, answer)
