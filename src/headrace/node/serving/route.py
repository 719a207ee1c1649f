"""One API in one version: its decoder, its handler, its encoder.

Also functions that depend on nothing else: reading a request, an answer that refuses it, and the
throttle time in an answer.
"""

from __future__ import annotations

import sys
from struct import Struct
from typing import Any

from headrace.node.serving.api import Api, ClosesConnection, Recognize
from headrace.node.serving.session import Piece
from headrace.wire.protocol.errors import KafkaError, MalformedMessage
from headrace.wire.protocol.messages import load_sliced
from headrace.wire.protocol.primitives import BROKEN, read_uvarint, skip_tags

API_VERSIONS_KEY = 18
PRODUCE_KEY, FETCH_KEY, SHARE_FETCH_KEY = 0, 1, 78
ANSWERED_WITH_SLICES = (FETCH_KEY, SHARE_FETCH_KEY)
# A request of this size may hold so many elements that it takes more than a few milliseconds.
LARGE_FROM = 16 * 1024
# The same for APIs whose elements are costly or have long answers; they have a `handle_large`.
LARGE_FROM_IF_COSTLY = 1024

_reply_head = Struct(">ii").pack
_reply_head_flexible = Struct(">iiB").pack


class Route:
    """One API in one version: its decoder, its handler, its encoder."""

    __slots__ = (
        "name",
        "module",
        "api_key",
        "version",
        "decode",
        "encode",
        "handle",
        "recognize",
        "throttle_encoded",
        "handle_large",
        "large_from",
        "owner",
        "flexible",
        "flexible_reply",
        "response_type",
        "requests",
        "errors",
        "microseconds",
        "buckets",
        "frame",
    )

    def __init__(
        self, api: Api, version: int, owner: Any, recognize: Recognize | None = None
    ) -> None:
        messages = api.messages
        self.name: str = messages.NAME
        self.module: str = messages.__name__.rpartition(".")[2]
        self.api_key: int = messages.API_KEY
        self.version = version
        self.decode = messages.DECODE_REQUEST[version]
        self.encode = messages.ENCODE_RESPONSE[version]
        self.handle = api.handle
        self.recognize = recognize
        self.throttle_encoded = api.throttle_encoded
        self.handle_large = api.handle_large
        costly = api.handle_large is not None
        self.large_from = LARGE_FROM_IF_COSTLY if costly else LARGE_FROM  # bytes of a request
        if self.api_key == PRODUCE_KEY:
            self.large_from = sys.maxsize  # its batches are not decoded element by element
        self.owner = owner
        self.flexible = version >= messages.FLEXIBLE_FROM
        # A client that does not know our versions must be able to read the answer (KIP-511).
        self.flexible_reply = self.flexible and self.api_key != API_VERSIONS_KEY
        self.response_type: type[Any] = getattr(messages, f"{messages.NAME}Response")
        self.requests = 0
        self.errors = 0
        self.microseconds = 0
        self.buckets = [0] * 32  # by bit length of the microseconds
        slices = self.api_key in ANSWERED_WITH_SLICES
        self.frame = self._frame_with_slices if slices else self._frame_of_bytes

    def sliced(self) -> Any:
        """Returns the module of the same codecs in slices; only large messages load it."""
        return load_sliced(self.module)

    def _frame_of_bytes(self, correlation_id: int, answer: Any) -> list[Piece]:
        """The whole reply as one piece."""
        pieces: list[Any] = []
        self.encode(answer, pieces.append)
        return self.frame_of_body(correlation_id, b"".join(pieces))

    def frame_of_body(self, correlation_id: int, body: bytes) -> list[Piece]:
        if self.flexible_reply:
            return [_reply_head_flexible(len(body) + 5, correlation_id, 0) + body]
        return [_reply_head(len(body) + 4, correlation_id) + body]

    def head(self, correlation_id: int, size: int) -> bytes:
        """Returns the head of a reply whose body has `size` bytes."""
        if self.flexible_reply:
            return _reply_head_flexible(size + 5, correlation_id, 0)
        return _reply_head(size + 4, correlation_id)

    def _frame_with_slices(self, correlation_id: int, answer: Any) -> list[Piece]:
        """The same for answers in which slices of files must stay slices."""
        pieces: list[Piece] = []
        self.encode(answer, pieces.append)
        size = sum(map(len, pieces)) + 4
        if self.flexible_reply:
            pieces[0] = _reply_head_flexible(size + 1, correlation_id, 0) + pieces[0]  # type: ignore[operator]
        else:
            pieces[0] = _reply_head(size, correlation_id) + pieces[0]  # type: ignore[operator]
        return pieces


def decoded(route: Route, frame: memoryview, client_id_length: int) -> Any:
    at = 10 + client_id_length if client_id_length > 0 else 10
    if route.flexible and at < len(frame) and frame[at] == 0:
        at += 1  # an empty set of tags, the usual case: as `body_of`, without the call
    elif route.flexible or at > len(frame):
        at = body_of(route, frame, client_id_length)
    try:
        request, _ = route.decode(frame, at)
    except (MalformedMessage, *BROKEN) as malformed:
        raise ClosesConnection(
            f"a {route.name} v{route.version} that cannot be read: {malformed}"
        ) from None
    return request


def body_of(route: Route, frame: memoryview, client_id_length: int) -> int:
    """Returns the position of the request after its header."""
    at = 10 + client_id_length if client_id_length > 0 else 10
    try:
        if at > len(frame):
            raise MalformedMessage("the client id is longer than the request")
        if route.flexible:
            at = at + 1 if frame[at] == 0 else _skip_header_tags(frame, at)
    except (MalformedMessage, *BROKEN) as malformed:
        raise ClosesConnection(
            f"a {route.name} v{route.version} that cannot be read: {malformed}"
        ) from None
    return at


def _skip_header_tags(frame: memoryview, at: int) -> int:
    count, at = read_uvarint(frame, at)
    return skip_tags(frame, at, count)


def throttled(route: Route, answer: Any, wait_ms: int) -> Any:
    """Returns the answer with the throttle time."""
    if not wait_ms:
        return answer
    if type(answer) is bytes:
        assert route.throttle_encoded is not None, f"{route.name} cannot tell how long to wait"
        return route.throttle_encoded(answer, route.version, wait_ms)
    if hasattr(answer, "throttle_time_ms"):
        answer.throttle_time_ms = wait_ms
    return answer


def error_response(route: Route, refusal: KafkaError) -> Any:
    """Returns a refusal of the whole request, for APIs whose answer has one field for it."""
    answer = route.response_type()
    if not hasattr(answer, "error_code"):
        raise ClosesConnection(f"a {route.name} v{route.version} refused with {refusal.code.name}")
    route.errors += 1
    answer.error_code = refusal.code
    if refusal.message is not None and hasattr(answer, "error_message"):
        answer.error_message = refusal.message
    return answer
