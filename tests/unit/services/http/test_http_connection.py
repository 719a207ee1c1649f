"""Which of a connection's parts may read on, and when its end comes. No sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from headrace.services.http.http_connection import (
    MOST_HELD,
    ConnectionSettings,
    HttpConnection,
    connection_of,
)
from headrace.services.http.request_head import RequestHead

SLOW = b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"
# Its head is not framed by us, so aiohttp gets it and all that comes behind it.
UNUSUAL = b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, x\r\n\r\n"


class Wire(asyncio.Transport):
    """A transport that takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.unread = 0
        self.ended = ""
        self.aborted = asyncio.Event()
        self._reads = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True

    def is_reading(self) -> bool:
        return self._reads

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"
        self.aborted.set()


class Bench:
    """One connection whose requests are answered when the test says so."""

    def __init__(self, *, idle_s: float = 3600, stall_s: float = 3600) -> None:
        self.waiting: list[asyncio.Future[None]] = []
        self.read_on: list[bool] = []  # after each body
        self.direct: list[str] = []  # the targets of direct requests
        self.settings = ConnectionSettings(
            server=web.Server(self._handle, handler_cancellation=True),
            offer=self._offer,
            made=lambda connection: None,
            misunderstood=lambda peer: web.Response(status=400),
            owe=lambda change: None,
            stalled=lambda: None,
            stall_s=stall_s,
            idle_s=idle_s,
            linger_s=1,
        )
        self.wire = Wire()
        self.connection = HttpConnection(self.settings)
        self.connection.connection_made(self.wire)

    def _offer(self, connection: HttpConnection, head: RequestHead, body: bytes) -> bool:
        if not head.target.startswith("/direct"):
            return False
        self.direct.append(head.target)
        connection.begin()
        return True

    def _handle(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        connection_of(request).handling_began()
        return self._answer(request)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        waited = asyncio.get_running_loop().create_future()
        self.waiting.append(waited)
        await waited
        await request.read()
        self.read_on.append(self.wire.is_reading())
        return web.Response(text="ok")

    async def began(self, count: int) -> None:
        while len(self.waiting) < count:
            await asyncio.sleep(0)


def run(story: Callable[[Bench], Awaitable[None]], **limits: float) -> None:
    async def whole() -> None:
        bench = Bench(**limits)
        await story(bench)
        bench.connection.connection_lost(None)
        await asyncio.sleep(0)

    asyncio.run(whole())


def test_reading_stays_paused_for_requests_that_wait_in_aiohttp() -> None:
    """The end of our own pause must not end the one that aiohttp began meanwhile."""

    async def story(bench: Bench) -> None:
        bench.connection.data_received(SLOW)
        await bench.began(1)
        bench.connection.data_received(UNUSUAL * (MOST_HELD // len(UNUSUAL) + 1))
        assert not bench.wire.is_reading()
        bench.waiting[0].set_result(None)
        await bench.began(2)
        assert not bench.wire.is_reading()

    run(story)


def test_reading_stays_paused_for_a_body_that_is_not_read() -> None:
    async def story(bench: Bench) -> None:
        bench.connection.data_received(SLOW)
        await bench.began(1)
        head = b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n"
        bench.connection.data_received(head + bytes(1_000_000))
        assert not bench.wire.is_reading()
        bench.waiting[0].set_result(None)
        await bench.began(2)
        assert not bench.wire.is_reading()

    run(story)


def test_reading_stays_paused_when_aiohttp_has_read_a_body() -> None:
    """aiohttp resumes reading after each body, whether it had paused it or not."""

    async def story(bench: Bench) -> None:
        post = b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"
        bench.connection.data_received(post)
        await bench.began(1)
        bench.connection.data_received(b"abc" + (post + b"abc") * MOST_HELD)
        for number in range(1, 5):
            bench.waiting[-1].set_result(None)
            await bench.began(number + 1)
        assert bench.read_on == [False] * 4

    run(story)


def test_reading_goes_on_after_what_was_held() -> None:
    async def story(bench: Bench) -> None:
        bench.connection.data_received(SLOW)
        await bench.began(1)
        post = b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % MOST_HELD
        bench.connection.data_received(post + bytes(MOST_HELD))
        assert not bench.wire.is_reading()
        bench.waiting[0].set_result(None)
        await bench.began(2)
        assert bench.wire.is_reading()

    run(story)


def test_a_closed_connection_ends_although_its_client_does_not_read() -> None:
    async def story(bench: Bench) -> None:
        bench.wire.unread = 10  # not enough to make the transport pause writing
        await bench.wire.aborted.wait()

    run(story, idle_s=0, stall_s=0)


def test_the_next_direct_request_does_not_begin_inside_the_answer() -> None:
    """The producer answers from a callback of librdkafka's poll. A request that began there would
    poll again, which ends the process: confluent_kafka asserts that polls are not nested."""

    async def story(bench: Bench) -> None:
        bench.connection.data_received(
            b"".join(b"GET /direct%d HTTP/1.1\r\n\r\n" % n for n in (1, 2))
        )
        assert bench.direct == ["/direct1"]
        bench.connection.answer(b"", keep_alive=True)
        assert bench.direct == ["/direct1"]
        await asyncio.sleep(0)
        assert bench.direct == ["/direct1", "/direct2"]

    run(story)
