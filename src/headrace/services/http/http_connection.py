"""One connection of a client: short requests are answered here, all others by aiohttp.

aiohttp gives each request a task, a request object, a writer and a response: two thirds of what a
small one costs here (measured: 198 us of processor time for a record). So a request that came whole
is first offered to `direct_requests.py`. If that does not take it, its bytes go to aiohttp's
protocol on the same transport, which is made for the first such request.

aiohttp has one request at a time: what is sent behind it waits here until it is answered, as do
requests behind a direct one. So answers keep their order, and `request_head.py` always reads from
the beginning of a request. If a request cannot be framed without doubt, aiohttp gets all that comes
on this connection from then on. Only what aiohttp documents is used: its low-level server, the
calls of asyncio's protocols, and its log of accesses, which says when an answer is written.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from headrace.services.http.request_head import END, LONGEST_HEAD, RequestHead, read_head

# Takes a request, or leaves it without any effect.
Offer = Callable[["HttpConnection", RequestHead, bytes], bool]

# Bytes of requests behind the one under way; a sender of more has to wait.
MOST_HELD = 65_536
# aiohttp's own timer does not know of direct requests, and must not end a connection that has them.
NEVER_S = 1e9
# aiohttp logs each malformed request with a traceback: a client that sends many would fill the log.
MALFORMED = logging.getLogger("headrace.http.malformed")
MALFORMED.setLevel(logging.CRITICAL)


@dataclass(slots=True, kw_only=True)
class ConnectionSettings:
    """What all connections of a server share."""

    server: web.Server
    offer: Offer
    made: Callable[[HttpConnection], None]  # with TLS the connection is made after a while
    misunderstood: Callable[[str], web.StreamResponse]  # called with the client's address
    owe: Callable[[int], None]  # called with the change in the bytes that wait for readers
    stalled: Callable[[], None]  # called when a reader was cut off
    stall_s: float
    idle_s: float  # for a request to begin
    linger_s: float  # for the rest of a refused body
    open: set[HttpConnection] = field(default_factory=set)


class Turn(enum.Enum):
    """Who has the connection."""

    FREE = "free"  # the next byte begins a request
    DIRECT = "direct"  # a direct request is under way
    AIOHTTP = "aiohttp"  # aiohttp has one request, or a part of it
    HANDED_OVER = "handed over"  # to aiohttp, with all that comes


class HttpConnection(asyncio.Protocol):
    __slots__ = (
        *("_aiohttp", "_answered", "_head", "_held", "_idle_until_s", "_idling", "_is_answered"),
        *("_is_feeding", "_is_full", "_is_handled", "_is_paused", "_left", "_looking", "_loop"),
        *("_owed", "_settings", "_transport", "_turn", "peer"),
    )

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._turn = Turn.FREE
        self._aiohttp: _AiohttpConnection | None = None
        self._head = b""  # of aiohttp's request, as long as its end has not come
        self._left = 0  # bytes of aiohttp's request that have not come
        self._is_handled = False  # aiohttp's request has begun
        self._is_answered = False  # and its answer is written
        self._held = b""  # what came behind the request under way
        self._is_feeding = False
        self._is_full = False
        self._is_paused = False  # the client does not read
        self._answered: asyncio.Future[None] | None = None
        self.peer = ""
        self._owed = 0  # bytes that wait to be read by the client
        self._looking: asyncio.TimerHandle | None = None
        self._idle_until_s = 0.0
        self._idling: asyncio.TimerHandle | None = None

    # ---- asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._settings.made(self)
        self._settings.open.add(self)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else ""
        if (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._idle_until_s = self._loop.time() + self._settings.idle_s
        self._idling = self._loop.call_at(self._idle_until_s, self._end_if_idle)

    def data_received(self, data: bytes) -> None:
        if self._turn is Turn.HANDED_OVER:
            self._pass_on(data)
            return
        self._held = self._held + data if self._held else data
        self._feed()

    def eof_received(self) -> None:
        if self._aiohttp is not None:
            self._aiohttp.eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_looking()
        if self._idling is not None:
            self._idling.cancel()
        self._settings.open.discard(self)
        self._held = b""
        self._tell_answered()
        if self._aiohttp is not None:
            self._aiohttp.connection_lost(exc)

    # ---- from bytes to requests

    def _feed(self) -> None:
        """Serves what is held, until a request is under way. Not entered twice: a request may be
        answered before the call that offered it returns."""
        if self._is_feeding:
            return
        self._is_feeding = True
        try:
            while self._held and not self._transport.is_closing() and self._step():
                pass
        finally:
            self._is_feeding = False
        if len(self._held) > MOST_HELD:
            self._is_full = True
            self._transport.pause_reading()
        elif self._is_full:
            self._read_on()

    def pause_if_full(self) -> None:
        """aiohttp has resumed reading, and knows nothing of what is held here."""
        if self._is_full:
            self._transport.pause_reading()

    def _read_on(self) -> None:
        self._is_full = False
        self._transport.resume_reading()

    def _step(self) -> bool:
        """Returns whether anything was done."""
        data = self._held
        match self._turn:
            case Turn.FREE:
                if END not in data:
                    self._take_part_of_head(data)
                elif (head := read_head(data)) is None:
                    self._hand_over()
                else:
                    self._begin(head, data)
            case Turn.AIOHTTP if self._head:
                self._take_rest_of_head(data)
            case Turn.AIOHTTP if self._left:
                self._pass_body(data)
            case Turn.HANDED_OVER:
                self._hand_over()
            case _:
                return False
        return True

    def _begin(self, head: RequestHead, data: bytes) -> None:
        end = head.size + head.body_size
        if len(data) < end:
            self._turn, self._left, self._held = Turn.AIOHTTP, end - len(data), b""
            self._pass_on(data)
            return
        self._held = data[end:]
        is_direct = (
            head.is_plain
            and not self._is_paused
            and self._settings.offer(self, head, data[head.size : end])
        )
        if is_direct:
            return
        self._turn = Turn.AIOHTTP
        self._pass_on(data[:end])

    def _take_part_of_head(self, data: bytes) -> None:
        """aiohttp refuses a malformed head before its end has come, so it gets each part."""
        self._turn, self._head, self._held = Turn.AIOHTTP, data, b""
        self._pass_on(data)

    def _take_rest_of_head(self, data: bytes) -> None:
        whole = self._head + data
        if END not in whole and len(whole) <= LONGEST_HEAD:
            self._head, self._held = whole, b""
            self._pass_on(data)
            return
        head = read_head(whole) if END in whole else None
        if head is None:
            self._hand_over()
            return
        self._left = head.size + head.body_size - len(self._head)
        self._head = b""
        self._pass_body(data)

    def _pass_body(self, data: bytes) -> None:
        passed, self._held = data[: self._left], data[self._left :]
        self._left -= len(passed)
        self._pass_on(passed)
        self._free_if_done()

    def _hand_over(self) -> None:
        data, self._held, self._head = self._held, b"", b""
        self._turn = Turn.HANDED_OVER
        self._pass_on(data)

    # ---- aiohttp's requests

    def _pass_on(self, data: bytes) -> None:
        if self._aiohttp is None:
            self._aiohttp = _AiohttpConnection(self, self._settings)
            self._aiohttp.connection_made(self._transport)
            if self._is_paused:
                self._aiohttp.pause_writing()
        if self._is_full:
            # Before aiohttp has the bytes: it may pause reading too, and that must hold.
            self._read_on()
        self._aiohttp.data_received(data)

    def handling_began(self) -> None:
        """aiohttp has read a head and calls its handler."""
        self._is_handled = True

    def handling_ended(self, *, keeps_alive: bool) -> None:
        """aiohttp has written the answer; the rest of the body may not have come yet."""
        self._is_handled = False
        self._renew_idle_time()
        if not keeps_alive or self._head:
            # aiohttp closes the connection, or sees another end of the head than we do.
            self._turn = Turn.HANDED_OVER
            return
        self._is_answered = True
        self._free_if_done()
        self._feed()

    def _free_if_done(self) -> None:
        if self._turn is Turn.AIOHTTP and self._is_answered and not self._left and not self._head:
            self._is_answered = False
            self._turn = Turn.FREE

    # ---- direct requests

    def begin(self) -> None:
        """Takes the request that was offered; `answer` follows."""
        self._turn = Turn.DIRECT

    def answer(self, data: bytes, *, keep_alive: bool) -> None:
        if not self.is_gone:
            self._transport.write(data)
            if not keep_alive:
                self._transport.close()
        self._renew_idle_time()
        self._turn = Turn.FREE
        self._tell_answered()
        if self._held and not self._is_feeding:
            # Not from here: this may be a callback of librdkafka's poll, and a request that writes
            # polls too. confluent_kafka ends the process if polls are nested.
            self._loop.call_soon(self._feed)

    @property
    def is_gone(self) -> bool:
        return self._transport.is_closing()

    # ---- clients that ask nothing, and the end of the server

    def _renew_idle_time(self) -> None:
        self._idle_until_s = self._loop.time() + self._settings.idle_s

    def _end_if_idle(self) -> None:
        now_s = self._loop.time()
        if self._is_handled or self._turn is Turn.DIRECT:
            self._idle_until_s = max(self._idle_until_s, now_s + self._settings.idle_s)
        if now_s < self._idle_until_s:
            self._idling = self._loop.call_at(self._idle_until_s, self._end_if_idle)
        else:
            self._transport.close()
            self._end_if_unread(None)

    def _end_if_unread(self, before: int | None) -> None:
        """Disconnects a client that does not read the rest of its answers: a closed transport
        waits for that without an end. `before`: what was left at the last look."""
        left = self._transport.get_write_buffer_size()
        if before is not None and left >= before and not self._is_paused:
            self._settings.stalled()
            self._transport.abort()
            return
        self._idling = self._loop.call_later(self._settings.stall_s, self._end_if_unread, left)

    def drain(self) -> asyncio.Future[None] | None:
        """Ends the connection, at once or after its request. Returns a future if that is a direct
        one."""
        if self._turn is Turn.DIRECT:
            self._answered = self._loop.create_future()
            return self._answered
        if self._aiohttp is not None:
            self._aiohttp.close()
        else:
            self._transport.close()
        return None

    def close(self) -> None:
        self._transport.close()

    def _tell_answered(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    # ---- readers who do not read

    def pause_writing(self) -> None:
        self._is_paused = True
        self._owe(self._transport.get_write_buffer_size())
        self._looking = self._loop.call_later(self._settings.stall_s, self._look)
        if self._aiohttp is not None:
            self._aiohttp.pause_writing()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._stop_looking()
        if self._aiohttp is not None:
            self._aiohttp.resume_writing()

    def _look(self) -> None:
        """Waits for a slow reader; disconnects one that reads nothing."""
        left = self._transport.get_write_buffer_size()
        if left >= self._owed:
            self._settings.stalled()
            self._transport.abort()
            return
        self._owe(left)
        self._looking = self._loop.call_later(self._settings.stall_s, self._look)

    def _owe(self, size_bytes: int) -> None:
        self._settings.owe(size_bytes - self._owed)
        self._owed = size_bytes

    def _stop_looking(self) -> None:
        self._owe(0)
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None


class _AiohttpConnection(web.RequestHandler):
    """aiohttp's protocol on our transport."""

    __slots__ = ("_misunderstood", "ours")

    def __init__(self, ours: HttpConnection, settings: ConnectionSettings) -> None:
        super().__init__(
            settings.server,
            loop=asyncio.get_running_loop(),
            access_log=MALFORMED,
            access_log_class=_Ends,
            logger=MALFORMED,
            keepalive_timeout=NEVER_S,
            lingering_time=settings.linger_s,
            auto_decompress=False,  # a few bytes could become many
        )
        self.ours = ours
        self._misunderstood = settings.misunderstood

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Called after every body, also if reading was not paused."""
        super().resume_reading(resume_parser)
        self.ours.pause_if_full()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers bytes that are not HTTP with an error in our words; does not repeat any
        of them."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was under way")
        return self._misunderstood(self.ours.peer)


class _Ends(AbstractAccessLogger):
    """aiohttp calls it after each answer. It passes that on, and writes no log."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        connection_of(request).handling_ended(keeps_alive=bool(response.keep_alive))


def connection_of(request: web.BaseRequest) -> HttpConnection:
    protocol = request.protocol
    assert isinstance(protocol, _AiohttpConnection)
    return protocol.ours
