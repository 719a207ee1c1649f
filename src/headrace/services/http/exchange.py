"""One request while it is served: its user, its parameters, its body; and its answer."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl

from aiohttp import web

from headrace.services.http.budget import Lease
from headrace.services.http.quick_answer import MOST_BYTES, QuickAnswer
from headrace.services.http.refusal import (
    BAD_REQUEST,
    TIMED_OUT,
    TOO_LARGE,
    UNPROCESSABLE,
    WRONG_KIND,
    Refusal,
)
from headrace.services.http.users.user_access import UserAccess
from headrace.wire.protocol.compression import GZIP, ZSTD, decompress
from headrace.wire.protocol.errors import MalformedMessage

if TYPE_CHECKING:
    from headrace.services.http.door import Door

JSON = "application/json"
CODECS = {"gzip": GZIP, "x-gzip": GZIP, "zstd": ZSTD}
PIECE_BYTES = 65_536
MOST_QUESTIONS = 64  # in a query string

_NUMBER = re.compile(r"-?[0-9]{1,19}")
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Endpoint = Callable[["Exchange"], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Exchange:
    door: Door
    user: UserAccess
    request: web.BaseRequest
    params: dict[str, str]  # the path parameters
    raw_query: str
    lease: Lease
    replayed: bool = False  # the answer is that of an earlier request with the same key
    _invited: bool = False  # to send the body

    # ---- what is asked

    def query(self, known: tuple[str, ...]) -> dict[str, str]:
        return read_query(self.raw_query, known)

    def partition(self) -> int:
        text = self.params["partition"]
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise Refusal(404, "A partition is a number.", code=40402)
        return int(text)

    @property
    def kind(self) -> str:
        """The content type without its parameters, in lower case."""
        return kind_of(self.request.headers)

    # ---- the body

    def codec(self) -> int | None:
        said = self.request.headers.get("Content-Encoding", "identity").strip().lower()
        if said == "identity":
            return None
        if said not in CODECS:
            raise Refusal(WRONG_KIND, "Send the body as it is, or packed by gzip or zstd.")
        return CODECS[said]

    async def body(self) -> bytes:
        """All of it, unpacked, within the limits."""
        limits = self.door.limits
        codec = self.codec()
        packed = await self._whole(limits.body_bytes)
        if codec is None:
            return packed
        try:
            # A thread: packed bytes can be many when unpacked, and others are served meanwhile.
            unpacked = await self.user.run(lambda: decompress(codec, packed, limits.unpacked_bytes))
        except MalformedMessage as failure:
            status = TOO_LARGE if "more than" in str(failure) else BAD_REQUEST
            raise Refusal(status, f"The body cannot be unpacked: {failure}.") from None
        self.lease.grow_to(len(packed) + len(unpacked))
        return unpacked

    async def _whole(self, most: int) -> bytes:
        request = self.request
        declared = request.content_length
        if declared is not None and declared > most:
            raise _too_large(most)
        self.lease.grow_to(declared or 0)
        content = request.content
        self._invite()
        if declared is not None and content.total_bytes == declared and content.is_eof():
            return content.read_nowait()  # it came with the headers
        pieces, size = [], 0
        try:
            async with asyncio.timeout(self.door.limits.body_s):
                while piece := await content.readany():
                    size += len(piece)
                    if size > most:
                        raise _too_large(most)
                    self.lease.grow_to(size)
                    pieces.append(piece)
        except TimeoutError:
            waited = f"{self.door.limits.body_s:g} seconds"
            raise Refusal(TIMED_OUT, f"No whole body in {waited}.") from None
        except (web.RequestPayloadError, ConnectionError) as broken:
            raise Refusal(BAD_REQUEST, "The body broke off.") from broken
        return b"".join(pieces)

    def _invite(self) -> None:
        """Invites the body, before it is read, so that the client of a refused request need not
        send it."""
        request = self.request
        if "Expect" in request.headers and not self._invited and request.version >= (1, 1):
            self._invited = True
            if request.transport is not None:
                request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def pieces(self, *, least_rate: int = 0) -> AsyncIterator[bytes]:
        """A body that may be large, piece by piece; a packed one is unpacked as a whole first.
        `least_rate`: bytes a second, over all of it; 0 for one that may pause as it likes."""
        limits = self.door.limits
        if self.codec() is not None:
            whole = await self.body()
            for at in range(0, len(whole), PIECE_BYTES):
                yield whole[at : at + PIECE_BYTES]
            return
        self._invite()
        size, began_s = 0, time.monotonic()
        while True:
            wait_s = limits.body_s
            if least_rate:
                wait_s = min(wait_s, began_s + wait_s + size / least_rate - time.monotonic())
            try:
                async with asyncio.timeout(wait_s):
                    piece = await self.request.content.readany()
            except TimeoutError:
                raise Refusal(TIMED_OUT, "The body comes too slowly.") from None
            except (web.RequestPayloadError, ConnectionError) as broken:
                raise Refusal(BAD_REQUEST, "The body broke off.") from broken
            if not piece:
                return
            size += len(piece)
            if size > limits.bulk_bytes:
                raise _too_large(limits.bulk_bytes)
            yield piece


def read_query(raw_query: str, known: tuple[str, ...]) -> dict[str, str]:
    """Reads a query string; an unknown parameter is refused, because it would have no effect."""
    if not raw_query:
        return {}
    try:
        pairs = parse_qsl(
            raw_query, keep_blank_values=True, errors="strict", max_num_fields=MOST_QUESTIONS
        )
    except ValueError:
        raise Refusal(BAD_REQUEST, "The query string cannot be read.") from None
    found = dict(pairs)
    for name in found:
        if name not in known:
            said = f"Known are {', '.join(known)}." if known else "This one takes none."
            raise Refusal(BAD_REQUEST, f"Unknown query parameter {name[:64]!r}. {said}")
    return found


def kind_of(headers: Mapping[str, str]) -> str:
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _too_large(most: int) -> Refusal:
    return Refusal(TOO_LARGE, f"The body has over {most} bytes.")


def number(given: dict[str, str], name: str, default: int, *, lowest: int, most: int) -> int:
    """A number of the query string, within its bounds."""
    text = given.get(name)
    if text is None:
        return default
    if _NUMBER.fullmatch(text):
        found = int(text)
        if found == -1:  # the proxies' word for "the default"
            return default
        if lowest <= found <= most:
            return found
    raise Refusal(UNPROCESSABLE, f"{name} is a number between {lowest} and {most}.")


def answer(document: Any, *, kind: str = JSON, status: int = 200) -> web.StreamResponse:
    return answer_bytes(_dumps(document).encode("utf-8", "replace"), kind=kind, status=status)


def answer_bytes(body: bytes, *, kind: str = JSON, status: int = 200) -> web.StreamResponse:
    if len(body) > MOST_BYTES:
        return web.Response(body=body, status=status, headers={"Content-Type": kind})
    # It has all that aiohttp's server asks of a response.
    return cast(web.StreamResponse, QuickAnswer(status, body, {"Content-Type": kind}))


def list_bytes(documents: Sequence[str]) -> bytes:
    return f"[{','.join(documents)}]".encode("utf-8", "replace")


def answer_list(documents: Sequence[str], kind: str) -> web.StreamResponse:
    """Documents that are JSON already."""
    return answer_bytes(list_bytes(documents), kind=kind)


def line(document: Any) -> bytes:
    return _dumps(document).encode("utf-8", "replace") + b"\n"


def nothing() -> web.StreamResponse:
    return cast(web.StreamResponse, QuickAnswer(204, b"", {}))
