"""Small common requests, served by plain calls from the received bytes to the sent ones.

Two are served so: writing records whose body came with the headers, and reading records that a
consumer instance has in hand already. Host, route, login, budget and words are those of the general
way (`door.py`). A request that is not taken here has changed nothing and takes that way, with all
that is refused before its body is read: so each refusal of that kind has one place.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.client.records import Outgoing, Sent
from headrace.services.http.budget import Lease
from headrace.services.http.cluster_refusals import refusal_of
from headrace.services.http.dialects import v2
from headrace.services.http.endpoints.consumers import read_at_once
from headrace.services.http.endpoints.produce import judged
from headrace.services.http.exchange import kind_of
from headrace.services.http.http_connection import HttpConnection
from headrace.services.http.quick_answer import QuickAnswer
from headrace.services.http.refusal import Refusal
from headrace.services.http.request_head import RequestHead
from headrace.services.http.routes import match
from headrace.services.http.users.user_access import UserAccess, outcome_of
from headrace.services.http.writes.own_topic import refuse_own_topic
from headrace.services.http.writes.writes import Write

if TYPE_CHECKING:
    from headrace.services.http.door import Door

log = logging.getLogger("headrace.http")

LARGEST_BODY = 65_536
# Each of them asks for something that the general way does.
NOT_DIRECT = frozenset(
    {"origin", "sec-fetch-site", "content-encoding", "expect", "idempotency-key"}
)
FAULT = "a direct request failed: %s"
PRODUCE, RECORDS = "produce", "records"


class DirectRequests:
    def __init__(self, door: Door) -> None:
        self._door = door

    def offer(self, connection: HttpConnection, head: RequestHead, body: bytes) -> bool:
        """Returns whether the request is taken."""
        door, headers = self._door, head.headers
        path, _, query = head.target.partition("?")
        is_produce = head.method == "POST" and path.startswith("/topics/")
        if not is_produce and not (head.method == "GET" and path.endswith("/records")):
            return False
        if (
            door.draining
            or door.owes_too_much
            or not door.budget.has_room
            or len(body) > LARGEST_BODY
        ):
            return False
        if not NOT_DIRECT.isdisjoint(headers):
            return False
        try:
            door.guard.check(headers)
            route, params = match(head.method, path)
            access = door.logins.known(headers.get("Authorization"))
        except Refusal:
            return False
        if access is None:
            return False
        request = _Direct(door, connection, head.method, path, access, route.endpoint)
        if route.endpoint == PRODUCE and not query:
            return request.produce(head, body, params)
        if route.endpoint == RECORDS and not body:
            return request.records(head, query, params)
        return False


class _Direct:
    """One request."""

    __slots__ = (
        *("_access", "_connection", "_door", "_endpoint", "_lease", "_method", "_path"),
        *("_is_answered", "_started"),
    )

    def __init__(
        self,
        door: Door,
        connection: HttpConnection,
        method: str,
        path: str,
        access: UserAccess,
        endpoint: str,
    ) -> None:
        self._started = time.perf_counter()
        self._door, self._connection, self._access = door, connection, access
        self._method, self._path, self._endpoint = method, path, endpoint
        self._lease = Lease(door.budget)
        self._is_answered = False

    # ---- writing

    def produce(self, head: RequestHead, body: bytes, params: dict[str, str]) -> bool:
        kind = kind_of(head.headers)
        embedded = v2.PRODUCED.get(kind)
        if embedded is None or (kind == "application/json" and "ce-specversion" in head.headers):
            return False
        partition = params.get("partition")
        if partition is not None or not self._door.budget.has_bytes(len(body)):
            return False
        self._begin()
        self._lease.grow_to(len(body))
        try:
            most = self._door.limits.records
            writes = v2.read_produce(body, embedded, partition=None, most=most)
            self._write(params["topic"], writes)
        except Refusal as refusal:
            self._refuse(refusal)
        except ClientError as failure:
            self._refuse(refusal_of(failure))
        except Exception:
            log.exception(FAULT, self._endpoint)
            self._answer(self._door.failed())
        return True

    def _write(self, topic: str, writes: list[Write]) -> None:
        refuse_own_topic(topic)
        if any(each.when is not None for each in writes):
            writing = asyncio.ensure_future(self._write_later(topic, writes))
            self._door.delayed_writes.add(writing)
            writing.add_done_callback(self._door.delayed_writes.discard)
            return
        outgoing: list[Outgoing[bytes, bytes]] = [
            Outgoing(topic, each.value, each.key, each.headers, each.partition, each.timestamp_ms)
            for each in writes
        ]
        self._access.producer.send_all_now(outgoing, self._written)

    async def _write_later(self, topic: str, writes: list[Write]) -> None:
        """Writes on a task: delayed messages may have to ask the cluster first."""
        try:
            outcomes = await self._access.write(topic, writes)
            self._answer_produce(outcomes)
        except ClientError as failure:
            self._refuse(refusal_of(failure))
        except Refusal as refusal:
            self._refuse(refusal)
        except Exception:
            log.exception(FAULT, self._endpoint)
            self._answer(self._door.failed())

    def _written(self, ends: list[Sent | ClientError]) -> None:
        """Called by the producer, which must not get our exceptions."""
        try:
            self._answer_produce([outcome_of(end) for end in ends])
        except Refusal as refusal:
            self._refuse(refusal)
        except Exception:
            log.exception(FAULT, self._endpoint)
            self._answer(self._door.failed())

    def _answer_produce(self, outcomes: list[v2.Outcome]) -> None:
        self._door.counters.records_in += judged(outcomes)
        self._answer(QuickAnswer(200, v2.produced(outcomes), {"Content-Type": v2.KIND}))

    # ---- reading

    def records(self, head: RequestHead, query: str, params: dict[str, str]) -> bool:
        accept = head.headers.get("Accept", "")
        try:
            found = read_at_once(self._door, self._access, params, query, accept)
        except Refusal:
            return False
        if found is None:
            return False
        self._begin()
        self._answer(QuickAnswer(200, found.body, {"Content-Type": found.kind}))
        return True

    # ---- beginning and end

    def _begin(self) -> None:
        self._door.budget.enter()
        self._access.in_use += 1
        self._connection.begin()

    def _refuse(self, refusal: Refusal) -> None:
        self._answer(self._door.refused(refusal))

    def _answer(self, answer: QuickAnswer) -> None:
        """Answers once: if this fails, the caller calls it again with an answer about the
        failure."""
        if self._is_answered:
            return
        self._is_answered = True
        door = self._door
        door.budget.leave()
        self._lease.end()
        self._access.in_use -= 1
        if answer.keep_alive is None:
            answer.keep_alive = not door.draining
        answer.headers.update(door.always)
        gone = self._connection.is_gone
        self._connection.answer(answer.rendered(), keep_alive=answer.keep_alive)
        door.note(
            self._endpoint,
            door.GONE if gone else answer.status,
            self._started,
            peer=self._connection.peer,
            user=self._access.name,
            method=self._method,
            path=self._path,
        )
