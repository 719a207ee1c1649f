"""SaslHandshake, v0-1: by which mechanism a client wants to log in.

After v1 its tokens come in SaslAuthenticate requests, after v0 without a header. A mechanism that
the listener does not offer ends the connection, after an answer that lists the offered ones. Where
no login is due the answer is ILLEGAL_SASL_STATE, as Apache Kafka's; the state is in
`serving/authentication`.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import sasl_handshake as messages
from headrace.wire.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


def handle(
    broker: Broker, request: SaslHandshakeRequest, call: Call
) -> SaslHandshakeResponse | WaitingRequest:
    session = call.session
    login = session.login
    if login is None or not login.takes_handshake(call.now):
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    offered: list[str] = login.mechanisms.names
    if request.mechanism not in offered:
        login.refuse_mechanism(session)
        refusal = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered)
        late: WaitingRequest = login.answer_late(session, lambda: refusal, call.now)
        return late
    login.handshake(request.mechanism, bare_tokens=call.version == 0, now=call.now)
    return SaslHandshakeResponse(ErrorCode.NONE, offered)


API = Api(messages=messages, handle=handle, versions=range(0, 2))
