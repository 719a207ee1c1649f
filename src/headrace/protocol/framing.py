"""Frames: four bytes of length, a header, a body.

Both sides are here: what a server needs (request headers in, responses out) and what a client
needs (requests out, response headers in). Headers come in two forms, the plain one and the flexible
one that ends with tagged fields; which one follows from the API's version, with one exception:
responses to ApiVersions always have the plain header, so that a client can read them before it
knows which versions the server has (KIP-511). Reading and writing sockets is not done here.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from headrace.protocol.errors import MalformedMessage
from headrace.protocol.primitives import BROKEN, Piece, skip_tags

API_VERSIONS = 18

# api key, version, correlation id, length of the client id; the length of the frame is before it
REQUEST_HEAD = Struct(">hhih")
_read_request_head = REQUEST_HEAD.unpack_from
_pack_plain = Struct(">ii").pack
_pack_flexible = Struct(">iix").pack
_read_correlation_id = Struct(">i").unpack_from


class RequestHeader:
    """Who asks what, in which version, under which number."""

    __slots__ = ("api_key", "version", "correlation_id", "client_id")

    def __init__(
        self, api_key: int, version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, version={self.version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def request_header_is_flexible(messages: Any, version: int) -> bool:
    """Whether requests of this version end their header with tagged fields."""
    return bool(version >= messages.FLEXIBLE_FROM)


def response_header_is_flexible(messages: Any, version: int) -> bool:
    """Whether responses of this version do; never for ApiVersions."""
    return bool(version >= messages.FLEXIBLE_FROM and messages.API_KEY != API_VERSIONS)


def peek_request(view: memoryview, pos: int) -> tuple[int, int, int]:
    """API key, version and correlation id at the start of a header, before its form is known."""
    try:
        api_key, version, correlation_id, _ = _read_request_head(view, pos)
    except BROKEN as error:
        raise MalformedMessage(f"request header: {error}") from error
    return api_key, version, correlation_id


def decode_request_header(view: memoryview, pos: int, flexible: bool) -> tuple[RequestHeader, int]:
    """The header at `pos`, and where the body begins."""
    try:
        api_key, version, correlation_id, length = _read_request_head(view, pos)
        pos += REQUEST_HEAD.size
        client_id = None
        if length >= 0:
            end = pos + length
            if end > len(view):
                raise MalformedMessage(f"request header: no room for a client id of {length} bytes")
            client_id = view[pos:end].tobytes().decode()
            pos = end
        if flexible:
            pos = skip_tags(view, pos + 1, view[pos])
    except BROKEN as error:
        raise MalformedMessage(f"request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id), pos


def encode_frame(correlation_id: int, flexible_header: bool, body: list[Piece]) -> list[Piece]:
    """A response as it goes to the socket: length and header in front of the body's pieces."""
    size = sum(map(len, body)) + 4
    if flexible_header:
        return [_pack_flexible(size + 1, correlation_id), *body]
    return [_pack_plain(size, correlation_id), *body]


def encode_response(messages: Any, version: int, correlation_id: int, response: Any) -> list[Piece]:
    """The frame of a response message."""
    body: list[Piece] = []
    messages.ENCODE_RESPONSE[version](response, body.append)
    return encode_frame(correlation_id, response_header_is_flexible(messages, version), body)


def encode_request(
    messages: Any, version: int, correlation_id: int, client_id: str | None, request: Any
) -> list[Piece]:
    """The frame of a request message."""
    body: list[Piece] = []
    messages.ENCODE_REQUEST[version](request, body.append)
    name = b"" if client_id is None else client_id.encode()
    head = REQUEST_HEAD.pack(
        messages.API_KEY, version, correlation_id, -1 if client_id is None else len(name)
    )
    head += name
    if request_header_is_flexible(messages, version):
        head += b"\0"
    size = len(head) + sum(map(len, body))
    return [size.to_bytes(4, "big") + head, *body]


def decode_response_header(view: memoryview, pos: int, flexible: bool) -> tuple[int, int]:
    """The correlation id at `pos`, and where the body begins."""
    try:
        (correlation_id,) = _read_correlation_id(view, pos)
        pos += 4
        if flexible:
            pos = skip_tags(view, pos + 1, view[pos])
    except BROKEN as error:
        raise MalformedMessage(f"response header: {error}") from error
    return correlation_id, pos


def decode_response(messages: Any, version: int, view: memoryview) -> tuple[int, Any]:
    """Correlation id and message of one response frame, its four bytes of length left out."""
    flexible = response_header_is_flexible(messages, version)
    correlation_id, pos = decode_response_header(view, 0, flexible)
    response, _ = messages.DECODE_RESPONSE[version](view, pos)
    return correlation_id, response
