"""SaslAuthenticate, v0-2: one token of a login.

A login that fails is answered with SASL_AUTHENTICATION_FAILED after a delay, and the connection
ends. v1 tells how long the session lasts (KIP-368). Where no token is due the answer is
ILLEGAL_SASL_STATE; the state is in `serving/authentication`.
"""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import sasl_authenticate as messages
from headrace.wire.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def handle(
    broker: Broker, request: SaslAuthenticateRequest, call: Call
) -> SaslAuthenticateResponse | WaitingRequest:
    from headrace.node.serving.authentication.exchange import LoginFailed  # a node without logins

    session = call.session
    login = session.login
    if login is None or not login.takes_tokens:
        return SaslAuthenticateResponse(
            ErrorCode.ILLEGAL_SASL_STATE,
            "A token has arrived although no login goes on on this connection.",
        )
    try:
        answer, lifetime_ms = login.token(session, request.auth_bytes, call.now)
    except LoginFailed as failure:
        refusal = SaslAuthenticateResponse(
            ErrorCode.SASL_AUTHENTICATION_FAILED, login.told(failure)
        )
        late: WaitingRequest = login.answer_late(session, lambda: refusal, call.now)
        return late
    return SaslAuthenticateResponse(ErrorCode.NONE, None, answer, lifetime_ms)


API = Api(messages=messages, handle=handle, versions=range(0, 3))
