"""A small answer of known length: built as bytes and written by one call.

aiohttp's own response builds header dictionaries, a payload and a writer for each answer, about a
fifth of the cost of a small request. This one gives aiohttp's server what it asks of a response
(`prepare`, `write_eof`, `keep_alive`) and nothing more. Large answers take aiohttp's way.
"""

from __future__ import annotations

import functools
import time
from http import HTTPStatus

from aiohttp import web

MOST_BYTES = 32_768
# If so many bytes are unsent in a client's connection, the server waits until the client reads.
HIGH_WATER_BYTES = 65_536
_STATUS = {int(each): f"HTTP/1.1 {int(each)} {each.phrase}\r\n" for each in HTTPStatus}
_date: tuple[int, str] = (0, "")


def _dated() -> str:
    """The header Date, made once a second."""
    global _date
    now_s = int(time.time())
    if _date[0] != now_s:
        _date = (now_s, time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT\r\n", time.gmtime(now_s)))
    return _date[1]


@functools.lru_cache(256)
def _lines(headers: tuple[tuple[str, str], ...]) -> str:
    """Kept: most answers have the same few headers."""
    for name, value in headers:
        assert "\r" not in value and "\n" not in value, name
    return "".join(f"{name}: {value}\r\n" for name, value in headers)


class QuickAnswer:
    __slots__ = ("_request", "body", "headers", "keep_alive", "prepared", "status")

    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.status, self.body, self.headers = status, body, headers
        self.keep_alive: bool | None = None
        self.prepared = False
        self._request: web.BaseRequest | None = None

    def force_close(self) -> None:
        self.keep_alive = False

    def rendered(self, *, is_old: bool = False, body: bytes | None = None) -> bytes:
        """Returns all bytes of the answer. `is_old`: the client speaks HTTP/1.0; `body`: another
        body."""
        head = [_STATUS[self.status], _dated(), _lines(tuple(self.headers.items()))]
        if self.status != HTTPStatus.NO_CONTENT:
            head.append(f"Content-Length: {len(self.body)}\r\n")
        if not self.keep_alive:
            head.append("Connection: close\r\n")
        elif is_old:
            head.append("Connection: keep-alive\r\n")
        head.append("\r\n")
        return "".join(head).encode("latin-1", "replace") + (self.body if body is None else body)

    async def prepare(self, request: web.BaseRequest) -> None:
        self._request, self.prepared = request, True
        if self.keep_alive is None:
            self.keep_alive = request.keep_alive

    async def write_eof(self) -> None:
        request = self._request
        assert request is not None
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the caller has gone")
        body = b"" if request.method == "HEAD" else None
        transport.write(self.rendered(is_old=request.version < (1, 1), body=body))
        if transport.get_write_buffer_size() > HIGH_WATER_BYTES:
            await request.writer.drain()
