"""Requests of clients that a broker forwards to the controller, in an Envelope (API 58).

The envelope holds the request as it would have come on a connection, with the client's principal
and address. `enclose` makes one, `Envelopes` answers one: the request inside is decoded, authorized
as its own client and answered as usual, and its reply goes back in the envelope's reply. Only
another node may send envelopes (CLUSTER_ACTION), since they carry the identity of a client.

As in Apache Kafka: a request that cannot be read is INVALID_REQUEST, a principal that cannot be
read PRINCIPAL_DESERIALIZATION_FAILURE, an API that is not for forwarding INVALID_REQUEST. A
controller that is not active answers NOT_CONTROLLER for the envelope, whatever is inside.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from ipaddress import ip_address
from struct import Struct
from typing import Any

from headrace.node.serving.api import Api, Call, ClosesConnection, WaitingRequest
from headrace.node.serving.authorization import Authorizer
from headrace.node.serving.long_answers import answering_of
from headrace.node.serving.principal import Principal
from headrace.node.serving.quotas import Meter
from headrace.node.serving.rights import require_on_cluster
from headrace.node.serving.route import Route, body_of, error_response, throttled
from headrace.node.serving.session import Session
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from headrace.wire.protocol.framing import REQUEST_HEAD, decode_response
from headrace.wire.protocol.messages import default_principal_data as principals
from headrace.wire.protocol.messages import envelope as messages
from headrace.wire.protocol.messages.default_principal_data import DefaultPrincipalData
from headrace.wire.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from headrace.wire.protocol.primitives import BROKEN

VERSION_OF_PRINCIPALS = 0

_CODES = {int(code): code for code in ErrorCode}
_version = Struct(">h")


def enclose(call: Call) -> EnvelopeRequest:
    """Returns an envelope with the exact bytes of the client's request, for the controller."""
    session = call.session
    return EnvelopeRequest(
        call.frame.tobytes(), _principal(session.principal), ip_address(session.client_host).packed
    )


def disclose(api_messages: Any, version: int, answer: EnvelopeResponse) -> Any:
    """Returns the controller's answer to the request in an envelope; raises KafkaError if it has
    none."""
    if answer.error_code != ErrorCode.NONE or answer.response_data is None:
        code = _CODES.get(answer.error_code, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code in (ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            # If this broker may not forward anything, its client cannot correct that.
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        raise KafkaError(code)
    try:
        _, response = decode_response(api_messages, version, memoryview(answer.response_data))
    except (MalformedMessage, *BROKEN) as fault:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a senseless answer") from fault
    return response


def _principal(principal: Principal) -> bytes:
    pieces: list[Any] = [_version.pack(VERSION_OF_PRINCIPALS)]
    data = DefaultPrincipalData(principal.type, principal.name)
    principals.ENCODE[VERSION_OF_PRINCIPALS](data, pieces.append)
    return b"".join(pieces)


def _read_principal(data: bytes | None) -> Principal:
    try:
        if data is None or _version.unpack_from(data)[0] != VERSION_OF_PRINCIPALS:
            raise MalformedMessage("a principal of another version")
        found, _ = principals.DECODE[VERSION_OF_PRINCIPALS](memoryview(data), _version.size)
    except (MalformedMessage, *BROKEN) as fault:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from fault
    return Principal(found.type, found.name)


def _read_host(data: bytes) -> str:
    try:
        return str(ip_address(data))
    except ValueError as fault:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no address of a client") from fault


class Envelopes:
    """Answers the requests in envelopes by the routes of this node."""

    __slots__ = ("authorizer", "_routes", "_is_active", "_meter")

    def __init__(
        self,
        routes: Iterable[Route],
        authorizer: Authorizer | None,
        is_active: Callable[[], bool] = lambda: True,
        meter: Callable[[Session, memoryview], Meter | None] = lambda session, frame: None,
    ) -> None:
        """`routes` are those that may be forwarded; `is_active` returns whether the controller in
        this process is the active one; `meter` applies the clients' quotas."""
        self.authorizer = authorizer
        self._meter = meter
        self._is_active = is_active
        self._routes = {route.api_key << 16 | route.version: route for route in routes}

    def answer(self, request: EnvelopeRequest, call: Call) -> Generator[None, None, Any]:
        require_on_cluster(self, call, Operation.CLUSTER_ACTION)
        if not self._is_active():
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        session = Session(_read_host(request.client_host_address), call.session.listener)
        session.principal = _read_principal(request.request_principal)
        frame = memoryview(request.request_data)
        try:
            api_key, version, number, name_length = REQUEST_HEAD.unpack_from(frame)
        except BROKEN as fault:
            raise KafkaError(ErrorCode.INVALID_REQUEST) from fault
        route = self._routes.get(api_key << 16 | version)
        if route is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"API {api_key} is not handed on")
        meter = self._meter(session, frame)
        inner = Call(call.now, version, frame, session, number, meter)
        try:
            answering = answering_of(route, inner, body_of(route, frame, name_length))
            answer = yield from _answered(route, answering)
        except ClosesConnection as fault:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(fault)) from fault
        if isinstance(answer, WaitingRequest):
            return _when_answered(route, number, answer, meter)
        return _seal(route, number, answer, meter)


def _answered(route: Route, answering: Generator[None, None, Any]) -> Generator[None, None, Any]:
    try:
        return (yield from answering)
    except KafkaError as refusal:
        return _refused(route, refusal)


def _refused(route: Route, refusal: KafkaError) -> Any:
    """A controller that was deposed meanwhile answers so for the envelope: the broker asks the next
    one."""
    if refusal.code == ErrorCode.NOT_CONTROLLER:
        raise refusal
    return error_response(route, refusal)


def _when_answered(
    route: Route, number: int, waiting: WaitingRequest, meter: Meter | None
) -> WaitingRequest:
    attempt = waiting.attempt
    if meter is not None:
        meter.waits()

    def sealed(expired: bool) -> EnvelopeResponse | None:
        try:
            answer = attempt(expired)
        except KafkaError as refusal:
            answer = _refused(route, refusal)
        return None if answer is None else _seal(route, number, answer, meter)

    waiting.attempt = sealed
    return waiting


def _seal(route: Route, number: int, answer: Any, meter: Meter | None) -> EnvelopeResponse:
    """The throttle time for the client is in the answer; the broker passes it on."""
    if meter is not None:
        answer = throttled(route, answer, meter.finish(route.api_key))
    frame = route.frame_of_body if type(answer) is bytes else route.frame
    reply = b"".join(bytes(piece) for piece in frame(number, answer))  # type: ignore[arg-type]
    return EnvelopeResponse(reply[4:])  # without its length


def handle(envelopes: Envelopes, request: EnvelopeRequest, call: Call) -> Any:
    return envelopes.answer(request, call)


API = Api(messages=messages, handle=handle, versions=range(0, 1), owner="envelopes")
