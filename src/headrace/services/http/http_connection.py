"""One connection of a caller: aiohttp's, and a shorter way for requests that need no task.

aiohttp gives each request a task, a request object, a writer and a response: two thirds of what a
small one costs here (measured: 198 us of processor time for a record, 6 of them for its parser). So
a request that came whole is first offered to `direct_requests.py`. While that has it, aiohttp's own
task goes on waiting for the next request: its waiter is put aside, so nothing else wakes or ends
it, and requests that come behind are queued by aiohttp as always. Answers keep their order.

This leans on names that aiohttp does not promise. `HAS_DIRECT_WAY` says whether they are there;
without them every request takes aiohttp's way, and only costs more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.http import RawRequestMessage

# Takes a request, or leaves it without any effect.
Offer = Callable[["HttpConnection", RawRequestMessage, StreamReader], bool]

_LEANS_ON = (
    *("_waiter", "_messages", "_parser", "_close", "_force_close", "_paused"),
    *("_reading_paused", "_buffer_paused"),
    *("_request_in_progress", "_handler_waiter"),
    *("_keepalive_handle", "_keepalive_timeout", "_next_keepalive_close_time"),
    *("_process_keepalive", "data_received"),
)
HAS_DIRECT_WAY = all(hasattr(web.RequestHandler, name) for name in _LEANS_ON)


class HttpConnection(web.RequestHandler):
    __slots__ = (
        *("_aside", "_looking", "_owed", "_wire", "made", "misunderstood", "offer", "owe", "peer"),
        *("stall_s", "stalled"),
    )

    made: Callable[[HttpConnection], None]  # with TLS the connection is made after a while
    offer: Offer
    # Called with the change in the number of bytes that wait for readers.
    owe: Callable[[int], None]
    stalled: Callable[[], None]  # called when a reader was cut off
    stall_s: float
    misunderstood: Callable[[str], web.StreamResponse]  # called with the address

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        # aiohttp's waiter, while a direct request is under way.
        self._aside: asyncio.Future[None] | None = None
        self.peer = ""
        self._owed = 0  # bytes that wait to be read by the client
        self._looking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made(self)
        assert isinstance(transport, asyncio.Transport)
        self._wire = transport  # aiohttp forgets it when it closes, and bytes may still wait
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else ""

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done() or self._messages or self._paused or not HAS_DIRECT_WAY:
            super().data_received(data)  # a request is under way, or its answers are not read
            return
        self._waiter, self._aside = None, waiter
        super().data_received(data)
        if len(self._messages) == 1:
            message, payload = self._messages[0]
            if isinstance(message, RawRequestMessage) and self.offer(self, message, payload):
                return
        self._go_on()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp calls this after every body, and would run its parser on nothing each time. So it
        is passed on only if reading was paused."""
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

    # ---- readers who do not read

    def pause_writing(self) -> None:
        super().pause_writing()
        self._owe(self._wire.get_write_buffer_size())
        self._looking = self._loop.call_later(self.stall_s, self._look)

    def resume_writing(self) -> None:
        self._stop_looking()
        super().resume_writing()

    def _look(self) -> None:
        """Waits for a slow reader; disconnects one that reads nothing."""
        left = self._wire.get_write_buffer_size()
        if left >= self._owed:
            self.stalled()
            self._wire.abort()
            return
        self._owe(left)
        self._looking = self._loop.call_later(self.stall_s, self._look)

    def _owe(self, size_bytes: int) -> None:
        self.owe(size_bytes - self._owed)
        self._owed = size_bytes

    def _stop_looking(self) -> None:
        self._owe(0)
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_looking()
        super().connection_lost(exc)

    # ---- the direct way

    def begin(self) -> None:
        """Takes the request that was offered; `answer` follows."""
        assert self._parser is not None
        self._messages.popleft()
        self._parser.message_consumed()
        self._request_in_progress = True  # a server that closes waits for it

    def answer(self, data: bytes, *, keep_alive: bool) -> None:
        self._request_in_progress = False
        if self._handler_waiter is not None and not self._handler_waiter.done():
            self._handler_waiter.set_result(None)
        if (transport := self.transport) is not None and not transport.is_closing():
            transport.write(data)
            if not keep_alive:
                self._close = True
                transport.close()
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None and not self._force_close:
            self._keepalive_handle = self._loop.call_at(
                self._next_keepalive_close_time, self._process_keepalive
            )
        self._go_on()

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
        return self.misunderstood(self.peer)

    @property
    def is_gone(self) -> bool:
        return self.transport is None or self.transport.is_closing()

    def _go_on(self) -> None:
        """Lets aiohttp's task wait for requests again, or take one that has come."""
        waiter, self._aside = self._aside, None
        if waiter is None or waiter.done():
            return
        self._waiter = waiter
        if self._close or self._force_close:
            waiter.cancel()
        elif self._messages:
            waiter.set_result(None)
