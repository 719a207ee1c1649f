"""Frames as a client sees them: four bytes of length, a header, a body; requests out, responses in.

Headers come in two forms, the plain one and the flexible one that ends with tagged fields; which
one follows from the API's version, with one exception: responses to ApiVersions always have the
plain header, so that a client can read them before it knows which versions the server has
(KIP-511). The server's side is `node/serving/dispatch.py`. No socket is read or written here.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from headrace.environment import Buffer
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.primitives import BROKEN, skip_tags

API_VERSIONS = 18

# api key, version, correlation id, length of the client id; the length of the frame is before it
REQUEST_HEAD = Struct(">hhih")
_read_correlation_id = Struct(">i").unpack_from


def request_header_is_flexible(messages: Any, version: int) -> bool:
    """Returns whether requests of this version end their header with tagged fields."""
    return bool(version >= messages.FLEXIBLE_FROM)


def response_header_is_flexible(messages: Any, version: int) -> bool:
    """Returns whether responses of this version end their header with tagged fields; never for
    ApiVersions."""
    return bool(version >= messages.FLEXIBLE_FROM and messages.API_KEY != API_VERSIONS)


def encode_request(
    messages: Any, version: int, correlation_id: int, client_id: str | None, request: Any
) -> list[Buffer]:
    """The frame of a request message."""
    body: list[Buffer] = []
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
